"""Peer `mpi`: the MPI library that mpirun belongs to, through mpi4py on NumPy buffers. A row of peers/__init__.py."""

from __future__ import annotations

from typing import Any

from bench.cases import Buffers
from bench.peers.base import Call, Peer, PeerUnavailableError
from bench.world import MpiWorld, World


class Mpi(Peer):
    """Blocking MPI collectives, MPI_IN_PLACE for all_reduce."""

    name = "mpi"

    def start(self, world: World) -> str:
        if not isinstance(world, MpiWorld):
            raise PeerUnavailableError(f"the ranks were started by {world.launcher}, not by mpirun")
        self._mpi: Any = world.mpi
        self._comm = self._mpi.COMM_WORLD
        return str(self._mpi.Get_library_version()).split("\n")[0].split(",")[0].strip("\0 ")

    def bind(self, operation: str, buffers: Buffers) -> Call:
        comm, in_place, full, part, other = self._comm, self._mpi.IN_PLACE, buffers.full, buffers.part, buffers.other
        if full.dtype.name == "float16":
            raise PeerUnavailableError("MPI has no float16")
        calls: dict[str, Call] = {
            "all_reduce": lambda: comm.Allreduce(in_place, full),
            "reduce_scatter": lambda: comm.Reduce_scatter_block(full, part),
            "all_gather": lambda: comm.Allgather(part, full),
            "all_to_all": lambda: comm.Alltoall(full, other),
            "broadcast": lambda: comm.Bcast(full, 0),
            "barrier": comm.Barrier,
        }
        if operation not in calls:
            raise PeerUnavailableError(f"mpi has no {operation} here")
        return calls[operation]

    def barrier(self) -> None:
        self._comm.Barrier()

    def stop(self) -> None:
        """COMM_WORLD lives as long as the process."""
