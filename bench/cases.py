"""The operations measured: buffers, inputs, expected results, and the bytes that bound each. One row an operation.

Used by measure.py and by the peers (which only read `Buffers`); includes nothing of the benchmark.
Adding an operation: one row in OPERATIONS, its expected result here, and one line in each peer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

# Inputs repeat with a prime period, so that a chunk that lands at another chunk's place is seen.
_PATTERN_PERIOD = 1_048_573


@dataclass
class Buffers:
    """Memory of one case on one rank; every peer of the case works on the same arrays unless it brings its own.

    Attributes
    ----------
    full : (count,) array, the input of reduce_scatter and all_to_all, in place for all_reduce and broadcast, the
        output of all_gather
    part : (count // ranks,) array, one rank's share
    other : (count,) array, the output of all_to_all
    """

    full: np.ndarray
    part: np.ndarray
    other: np.ndarray


def empty_array(count: int, dtype: np.dtype) -> np.ndarray:
    """Memory touched once, as a user's array would be."""
    return np.ones(count, dtype)


def allocate(
    count: int, ranks: int, dtype: np.dtype, make: Callable[[int, np.dtype], np.ndarray] = empty_array
) -> Buffers:
    """Buffers of `count` elements for `ranks` ranks."""
    return Buffers(full=make(count, dtype), part=make(count // ranks, dtype), other=make(count, dtype))


def element_count(size_bytes: int, itemsize_bytes: int, ranks: int) -> int:
    """Elements for a size: a multiple of the ranks, at least one a rank."""
    return max(ranks, size_bytes // itemsize_bytes // ranks * ranks)


class Pattern:
    """Inputs of every rank and the results they must give: small integers, exact in every dtype measured.

    Rank r's element i is (h(i) + r) & 3, with h a hash of i.
    """

    def __init__(self, count: int, ranks: int, dtype: np.dtype) -> None:
        period = min(count, _PATTERN_PERIOD)
        hashed = (np.arange(period, dtype=np.uint32) * np.uint32(2654435761)) >> np.uint32(20)
        self._base = np.resize((hashed & np.uint32(3)).astype(np.uint8), count)
        self._ranks = ranks
        self._dtype = dtype

    def of_rank(self, rank: int, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Elements start to stop of rank's input."""
        lookup = np.array([(value + rank) & 3 for value in range(4)], self._dtype)
        return lookup[self._base[start:stop]]

    def sum(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Elements start to stop of the sum over all ranks."""
        sums = [sum((value + rank) & 3 for rank in range(self._ranks)) for value in range(4)]
        return np.array(sums, self._dtype)[self._base[start:stop]]


@dataclass
class Case:
    """One (operation, size) on one rank: loads inputs, spoils outputs, and knows the right result."""

    operation: Operation
    count: int
    rank: int
    ranks: int
    dtype: np.dtype
    pattern: Pattern = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.pattern = Pattern(self.count, self.ranks, self.dtype)

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole vector."""
        return self.count * self.dtype.itemsize

    @property
    def share(self) -> int:
        """Elements of one rank's part."""
        return self.count // self.ranks

    def load(self, buffers: Buffers) -> None:
        """Write the pattern into the inputs."""
        if self.operation.input == "full":
            buffers.full[:] = self.pattern.of_rank(self.rank)
        elif self.operation.input == "part":
            buffers.part[:] = self.pattern.of_rank(self.rank, 0, self.share)

    def refill(self, buffers: Buffers) -> None:
        """Between timed iterations: keep sums in place from growing."""
        if self.operation.in_place_sum:
            buffers.full.fill(1)

    def spoil(self, buffers: Buffers) -> None:
        """Write a wrong value wherever the result is to appear."""
        for name in self.operation.outputs:
            getattr(buffers, name).fill(77)
        if self.operation.rooted and self.rank != 0:
            buffers.full.fill(77)

    def wrong_elements(self, buffers: Buffers, timed: bool = False) -> int:
        """Count elements that differ from the right result (`timed`: after the timed loop, whose sums start from 1)."""
        if timed and self.operation.in_place_sum:
            return int(np.count_nonzero(buffers.full != self.ranks))
        name, expected = self.operation.expected(self)
        return int(np.count_nonzero(getattr(buffers, name) != expected))


@dataclass(frozen=True)
class Operation:
    """A row: what the operation reads and writes, and what its cost is compared with.

    `bus` names the factor of metrics.bus_factor. `moved` gives the bytes that each rank must read or write at least,
    with every buffer mapped by every rank, from (size_bytes, ranks).
    """

    name: str
    input: str
    outputs: tuple[str, ...]
    bus: str
    moved: Callable[[int, int], float]
    expected: Callable[[Case], tuple[str, np.ndarray]]
    in_place_sum: bool = False
    rooted: bool = False
    sized: bool = True


def _expected_share_of_sum(case: Case) -> tuple[str, np.ndarray]:
    start = case.rank * case.share
    return "part", case.pattern.sum(start, start + case.share)


def _expected_gathered(case: Case) -> tuple[str, np.ndarray]:
    return "full", np.concatenate([case.pattern.of_rank(rank, 0, case.share) for rank in range(case.ranks)])


def _expected_exchanged(case: Case) -> tuple[str, np.ndarray]:
    start = case.rank * case.share
    parts = [case.pattern.of_rank(rank, start, start + case.share) for rank in range(case.ranks)]
    return "other", np.concatenate(parts)


# Bytes a rank of the zero-copy forms, n the vector, p the ranks: all_reduce reads p shares and writes p shares of n/p;
# reduce_scatter reads n and writes n/p; all_gather and all_to_all read n and write n; broadcast's readers likewise.
OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "all_reduce", "full", (), "reduce_and_gather", lambda n, p: 2 * n, lambda c: ("full", c.pattern.sum()), True
    ),
    Operation("reduce_scatter", "full", ("part",), "part", lambda n, p: n + n / p, _expected_share_of_sum),
    Operation("all_gather", "part", ("full",), "part", lambda n, p: 2 * n, _expected_gathered),
    Operation("all_to_all", "full", ("other",), "part", lambda n, p: 2 * n, _expected_exchanged),
    Operation(
        "broadcast", "full", (), "whole", lambda n, p: 2 * n, lambda c: ("full", c.pattern.of_rank(0)), rooted=True
    ),
    Operation("barrier", "none", (), "none", lambda n, p: 0, lambda c: ("part", np.empty(0, c.dtype)), sized=False),
)


def operation(name: str) -> Operation:
    """The row of an operation.

    Raises
    ------
    ValueError
        For an unknown name; the message lists the known ones.
    """
    for row in OPERATIONS:
        if row.name == name:
            return row
    raise ValueError(f"unknown operation {name!r}: choose from {', '.join(row.name for row in OPERATIONS)}")
