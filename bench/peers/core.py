"""Peers `core` and `core_zero_copy`: collectives.Communicator, on plain NumPy arrays and in its own shared memory.

Rows of peers/__init__.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.cases import Buffers
from bench.peers.base import Call, Peer, PeerUnavailableError
from bench.world import MpiWorld, World


class Core(Peer):
    """The library without torch.distributed in between, staged through shared memory."""

    name = "core"

    def start(self, world: World) -> str:
        try:
            import collectives
        except ImportError as error:
            raise PeerUnavailableError(f"import collectives: {error}") from error
        if not hasattr(collectives, "Communicator"):
            raise PeerUnavailableError("this build of collectives has no Communicator yet")
        self._library: Any = collectives
        if isinstance(world, MpiWorld):
            self._comm = collectives.Communicator.from_mpi(world.mpi.COMM_WORLD)
        else:
            self._comm = collectives.Communicator.from_env()
        return f"collectives {collectives.__version__}"

    def bind(self, operation: str, buffers: Buffers) -> Call:
        comm, full, part, other = self._comm, buffers.full, buffers.part, buffers.other
        calls: dict[str, Call] = {
            "all_reduce": lambda: comm.all_reduce(full),
            "reduce_scatter": lambda: comm.reduce_scatter(part, full),
            "all_gather": lambda: comm.all_gather(full, part),
            "all_to_all": lambda: comm.all_to_all(other, full),
            "broadcast": lambda: comm.broadcast(full, root=0),
            "barrier": comm.barrier,
        }
        if operation not in calls:
            raise PeerUnavailableError(f"{self.name} has no {operation} here")
        return calls[operation]

    def barrier(self) -> None:
        self._comm.barrier()

    def stop(self) -> None:
        self._comm.close()


class CoreZeroCopy(Core):
    """The same calls on arrays in shared registered memory (collectives.empty): no staging copy."""

    name = "core_zero_copy"
    own_memory = True

    def start(self, world: World) -> str:
        version = super().start(world)
        if not hasattr(self._library, "empty"):
            super().stop()
            raise PeerUnavailableError("this build of collectives has no empty()")
        # The peer binds the tensor that it allocated, found again by its address: a NumPy view knows nothing of it.
        self._tensors: dict[int, Any] = {}
        return version

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray:
        import torch

        tensor = self._library.empty((count,), dtype=getattr(torch, dtype.name))
        array: np.ndarray = tensor.numpy()
        array.fill(1)
        self._tensors[array.ctypes.data] = tensor
        return array

    def bind(self, operation: str, buffers: Buffers) -> Call:
        own = [self._tensors[a.ctypes.data] for a in (buffers.full, buffers.part, buffers.other)]
        self._tensors.clear()
        return super().bind(operation, Buffers(*own))
