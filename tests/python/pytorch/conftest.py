# SPDX-License-Identifier: Apache-2.0
import os
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))


def pytest_addoption(parser):
    parser.addoption("--grid", action="store_true", help="every combination, and not a cover of them")


def pytest_generate_tests(metafunc):
    """Of a test marked cover(names, some, all): some cases, or with --grid all of them."""
    mark = metafunc.definition.get_closest_marker("cover")
    if mark:
        names, some, everything = mark.args
        metafunc.parametrize(names, everything if metafunc.config.getoption("--grid") else some)


def pytest_configure(config):
    config.addinivalue_line("markers", "cover(names, some, all): the cases of a test")


@pytest.fixture(scope="session")
def loaded():
    """All that ranks import, before they are forked."""
    import torch._dynamo
    import torch._functorch.aot_autograd
    import transformers
    import transformers.models.bert.modeling_bert
    import transformers.models.gemma2.modeling_gemma2
    import transformers.models.gemma3.modeling_gemma3
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama
    import transformers.models.mistral.modeling_mistral
    import transformers.models.mixtral.modeling_mixtral
    import transformers.models.olmoe.modeling_olmoe
    import transformers.models.qwen2.modeling_qwen2
    import transformers.models.qwen3.modeling_qwen3
    import transformers.trainer

    transformers.logging.set_verbosity_error()


@pytest.fixture(scope="session")
def ranks(loaded):
    from ranks import Ranks

    pool = Ranks()
    yield pool
    pool.stop()
