"""The collectives' contract as cases that a rank runs, and the plain reference that it compares with.

Values are small integers and halves, so that every sum, and every product, is exact in every dtype and in any order of
association: results must be equal, not close. Averages are divided in the accumulator's width and rounded once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from collectives import _core

FLOATS = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
HALVES = FLOATS[2:]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = {name: ops for name, _, ops in _core.dtype_table()}
LENGTHS = (0, 1, 13, 1021, 100_003)  # none, one, prime, prime over a line, larger than a staging chunk's share


def values(dtype: str, count: int, seed: str) -> torch.Tensor:
    """Return `count` exact values of a dtype, a function of the seed alone."""
    generator = np.random.default_rng(zlib.crc32(seed.encode()))
    if dtype == "bool":
        return torch.from_numpy(generator.random(count) < 0.5)
    if dtype in INTEGERS:
        low = 0 if dtype.startswith("u") else -3
        return torch.from_numpy(generator.integers(low, 4, count).astype(dtype))
    choices = np.array([-1.0, -0.5, 0.5, 1.0])
    if dtype.startswith("complex"):
        whole = generator.choice(choices, count) + 1j * generator.choice(choices, count)
        return torch.from_numpy(whole.astype(dtype))
    return torch.from_numpy(generator.choice(choices, count).astype(np.float32)).to(getattr(torch, dtype))


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Return the values in the accumulator's dtype: float32 for the narrow floats, else their own."""
    name = str(tensor.dtype).removeprefix("torch.")
    return tensor.float().numpy() if name in HALVES else tensor.numpy()


def from_numpy(array: np.ndarray, dtype: str) -> torch.Tensor:
    """Round an accumulated result to the dtype, once."""
    if dtype in HALVES:
        return torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)).to(getattr(torch, dtype))
    return torch.from_numpy(np.ascontiguousarray(array).astype(dtype))


_FOLDS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "sum": np.add,
    "avg": np.add,
    "premul_sum": np.add,
    "product": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}


def reduced(tensors: list[torch.Tensor], op: str) -> torch.Tensor:
    """Reduce the ranks' tensors with NumPy, left to right in rank order."""
    dtype = str(tensors[0].dtype).removeprefix("torch.")
    arrays = [to_numpy(tensor) for tensor in tensors]
    if op == "premul_sum":
        arrays = [to_numpy(from_numpy(array * array.dtype.type(factor_of(r)), dtype)) for r, array in enumerate(arrays)]
    total = arrays[0].copy()
    with np.errstate(over="ignore"):
        for array in arrays[1:]:
            total = _FOLDS[op](total, array)
    if op == "avg":
        parts = total.view(total.real.dtype)  # NumPy divides complex numbers by (n + 0i), which rounds differently
        parts /= parts.dtype.type(len(arrays))
    return from_numpy(total, dtype)


def factor_of(rank: int) -> float:
    """Return the factor of a rank in premul_sum; exact."""
    return (0.5, 1.0, 2.0, -1.0)[rank % 4]


def op_argument(op: str, rank: int) -> Any:
    """Return how a rank writes the operation in its call."""
    return (op, factor_of(rank)) if op == "premul_sum" else op


def as_argument(tensor: torch.Tensor, numpy: bool) -> Any:
    """Return a tensor itself or, where its dtype has one, the NumPy array of its memory."""
    return tensor.numpy() if numpy and str(tensor.dtype).removeprefix("torch.") not in HALVES[1:] else tensor


def bits(tensor: torch.Tensor) -> bytes:
    """Return the bytes of a tensor."""
    return tensor.contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


