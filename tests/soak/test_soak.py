"""A few rounds of the soak test with fixed seeds, and a proof that it notices a wrong result."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import operations
import run


def test_a_round_passes() -> None:
    assert run.run_round(1, 60) == "3 ranks, 60 operations"


def test_a_round_with_a_killed_rank_passes() -> None:
    assert run.run_round(3, 60) == "5 ranks, rank 0 killed"


def test_a_wrong_element_is_reported_with_its_place() -> None:
    draw = operations.Draw(seed=5, index=6, rank=0, world_size=2)
    with pytest.raises(AssertionError, match=r"operation 6 of seed 5, reduce \(int8\): element 1 of 2 is 9, not 4"):
        operations.check(draw, "reduce", np.array([3, 9]), np.array([3, 4]), "int8")


def test_all_ranks_draw_the_same_operation() -> None:
    first, second = (operations.Draw(7, 8, rank, 2).common().random(4).tolist() for rank in range(2))
    assert first == second
