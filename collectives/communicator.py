"""``collectives.Communicator``: collectives on NumPy arrays and torch CPU tensors without torch.distributed.

The methods that move data are C functions of :class:`collectives._core.Communicator` (their documentation is in
``_core.pyi``); here are the ways to make a communicator.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import collectives._core as _core
from collectives import _rendezvous, config, log

if TYPE_CHECKING:
    from torch.distributed import Store


def _checked_seconds(timeout: float) -> float:
    if math.isnan(timeout) or timeout < 0:
        raise ValueError(f"timeout: must be at least 0 seconds, got {timeout!r}")
    return float(timeout)


class Communicator(_core.Communicator):
    """A group of ranks. Made with :meth:`from_env`, :meth:`from_mpi` or :meth:`from_store`, never directly.

    Every method that waits takes a `timeout` in seconds, counted from the call: None is the group's (the property
    `timeout`), 0 fails unless the call can end at once, ``math.inf`` is no deadline, negative is a ValueError. A
    deadline that passes is a CollectiveTimeoutError, after which the group has failed.

    Ends with :meth:`close`, or as a context manager; leaving the block with an exception aborts the group, so that
    peers raise at once instead of waiting for their deadline.
    """

    __slots__ = ()

    @classmethod
    def from_env(cls, *, timeout: float | None = None, **options: Any) -> Self:
        """Join the group of all ranks of the job, as torchrun, mpirun or srun describe it in the environment.

        torchrun: through its store. mpirun and srun: through `COLLECTIVES_STORE` or `MASTER_ADDR` and `MASTER_PORT`
        where given, else through mpi4py where it can be imported, else, on one host, through a file that is named by
        the job's id.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait for the other ranks, and the default of the group's operations; at least 0, or
            ``math.inf``; by default `COLLECTIVES_TIMEOUT_S`.
        **options
            As for :meth:`from_store`.

        Raises
        ------
        RuntimeError
            If there is no launcher, or its ranks have no way to meet; the message says what was tried.
        CollectiveTimeoutError
            If a rank did not come; the message names it.
        """
        seconds = config.TIMEOUT_S.read() if timeout is None else _checked_seconds(timeout)
        deadline = time.monotonic() + seconds
        meeting, rank, world_size = _rendezvous.from_environment(seconds)
        left = max(0.0, deadline - time.monotonic())  # the ranks have one timeout to come, not one for each step
        communicator = cls._create(meeting, rank, world_size, timeout=left, **options)
        communicator.timeout = seconds
        return communicator

    @classmethod
    def from_mpi(cls, comm: Any, *, timeout: float | None = None, **options: Any) -> Self:
        """Join a group of the ranks of an mpi4py communicator, with the same numbers.

        MPI serves only to meet, over a duplicate of the communicator that lasts until MPI ends.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm
            All of its ranks must make this call.
        timeout : float, optional
            As for :meth:`from_env`.
        **options
            As for :meth:`from_store`.
        """
        meeting = _rendezvous.MpiMeeting(comm)
        return cls._create(meeting, comm.Get_rank(), comm.Get_size(), timeout=timeout, **options)

    @classmethod
    def from_store(
        cls, store: Store, rank: int, world_size: int, *, timeout: float | None = None, **options: Any
    ) -> Self:
        """Join a group whose ranks meet in a torch store (TCPStore, FileStore, PrefixStore, ...).

        Parameters
        ----------
        store : torch.distributed.Store
            The same one, with the same prefix, on all ranks. It must stay reachable while groups are made of this one.
        rank, world_size : int
            This process's index in the group, and the group's size.
        timeout : float, optional
            Seconds to wait for the other ranks, and the default of the group's operations; at least 0, or
            ``math.inf``; by default `COLLECTIVES_TIMEOUT_S`.
        **options
            name : str, for errors (by default "world"); transports : list of str, those allowed, in order of
            preference; algorithm : str, one to use wherever it applies; deterministic : bool, the same bits whatever
            the layout of hosts.

        Raises
        ------
        ValueError
            If rank, size or an option makes no sense.
        CollectiveTimeoutError
            If a rank did not come; the message names it.
        MismatchError
            If the ranks run different versions of the library.
        """
        return cls._create(store, rank, world_size, timeout=timeout, **options)

    @classmethod
    def _create(
        cls,
        meeting: Any,
        rank: int,
        world_size: int,
        *,
        timeout: float | None,
        name: str = "world",
        transports: Sequence[str] = (),
        algorithm: str = "",
        deterministic: bool = False,
    ) -> Self:
        log.configure()
        return _core.create_communicator(
            cls,
            meeting,
            rank,
            world_size,
            name=name,
            timeout=config.TIMEOUT_S.read() if timeout is None else timeout,
            transports=list(transports),
            algorithm=algorithm,
            deterministic=deterministic,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort(f"rank {self.rank} left the group with {type(error).__name__}: {error}")
        self.close()