class Checks:
    """Runs cases on one rank and collects what was wrong, so that one process serves hundreds of them."""

    association_is_free = False

    def __init__(self, communicator: Any) -> None:
        self.comm = communicator
        self.rank = communicator.rank
        self.size = communicator.world_size
        self.wrong: list[str] = []
        self.count = 0

    def inputs(self, dtype: str, counts: list[int], label: str) -> list[torch.Tensor]:
        """Return every rank's input: all ranks can compute all."""
        return [values(dtype, count, f"{label}/{rank}") for rank, count in enumerate(counts)]

    def equal(self, label: str, got: torch.Tensor, wanted: torch.Tensor) -> None:
        """Record a case."""
        self.count += 1
        if self.association_is_free and got.is_complex():  # the sign of a zero depends on it
            got, wanted = got + 0, wanted + 0
        if bits(got) != bits(wanted):
            self.wrong.append(f"{label} on rank {self.rank}: got {got.flatten()[:8]}, wanted {wanted.flatten()[:8]}")

    def all_reduce(self, dtype: str, op: str, length: int, numpy: bool, out_of_place: bool) -> None:
        label = f"all_reduce {dtype} {op} {length}"
        tensors = self.inputs(dtype, [length] * self.size, label)
        mine, wanted = tensors[self.rank].clone(), reduced(tensors, op)
        if out_of_place:
            out = torch.zeros_like(mine)
            self.comm.all_reduce(as_argument(mine, numpy), op_argument(op, self.rank), out=as_argument(out, numpy))
            self.equal(label + " input", mine, tensors[self.rank])
        else:
            out = mine
            self.comm.all_reduce(as_argument(mine, numpy), op_argument(op, self.rank))
        self.equal(label, out, wanted)

    def reduce(self, dtype: str, op: str, length: int, root: int) -> None:
        label = f"reduce {dtype} {op} {length} to {root}"
        tensors = self.inputs(dtype, [length] * self.size, label)
        mine = tensors[self.rank].clone()
        result = self.comm.reduce(mine, root, op=op_argument(op, self.rank))
        self.equal(label, mine, reduced(tensors, op) if self.rank == root else tensors[self.rank])
        assert (result is mine) == (self.rank == root)

    def reduce_scatter(self, dtype: str, op: str, counts: list[int], uneven: bool) -> None:
        label = f"reduce_scatter {dtype} {op} {counts}"
        tensors = self.inputs(dtype, [sum(counts)] * self.size, label)
        start = sum(counts[: self.rank])
        out = torch.zeros_like(tensors[0][: counts[self.rank]])
        self.comm.reduce_scatter(out, tensors[self.rank], op_argument(op, self.rank), counts if uneven else None)
        self.equal(label, out, reduced(tensors, op)[start : start + counts[self.rank]])

    def all_gather(self, dtype: str, counts: list[int], uneven: bool) -> None:
        label = f"all_gather {dtype} {counts}"
        tensors = self.inputs(dtype, counts, label)
        out = torch.zeros(sum(counts), dtype=tensors[0].dtype)
        self.comm.all_gather(out, tensors[self.rank], counts if uneven else None)
        self.equal(label, out, torch.cat(tensors))

    def all_to_all(self, dtype: str, splits: list[list[int]], uneven: bool) -> None:
        """Check one exchange; splits[i][j] is what rank i sends to rank j."""
        label = f"all_to_all {dtype} {splits}"
        tensors = self.inputs(dtype, [sum(row) for row in splits], label)
        blocks = [tensor.split(row) for tensor, row in zip(tensors, splits, strict=True)]
        wanted = torch.cat([blocks[source][self.rank] for source in range(self.size)])
        out = torch.zeros_like(wanted)
        arriving = [splits[source][self.rank] for source in range(self.size)]
        if uneven:
            self.comm.all_to_all(out, tensors[self.rank], arriving, splits[self.rank])
        else:
            self.comm.all_to_all(out, tensors[self.rank])
        self.equal(label, out, wanted)

    def broadcast(self, dtype: str, length: int, root: int) -> None:
        label = f"broadcast {dtype} {length} from {root}"
        tensors = self.inputs(dtype, [length] * self.size, label)
        mine = tensors[self.rank].clone()
        self.comm.broadcast(mine, root=root)
        self.equal(label, mine, tensors[root])

    def gather(self, dtype: str, length: int, root: int) -> None:
        label = f"gather {dtype} {length} to {root}"
        tensors = self.inputs(dtype, [length] * self.size, label)
        out = torch.zeros(length * self.size, dtype=tensors[0].dtype) if self.rank == root else None
        self.comm.gather(out, tensors[self.rank], root=root)
        if out is not None:
            self.equal(label, out, torch.cat(tensors))

    def scatter(self, dtype: str, length: int, root: int) -> None:
        label = f"scatter {dtype} {length} from {root}"
        whole = values(dtype, length * self.size, label)
        out = torch.zeros(length, dtype=whole.dtype)
        self.comm.scatter(out, whole if self.rank == root else None, root=root)
        self.equal(label, out, whole[length * self.rank : length * (self.rank + 1)])
