"""The ranks of a run, whoever launched them: who am I, and the little coordination that the benchmark needs itself.

The control channel (MPI or gloo) is never the thing measured. Used by run.py, measure.py and the peers; includes
nothing of the benchmark.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np


class LaunchError(RuntimeError):
    """The script was started in a way that gives it no ranks; the message says how to start it."""


def launcher_of(environment: Mapping[str, str]) -> str:
    """`torchrun` or `mpirun`, by the variables that the launcher left.

    Raises
    ------
    LaunchError
        When neither left any.
    """
    if "RANK" in environment and "MASTER_ADDR" in environment and "WORLD_SIZE" in environment:
        return "torchrun"
    if any(name in environment for name in ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PMI_RANK")):
        return "mpirun"
    raise LaunchError(
        "no launcher's variables in the environment (RANK and MASTER_ADDR of torchrun, OMPI_COMM_WORLD_SIZE or "
        "PMI_SIZE of mpirun): start with 'mpirun -n 2 python bench/run.py' or "
        "'torchrun --nproc-per-node 2 bench/run.py'"
    )


def local_rank_of(environment: Mapping[str, str]) -> int:
    """Index among the ranks of this host, from the launcher's variables; 0 where none is set."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_RANK", "RANK"):
        if name in environment:
            return int(environment[name])
    return 0


class World(ABC):
    """The ranks. `launcher` is what started them."""

    rank: int
    size: int
    launcher: str

    @abstractmethod
    def maximum(self, values: np.ndarray) -> np.ndarray:
        """Element-wise maximum of float64 values over the ranks, on every rank."""

    @abstractmethod
    def gather(self, value: Any) -> list[Any]:
        """Every rank's (picklable) value, on every rank, in rank order."""

    @abstractmethod
    def quiet_barrier(self) -> None:
        """Wait for every rank without burning the core that a measurement elsewhere may need."""

    @abstractmethod
    def ensure_torch(self) -> None:
        """Make torch.distributed's default group exist (gloo), so that peers can make groups of their own."""

    def agree_maximum(self, value: float) -> float:
        """Maximum of one number over the ranks."""
        return float(self.maximum(np.array([value], np.float64))[0])

    def all_true(self, flag: bool) -> bool:
        """True when every rank says so."""
        return self.agree_maximum(0.0 if flag else 1.0) == 0.0

    @abstractmethod
    def close(self) -> None:
        """End the control channel."""


class MpiWorld(World):
    """Ranks that mpirun started; control over a duplicate of COMM_WORLD."""

    launcher = "mpirun"

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise LaunchError(f"under mpirun the benchmark needs mpi4py and its MPI library: {error}") from error
        self.mpi = MPI
        self._control = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._control.Get_rank(), self._control.Get_size()
        expected = int(environment.get("OMPI_COMM_WORLD_SIZE") or environment.get("PMI_SIZE") or self.size)
        if expected != self.size:
            raise LaunchError(
                f"mpirun started {expected} ranks but mpi4py's library ({MPI.Get_library_version().split(chr(10))[0]}) "
                f"sees {self.size}: mpirun and the library belong to different MPI installations; point "
                "MPI4PY_LIBMPI at the launcher's libmpi.so, or put that installation's bin first on PATH"
            )
        self._torch = False

    def maximum(self, values: np.ndarray) -> np.ndarray:
        result = np.array(values, np.float64)
        self._control.Allreduce(self.mpi.IN_PLACE, result, op=self.mpi.MAX)
        return result

    def gather(self, value: Any) -> list[Any]:
        return self._control.allgather(value)

    def quiet_barrier(self) -> None:
        request = self._control.Ibarrier()
        while not request.Test():
            time.sleep(0.0005)

    def ensure_torch(self) -> None:
        if self._torch:
            return
        import torch.distributed as dist

        one_host = len(set(self.gather(socket.gethostname()))) == 1
        address = "127.0.0.1" if one_host else self.gather(socket.gethostname())[0]
        store = None
        if self.rank == 0:
            # Port 0: the system picks a free one, and the others learn it over MPI.
            store = dist.TCPStore(address, 0, self.size, True, timedelta(seconds=60), wait_for_workers=False)
        port = self.gather(store.port if store else 0)[0]
        if store is None:
            store = dist.TCPStore(address, port, self.size, False, timedelta(seconds=60))
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size)
        self._torch = True

    def close(self) -> None:
        if self._torch:
            import torch.distributed as dist

            self.quiet_barrier()
            dist.destroy_process_group()


class TorchWorld(World):
    """Ranks that torchrun started; control over a gloo group."""

    launcher = "torchrun"

    def __init__(self) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo")
        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def maximum(self, values: np.ndarray) -> np.ndarray:
        import torch

        result = torch.from_numpy(np.array(values, np.float64))
        self._dist.all_reduce(result, op=self._dist.ReduceOp.MAX)
        return result.numpy()

    def gather(self, value: Any) -> list[Any]:
        values: list[Any] = [None] * self.size
        self._dist.all_gather_object(values, value)
        return values

    def quiet_barrier(self) -> None:
        self._dist.barrier()  # gloo waits on a condition variable

    def ensure_torch(self) -> None:
        """The default group is the control channel itself."""

    def close(self) -> None:
        self._dist.barrier()
        self._dist.destroy_process_group()


def connect(environment: Mapping[str, str] = os.environ) -> World:
    """The world of this process.

    Raises
    ------
    LaunchError
        When it was started by no known launcher, or by one that does not fit the MPI library.
    """
    return TorchWorld() if launcher_of(environment) == "torchrun" else MpiWorld(environment)
