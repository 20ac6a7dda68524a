# The acceptance cases of sequence parallelism by number (toys.py, toys_attention.py, toys_steps.py): values on two ranks, and on more where
# heads are fewer.  Of the others 13, 41, 42 and 44 are in test_models.py (replicas, logits) and test_refusals.py, where models and settings
# are whole; 30 and 43 in test_models.py (dropout, what is kept), which compares with one rank.  Of 37 what is refused is refused by name.
# Of 46 the ranks that wait are told who did not come to the call; where a rank ends within one, gloo's own error is what they get.
# SPDX-License-Identifier: Apache-2.0
import math
import time

import pytest


def near(have, want, bound):
    if isinstance(want, list):
        return len(have) == len(want) and all(near(a, b, bound) for a, b in zip(have, want))
    return (math.isnan(have) and math.isnan(want)) or abs(have - want) <= bound * max(1, abs(want))


def right(said):
    for rows in said:
        assert rows
        for what, have, want, bound in rows:
            assert near(have, want, bound), f"{what}: {have}, where {want} is right"
    losses = {str([r[1] for r in rows if r[0] == "loss"]) for rows in said}
    assert len(losses) == 1  # the same on all ranks, to the bit


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15, 20, 21, 31, 47])
def test_case(ranks, number):
    right(ranks.give("cases", "toy", 2, "toys", f"case_{number}"))


@pytest.mark.parametrize("strategy", ["ulysses", "ring"])
@pytest.mark.parametrize("number", [17, 18, 22, 23, 24, 26, 28, 35])
def test_attention_case(ranks, number, strategy):
    right(ranks.give("cases", "toy", 2, "toys_attention", f"case_{number}", strategy))


def test_case_18_on_four_ranks(ranks):
    right(ranks.give("cases", "toy", 4, "toys_attention", "case_18", "ulysses"))


def test_case_45(ranks):
    right(ranks.give("cases", "toy", 4, "toys", "case_45"))


@pytest.mark.parametrize("second", ["fused", "manual", "checkpoint"])
def test_case_32(ranks, second):
    right(ranks.give("cases", "toy", 2, "toys_attention", "case_32", "ulysses", second))


@pytest.mark.parametrize("name", ["tokens first", "batch by heads", "strided", "without heads", "tokens before heads"])
def test_case_34(ranks, name):
    right(ranks.give("cases", "toy", 2, "toys_attention", "layout", name))


@pytest.mark.parametrize("name", ["mean", "layer_norm", "rms_norm", "roll", "flip", "max", "softmax", "variance", "outer", "rows", "last", "first",
                                  "cumsum", "conv"])
@pytest.mark.parametrize("p,tokens", [(2, 8), (3, 7)])
def test_case_37(ranks, name, p, tokens):
    right(ranks.give("cases", "toy", p, "toys", "mixed", name, tokens))


@pytest.mark.parametrize("number", [16, 36])
def test_case_of_rows(ranks, number):
    right(ranks.give("cases", "toy", 2, "toys_steps", f"case_{number}"))


@pytest.mark.parametrize("optimizer,sharded", [("sgd", False), ("adamw", False), ("adamw", True)])
def test_case_39(ranks, optimizer, sharded):
    right(ranks.give("cases", "toy", 4, "toys_steps", "case_39", optimizer, sharded))


def test_case_40(ranks):
    right(ranks.give("cases", "toy", 1, "toys_steps", "case_40"))


def test_case_46(ranks):
    start = time.monotonic()
    (first, alone), (second, _) = ranks.give("cases", "toy", 2, "toys_steps", "case_46")
    assert "on rank 1" in first and first == second
    assert "rank 1 did not come" in alone
    assert time.monotonic() - start < 30  # of which the group waits 10


@pytest.mark.parametrize("seed", range(8))
def test_case_48(ranks, seed):
    right(ranks.give("cases", "toy", 2 + seed % 3, "toys_steps", "case_48", seed))


@pytest.mark.parametrize("name,words", [
    ("sort", "the op has no sharding rule"), ("norm", "aten.linalg_vector_norm.default (at toys.py")])
def test_case_37_is_refused(ranks, name, words):
    assert words in ranks.refuse("cases", "toy", 2, "toys", "mixed", name)


def test_buffers_are_not_written(ranks):
    assert "changes calls" in ranks.refuse("cases", "toy", 2, "toys", "counted")


def test_inputs_that_are_trained(ranks):
    right(ranks.give("cases", "toy", 2, "toys", "given"))
