"""Random operations of a communicator, each checked against NumPy. Drawn from (seed, index), the same on every rank.

The values are small integers, so that every reduction is exact in every dtype and order, and results compare equal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

FLOATS = ("float64", "float32", "float16")
DTYPES = (*FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "complex64")
ORDERED = tuple(name for name in DTYPES if not name.startswith("complex"))
COUNTS = (0, 1, 2, 7, 64, 1009, 4096, 65537, 400_000)
REDUCERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda stack: stack.sum(axis=0, dtype=stack.dtype),
    "product": lambda stack: stack.prod(axis=0, dtype=stack.dtype),
    "min": lambda stack: stack.min(axis=0),
    "max": lambda stack: stack.max(axis=0),
}

Finish = Callable[[], None]


@dataclass(frozen=True)
class Draw:
    """What all ranks know of one operation: where its random numbers come from."""

    seed: int
    index: int
    rank: int
    world_size: int

    def common(self) -> np.random.Generator:
        """Return the generator of everything that ranks must agree on."""
        return np.random.default_rng([self.seed, self.index])

    def data(self, rank: int, count: int, dtype: str) -> np.ndarray:
        """Return one rank's input: values 0 to 3."""
        rng = np.random.default_rng([self.seed, self.index, 1 + rank])
        return rng.integers(0, 4, count).astype(dtype)

    def all_data(self, count: int, dtype: str) -> np.ndarray:
        """Return the inputs of all ranks, one a row."""
        return np.stack([self.data(rank, count, dtype) for rank in range(self.world_size)])


def check(draw: Draw, name: str, actual: np.ndarray, expected: np.ndarray, detail: str) -> None:
    """Raise AssertionError with the place of the first difference."""
    if np.array_equal(actual, expected):
        return
    where = int(np.flatnonzero(actual != expected)[0])
    raise AssertionError(
        f"rank {draw.rank} of {draw.world_size}: operation {draw.index} of seed {draw.seed}, {name} ({detail}): "
        f"element {where} of {actual.size} is {actual[where]}, not {expected[where]}"
    )


