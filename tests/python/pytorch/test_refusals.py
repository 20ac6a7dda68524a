# What fails: early, on all ranks, with one message that names what and where.  SPDX-License-Identifier: Apache-2.0
import pytest

REFUSED = {
    "break": ["not one graph", "cases.py"],
    "unknown": ["aten.lgamma.default", "not supported where the sequence is split", "cases.py"],
    "no loss": ["no loss"],
    "custom": ["autograd_function_apply", "not supported"],
    "sized": ["depends on data", "cases.py"],
    "peers": ["ids", "other values", "rank 1", "same whole batch"],
    "lengths": ["ids", "[2, 24]", "[2, 22]", "rank 1"],
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_on_all_ranks(ranks, what):
    message = ranks.refuse("cases", "refused", 2, what)
    assert all(word in message for word in REFUSED[what]), message


@pytest.mark.parametrize("options,word", [
    ({"sp": 3}, "does not divide the 4 ranks"),
    ({"sp": 8}, "does not divide the 4 ranks"),
    ({"sp": 0}, "at least 1"),
    ({"sp": -1}, "at least 1"),
    ({"sp": {"autosp_sise": 2}}, "autosp_sise"),
    ({"strategy": "rings"}, "rings"),
    ({"memory": "60 bytes"}, "60 bytes"),
    ({"memory": "60GiB", "ac": "sac"}, "ac="),
    ({"memory": "1KiB", "backend": "eager"}, "eager"),
    ({"ac": "everything"}, "everything"),
    ({"backend": "triton"}, "triton"),
])
def test_settings(ranks, options, word):
    assert word in ranks.refuse("cases", "setting", 4, options)


@pytest.mark.parametrize("config,word", [
    ({"sequence_parallell": {}}, "sequence_parallell"),
    ({"zero_optimization": {"stage": 3}}, "stage 3"),
    ({"compile": {"passes": ["zero3"]}}, "zero3"),
    ({"sequence_parallel": {"autosp_size": 2}, "sequence_parallel_size": 4}, "differ"),
])
def test_configurations(ranks, config, word):
    assert word in ranks.refuse("cases", "engine_refused", 1, config)


def test_another_version_of_torch(ranks):
    assert "torch 2.99.0 is not supported" in ranks.refuse("cases", "another_torch", 2)


def test_a_list_fits_one_graph_once(ranks):
    first, second = ranks.give("cases", "twice", 1)[0]
    assert first == ""
    assert "made for another graph" in second and "applied to it before" in second
