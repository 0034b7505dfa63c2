"""The benchmark's inputs and expected results, against operations written out plainly."""

from __future__ import annotations

import numpy as np
import pytest

from bench import cases


def carry_out(name: str, buffers: list[cases.Buffers]) -> None:
    """The operation over all ranks' buffers, in NumPy."""
    share = len(buffers[0].part)
    full = [each.full.copy() for each in buffers]
    for rank, each in enumerate(buffers):
        mine = slice(rank * share, (rank + 1) * share)
        if name == "all_reduce":
            each.full[:] = sum(full[1:], full[0])
        elif name == "reduce_scatter":
            each.part[:] = sum(full[1:], full[0])[mine]
        elif name == "all_gather":
            each.full[:] = np.concatenate([other.part for other in buffers])
        elif name == "all_to_all":
            each.other[:] = np.concatenate([other[mine] for other in full])
        elif name == "broadcast":
            each.full[:] = full[0]


def prepared(name: str, ranks: int, count: int, dtype: str) -> tuple[list[cases.Case], list[cases.Buffers]]:
    row, kind = cases.operation(name), np.dtype(dtype)
    made = [cases.Case(row, count, rank, ranks, kind) for rank in range(ranks)]
    buffers = [cases.allocate(count, ranks, kind) for _ in made]
    for case, each in zip(made, buffers, strict=True):
        case.load(each)
        case.spoil(each)
    return made, buffers


SIZED = [row.name for row in cases.OPERATIONS if row.sized]


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8"])
def test_right_results_pass_and_one_wrong_element_does_not(name: str, ranks: int, dtype: str) -> None:
    made, buffers = prepared(name, ranks, 7 * ranks, dtype)
    carry_out(name, buffers)
    assert [case.wrong_elements(each) for case, each in zip(made, buffers, strict=True)] == [0] * ranks
    result = {"reduce_scatter": "part", "all_to_all": "other"}.get(name, "full")
    getattr(buffers[-1], result)[-1] += 1
    assert made[-1].wrong_elements(buffers[-1]) == 1


@pytest.mark.parametrize("name", [name for name in SIZED if name != "all_reduce"])
def test_doing_nothing_is_wrong(name: str) -> None:
    made, buffers = prepared(name, 2, 64, "float32")
    assert made[1].wrong_elements(buffers[1]) > 0


def test_doing_no_sum_is_wrong() -> None:
    made, buffers = prepared("all_reduce", 2, 64, "float32")
    assert made[1].wrong_elements(buffers[1]) > 0


@pytest.mark.parametrize("chunk", [16, 4096, 1 << 20])
def test_swapped_chunks_are_seen(chunk: int) -> None:
    made, buffers = prepared("all_reduce", 2, 4 << 20, "uint8")
    carry_out("all_reduce", buffers)
    first = buffers[0].full[:chunk].copy()
    buffers[0].full[:chunk] = buffers[0].full[2 * chunk : 3 * chunk]
    buffers[0].full[2 * chunk : 3 * chunk] = first
    assert made[0].wrong_elements(buffers[0]) > 0


def test_timed_sums_start_from_ones() -> None:
    made, buffers = prepared("all_reduce", 3, 6, "float32")
    for case, each in zip(made, buffers, strict=True):
        case.refill(each)
    carry_out("all_reduce", buffers)
    assert made[0].wrong_elements(buffers[0], timed=True) == 0
    buffers[0].full[0] = 1
    assert made[0].wrong_elements(buffers[0], timed=True) == 1


@pytest.mark.parametrize(
    ("size", "ranks", "expected"), [(8, 2, 2), (8, 8, 8), (64, 3, 15), (4, 5, 5), (1 << 20, 2, 1 << 18)]
)
def test_counts_are_multiples_of_the_ranks(size: int, ranks: int, expected: int) -> None:
    assert cases.element_count(size, 4, ranks) == expected


def test_least_bytes_follow_the_reference() -> None:
    moved = {row.name: row.moved(1200, 3) for row in cases.OPERATIONS}
    assert moved == {
        "all_reduce": 2400, "reduce_scatter": 1600, "all_gather": 2400, "all_to_all": 2400, "broadcast": 2400,
        "barrier": 0,
    }  # fmt: skip


def test_unknown_operations_are_refused() -> None:
    with pytest.raises(ValueError, match="choose from all_reduce"):
        cases.operation("reduce_all")
