"""Large calls try every way that their data can go and then choose one: the results are the same all along."""

from __future__ import annotations

import numpy as np
import pytest

import collectives
from collectives.testing import communicator, run_ranks

CALLS = 14  # three tries of each of three ways, the call that decides, and some that use what it decided


def values(rank: int, call: int, count: int) -> np.ndarray:
    return ((np.arange(count) * 7 + 31 * rank + call) % 251).astype(np.float32)


def all_collectives(rank: int, world_size: int, kibibytes: int, deterministic: bool) -> None:
    comm = communicator(deterministic=deterministic)
    block = kibibytes * 256
    for call in range(CALLS):
        mine = values(rank, call, block * world_size)
        every = [values(r, call, block * world_size) for r in range(world_size)]
        total = np.sum(every, axis=0)

        part = np.zeros(block, np.float32)
        comm.reduce_scatter(part, mine)
        np.testing.assert_array_equal(part, total[rank * block : (rank + 1) * block])

        whole = np.zeros_like(mine)
        comm.all_gather(whole, mine[:block])
        np.testing.assert_array_equal(whole, np.concatenate([other[:block] for other in every]))

        # Uneven: rank r sends (r + q + 1) eighths of a block to rank q.
        splits = [[block * (r + q + 1) // 8 for q in range(world_size)] for r in range(world_size)]
        received = np.zeros(sum(splits[r][rank] for r in range(world_size)), np.float32)
        comm.all_to_all(received, mine[: sum(splits[rank])], [row[rank] for row in splits], splits[rank])
        starts = [np.concatenate([[0], np.cumsum(row)]) for row in splits]
        np.testing.assert_array_equal(
            received, np.concatenate([every[r][starts[r][rank] : starts[r][rank + 1]] for r in range(world_size)])
        )

        same = mine.copy()
        comm.broadcast(same, root=world_size - 1)
        np.testing.assert_array_equal(same, every[-1])

        comm.all_reduce(mine)
        np.testing.assert_array_equal(mine, total)
    comm.close()


@pytest.mark.parametrize(("world_size", "kibibytes"), [(2, 16), (2, 300), (3, 80), (4, 33)])
def test_every_way_gives_the_same_result(world_size: int, kibibytes: int) -> None:
    run_ranks(all_collectives, world_size, kibibytes, False, backend=None)


def test_a_deterministic_group_measures_nothing() -> None:
    run_ranks(all_collectives, 2, 64, True, backend=None)


def tensors_of_both_kinds(rank: int, world_size: int) -> None:
    """Private and shared memory in turn: a call that was to be pulled is mapped instead, or staged."""
    comm = communicator()
    count = 100_000
    shared = collectives.empty(count)
    for call in range(2 * CALLS):
        array = shared.numpy() if (call + rank) % 3 else np.zeros(count, np.float32)
        array[:] = values(rank, call, count)
        comm.all_reduce(array)
        np.testing.assert_array_equal(array, sum(values(r, call, count) for r in range(world_size)))
    comm.close()


def test_memory_that_changes_from_call_to_call() -> None:
    run_ranks(tensors_of_both_kinds, 2, backend=None)