def all_reduce(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start an all_reduce, in place or not."""
    op, dtype, count = _reduction(rng)
    inputs = draw.all_data(count, dtype)
    if op == "product":
        inputs = np.minimum(inputs.real, 2).astype(dtype)  # 2**8 still is exact in every dtype, modulo its width
    mine = inputs[draw.rank].copy()
    out = np.empty_like(mine) if rng.random() < 0.5 else None
    request = comm.all_reduce(mine, op, out=out, async_op=asynchronous)
    expected = REDUCERS[op](inputs)
    return _finish(request, asynchronous, lambda: check(draw, "all_reduce", mine if out is None else out, expected, op))


def reduce_scatter(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a reduce_scatter with uneven counts."""
    _, dtype, count = _reduction(rng)
    counts = _split(rng, count, draw.world_size)
    inputs = draw.all_data(count, dtype)
    out = np.empty(counts[draw.rank], dtype)
    request = comm.reduce_scatter(out, inputs[draw.rank], "sum", counts, async_op=asynchronous)
    start = sum(counts[: draw.rank])
    expected = REDUCERS["sum"](inputs)[start : start + out.size]
    return _finish(request, asynchronous, lambda: check(draw, "reduce_scatter", out, expected, f"{dtype} {counts}"))


def all_gather(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start an all_gather with uneven counts."""
    dtype, count = _any(rng)
    counts = _split(rng, count, draw.world_size)
    parts = [draw.data(rank, size, dtype) for rank, size in enumerate(counts)]
    out = np.empty(count, dtype)
    request = comm.all_gather(out, parts[draw.rank], counts, async_op=asynchronous)
    expected = np.concatenate(parts)
    return _finish(request, asynchronous, lambda: check(draw, "all_gather", out, expected, f"{dtype} {counts}"))


def all_to_all(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start an all_to_all with uneven splits."""
    dtype, count = _any(rng)
    splits = [_split(rng, count, draw.world_size) for _ in range(draw.world_size)]
    inputs = [draw.data(rank, count, dtype) for rank in range(draw.world_size)]
    blocks = [np.split(inputs[rank], np.cumsum(splits[rank])[:-1])[draw.rank] for rank in range(draw.world_size)]
    expected = np.concatenate(blocks)
    out = np.empty(expected.size, dtype)
    request = comm.all_to_all(
        out, inputs[draw.rank], [block.size for block in blocks], splits[draw.rank], async_op=asynchronous
    )
    return _finish(request, asynchronous, lambda: check(draw, "all_to_all", out, expected, f"{dtype} {splits}"))


def broadcast(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a broadcast, now and then of a strided array."""
    dtype, count = _any(rng)
    root = int(rng.integers(draw.world_size))
    whole = np.zeros(2 * count, dtype)
    mine = whole[::2] if rng.random() < 0.3 and not asynchronous else np.zeros(count, dtype)
    expected = draw.data(root, count, dtype)
    if draw.rank == root:
        mine[...] = expected
    request = comm.broadcast(mine, root, async_op=asynchronous)
    return _finish(request, asynchronous, lambda: check(draw, "broadcast", mine, expected, f"{dtype} from {root}"))


def reduce(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a reduce to a random root."""
    _, dtype, count = _reduction(rng)
    root = int(rng.integers(draw.world_size))
    inputs = draw.all_data(count, dtype)
    out = np.empty(count, dtype) if draw.rank == root else None
    request = comm.reduce(inputs[draw.rank], root, "sum", out, async_op=asynchronous)
    expected = REDUCERS["sum"](inputs)

    def verify() -> None:
        if out is not None:
            check(draw, "reduce", out, expected, f"{dtype} to {root}")

    return _finish(request, asynchronous, verify)


def gather(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a gather to a random root."""
    dtype, count = _any(rng)
    count //= draw.world_size
    root = int(rng.integers(draw.world_size))
    out = np.empty(count * draw.world_size, dtype) if draw.rank == root else None
    request = comm.gather(out, draw.data(draw.rank, count, dtype), root, async_op=asynchronous)
    expected = draw.all_data(count, dtype).reshape(-1)

    def verify() -> None:
        if out is not None:
            check(draw, "gather", out, expected, f"{dtype} to {root}")

    return _finish(request, asynchronous, verify)


def scatter(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a scatter from a random root."""
    dtype, count = _any(rng)
    count //= draw.world_size
    root = int(rng.integers(draw.world_size))
    whole = draw.data(root, count * draw.world_size, dtype)
    out = np.empty(count, dtype)
    request = comm.scatter(out, whole if draw.rank == root else None, root, async_op=asynchronous)
    expected = whole[draw.rank * count : (draw.rank + 1) * count]
    return _finish(request, asynchronous, lambda: check(draw, "scatter", out, expected, f"{dtype} from {root}"))


def messages(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Send to the next rank and receive from the one before, several tags at once."""
    sizes = [int(size) for size in rng.choice(COUNTS[:-1], 3)]
    receive_first = rng.random() < 0.5
    following, previous = (draw.rank + 1) % draw.world_size, (draw.rank - 1) % draw.world_size
    outgoing = [draw.data(draw.rank, size, "float32") for size in sizes]
    incoming = [np.empty(size, "float32") for size in sizes]

    def post_receives() -> list[Any]:
        return [comm.recv(array, previous, tag, async_op=True) for tag, array in reversed(list(enumerate(incoming)))]

    requests = post_receives() if receive_first else []
    requests += [comm.send(array, following, tag, async_op=True) for tag, array in enumerate(outgoing)]
    requests += [] if receive_first else post_receives()

    def verify() -> None:
        for request in requests:
            request.wait()
        for array, size in zip(incoming, sizes, strict=True):
            check(draw, "send/recv", array, draw.data(previous, size, "float32"), f"{sizes} from {previous}")

    return verify


def barrier(comm: Any, draw: Draw, rng: np.random.Generator, asynchronous: bool) -> Finish:
    """Start a barrier."""
    request = comm.barrier(async_op=asynchronous)
    return _finish(request, asynchronous, lambda: None)


OPERATIONS = (
    all_reduce, reduce_scatter, all_gather, all_to_all, broadcast, reduce, gather, scatter, messages, barrier
)  # fmt: skip


def start(comm: Any, draw: Draw) -> Finish:
    """Start the operation of this draw; calling what it returns waits for it and checks its result."""
    rng = draw.common()
    operation = OPERATIONS[int(rng.integers(len(OPERATIONS)))]
    asynchronous = bool(rng.random() < 0.4)
    return operation(comm, draw, rng, asynchronous)


def _reduction(rng: np.random.Generator) -> tuple[str, str, int]:
    op = str(rng.choice(list(REDUCERS)))
    dtypes = DTYPES if op in ("sum", "product") else ORDERED
    return op, str(rng.choice(dtypes)), int(rng.choice(COUNTS))


def _any(rng: np.random.Generator) -> tuple[str, int]:
    return str(rng.choice(DTYPES)), int(rng.choice(COUNTS))


def _split(rng: np.random.Generator, count: int, parts: int) -> list[int]:
    """Cut a count into parts, some of them empty."""
    cuts = np.sort(rng.integers(0, count + 1, parts - 1))
    return [int(size) for size in np.diff([0, *cuts, count])]


def _finish(request: Any, asynchronous: bool, verify: Finish) -> Finish:
    def finish() -> None:
        if asynchronous:
            request.wait()
        verify()

    return finish
