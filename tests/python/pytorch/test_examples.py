# Every example of examples/pytorch on two ranks, as torchrun starts it: its loss falls.  SPDX-License-Identifier: Apache-2.0
import glob
import os
import re

import pytest
from ranks import perform

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
EXAMPLES = sorted(glob.glob(os.path.join(ROOT, "examples", "pytorch", "*.py")))
CHANCE = 5.5452  # ln 256: of a model that knows nothing


@pytest.mark.parametrize("path", EXAMPLES, ids=os.path.basename)
def test_example(loaded, path, tmp_path):
    said = perform(path, ["--tokens", "96", "--steps", "10", "--backend", "eager"], 2, str(tmp_path))
    losses = [float(x) for x in re.findall(r"loss (\d+\.\d+)", said)]
    assert losses and losses[-1] < CHANCE - 0.5, said
