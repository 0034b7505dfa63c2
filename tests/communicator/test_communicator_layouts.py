"""Strided arrays, uneven counts and splits: random layouts from hypothesis, over real processes, against NumPy.

One pool of ranks runs many examples: the examples are drawn first, each rank then runs all of them.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from collectives.testing import communicator, run_ranks

EXAMPLES = 60


def draw(strategy: st.SearchStrategy, count: int = EXAMPLES) -> list:
    """Return examples of a strategy, the same in every run."""
    drawn: list = []

    @settings(max_examples=count, database=None, derandomize=True, phases=[Phase.generate], deadline=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def collect(example) -> None:
        drawn.append(example)

    collect()
    return drawn


# A layout: a base shape, then slices with steps and a permutation. Both kinds of arrays can have it.
def layouts() -> st.SearchStrategy:
    dimension = st.tuples(st.integers(1, 9), st.sampled_from([1, 2, 3, -1, -2]))
    return st.lists(dimension, min_size=1, max_size=4).flatmap(
        lambda dims: st.tuples(st.just(dims), st.permutations(range(len(dims))))
    )


def lay_out(layout, fill: float, use_torch: bool):
    """Return (whole base, view of it) of a layout; the view's values count from `fill`."""
    dims, order = layout
    base = np.full([size for size, _ in dims], -7.0)
    view = base[tuple(slice(None, None, step) for _, step in dims)].transpose(order)
    view[...] = np.arange(view.size).reshape(view.shape) + fill
    if use_torch and all(step > 0 for _, step in dims):
        tensor = torch.from_numpy(base)
        return tensor, tensor[tuple(slice(None, None, step) for _, step in dims)].permute(list(order))
    return base, view


def check_strided(rank: int, world_size: int, examples: list) -> list[str]:
    comm = communicator()
    wrong = []
    for number, layout in enumerate(examples):
        base, view = lay_out(layout, float(rank), number % 2 == 1)
        untouched = np.asarray(base) == -7.0
        comm.all_reduce(view)
        values = np.asarray(view)
        wanted = np.arange(values.size).reshape(values.shape) * world_size + sum(range(world_size))
        if not (values == wanted).all() or not (np.asarray(base)[untouched] == -7.0).all():
            wrong.append(f"all_reduce {layout}")

        _, source = lay_out(layout, float(rank), number % 2 == 0)
        _, target = lay_out(layout, -100.0, number % 2 == 0)
        comm.all_reduce(source, "max", out=target)
        if not (np.asarray(target) == np.arange(values.size).reshape(values.shape) + world_size - 1).all():
            wrong.append(f"all_reduce out of place {layout}")

        _, sent = lay_out(layout, float(rank), number % 2 == 0)
        comm.broadcast(sent, root=number % world_size)
        if not (np.asarray(sent) == np.arange(values.size).reshape(values.shape) + number % world_size).all():
            wrong.append(f"broadcast {layout}")
    comm.close()
    return wrong


@pytest.mark.parametrize("world_size", [2, 3])
def test_strided_arrays_are_right(world_size: int) -> None:
    examples = draw(layouts())
    assert len(examples) > EXAMPLES // 2
    for wrong in run_ranks(check_strided, world_size, examples, backend=None):
        assert not wrong, wrong[:5]


def check_splits(rank: int, world_size: int, examples: list) -> list[str]:
    comm = communicator()
    wrong = []
    for columns, splits in examples:
        rows = [sum(row) for row in splits]
        everything = [
            (np.arange(count * columns) + 1000.0 * source).reshape(count, columns) for source, count in enumerate(rows)
        ]
        arriving = [splits[source][rank] for source in range(world_size)]
        parts = [
            np.split(everything[source], np.cumsum(splits[source])[:-1])[rank] for source in range(world_size)
        ]  # fmt: skip
        out = np.zeros((sum(arriving), columns))
        comm.all_to_all(out, everything[rank], arriving, splits[rank])
        if not (out == np.concatenate(parts)).all():
            wrong.append(f"all_to_all {columns} {splits}")

        counts = splits[0]
        gathered = np.zeros((sum(counts), columns))
        comm.all_gather(gathered, np.full((counts[rank], columns), float(rank)), counts)
        if not (gathered == np.repeat(np.arange(world_size), counts)[:, None]).all():
            wrong.append(f"all_gather {columns} {counts}")

        mine = np.zeros((counts[rank], columns))
        whole = np.arange(sum(counts) * columns).reshape(-1, columns) * (rank + 1.0)
        comm.reduce_scatter(mine, whole, counts=counts)
        start = sum(counts[:rank])
        total = whole / (rank + 1.0) * sum(range(1, world_size + 1))
        if not (mine == total[start : start + counts[rank]]).all():
            wrong.append(f"reduce_scatter {columns} {counts}")
    comm.close()
    return wrong


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_uneven_counts_and_splits(world_size: int) -> None:
    sizes = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 400))
    matrix = st.lists(st.lists(sizes, min_size=world_size, max_size=world_size), min_size=world_size,
                      max_size=world_size)  # fmt: skip
    examples = draw(st.tuples(st.integers(1, 7), matrix))
    for wrong in run_ranks(check_splits, world_size, examples, backend=None):
        assert not wrong, wrong[:5]
