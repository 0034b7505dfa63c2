"""Every collective over a covering selection of dtypes, operations, world sizes and lengths, against NumPy.

The full product runs in C++ over threads; here every dtype meets every operation, every length and every world size
over real processes, and every world size meets every collective.
"""

from __future__ import annotations

import itertools

import pytest
from contract_cases import DTYPES, LENGTHS, Checks

from collectives.testing import communicator, run_ranks

WORLD_SIZES = (1, 2, 3, 5, 8)


def _uneven(size: int, length: int) -> list[int]:
    """Counts of one rank each, some zero, that are not all alike."""
    return [(length * (rank + 1)) // size if rank % 3 != 1 else 0 for rank in range(size)]


def check_reductions(rank: int, world_size: int) -> tuple[int, list[str]]:
    checks = Checks(communicator())
    lengths = itertools.cycle(LENGTHS)
    pairs = [(dtype, op) for dtype, ops in DTYPES.items() for op in ops]
    for number, (dtype, op) in enumerate(pairs):
        root = number % world_size
        checks.all_reduce(dtype, op, next(lengths), numpy=number % 2 == 0, out_of_place=number % 3 == 0)
        checks.reduce(dtype, op, next(lengths) if number % 4 else 257, root)
        checks.reduce_scatter(dtype, op, [next(lengths) % 2048] * world_size, uneven=False)
        checks.reduce_scatter(dtype, op, _uneven(world_size, 1 + next(lengths) % 2048), uneven=True)
    checks.comm.close()
    return checks.count, checks.wrong


def check_movements(rank: int, world_size: int) -> tuple[int, list[str]]:
    checks = Checks(communicator())
    for number, (dtype, length) in enumerate(itertools.product(DTYPES, LENGTHS)):
        root = number % world_size
        checks.broadcast(dtype, length, root)
        checks.gather(dtype, length % 30_000, root)
        checks.scatter(dtype, length % 30_000, root)
        checks.all_gather(dtype, [length % 30_000] * world_size, uneven=False)
        checks.all_gather(dtype, _uneven(world_size, length), uneven=True)
        checks.all_to_all(dtype, [[length % 5000] * world_size] * world_size, uneven=False)
        splits = [
            [(number + 7 * i + 3 * j) % 11 * (length % 500) for j in range(world_size)] for i in range(world_size)
        ]
        checks.all_to_all(dtype, splits, uneven=True)
    checks.comm.close()
    return checks.count, checks.wrong


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("check", [check_reductions, check_movements])
def test_equals_numpy(check, world_size: int) -> None:
    for rank, (count, wrong) in enumerate(run_ranks(check, world_size, backend=None, timeout=100)):
        assert count > 300, f"rank {rank} ran only {count} cases"
        assert not wrong, "\n".join(wrong[:20])


def all_reduce_random_bits(rank: int, world_size: int) -> list[bytes]:
    import numpy as np
    import torch
    from contract_cases import bits

    comm = communicator()
    results = []
    for dtype, length in itertools.product(("float32", "bfloat16", "float16"), (3, 5_000, 300_000)):
        mine = torch.from_numpy(np.random.default_rng(rank).standard_normal(length)).to(getattr(torch, dtype))
        results.append(bits(comm.all_reduce(mine)))
    comm.close()
    return results


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_all_ranks_get_the_same_bits(world_size: int) -> None:
    first, *others = run_ranks(all_reduce_random_bits, world_size, backend=None)
    assert all(other == first for other in others)


def all_reduce_large(rank: int, world_size: int) -> bool:
    import numpy as np

    comm = communicator()
    array = np.full(5_000_011, rank + 1, dtype=np.float64)  # 40 MB: many rounds of the staging memory
    comm.all_reduce(array)
    comm.close()
    return bool((array == world_size * (world_size + 1) / 2).all())


def test_a_vector_larger_than_the_staging_memory() -> None:
    assert run_ranks(all_reduce_large, 3, backend=None) == [True] * 3
