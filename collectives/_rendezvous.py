"""Where the ranks of a job meet: what torchrun, mpirun and srun say in the environment, and mpi4py.

Knows nothing of the extension: what it returns is a torch store, or an object with ``all_gather`` and ``sub`` (see
:class:`MpiMeeting`). Used by :mod:`collectives.communicator`.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import re
import socket
import stat
import tempfile
import threading
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist

from collectives import config
from collectives.errors import CollectivesError, CollectiveTimeoutError

_CONNECT_SLICE_S = 0.5  # of one attempt to connect to a host that does not answer at all
_CONNECT_PAUSE_S = 0.05  # between two attempts where it answers that nobody listens
_LEAST_STORE_TIMEOUT_S = 1.0  # for torch to connect where somebody has just answered
_LONGEST_S = 1e8  # three years: no end; a timedelta cannot be infinite
_groups_made = 0  # stores are reused within a job: each group has its own prefix, counted alike on all ranks
_job_stores: dict[str, Any] = {}  # the meeting file of a job, by path


@dataclass(frozen=True)
class Launch:
    """What a launcher says: this process's index, the number of processes, and how to tell this job from others."""

    launcher: str
    rank: int
    world_size: int
    local_size: int | None  # ranks on this host, where the launcher says so
    job: str | None  # the same on all ranks, another for another job


@dataclass(frozen=True)
class _Launcher:
    name: str
    rank: str
    world_size: str
    local_size: str | None
    job: tuple[str, ...]


# In this order: srun's variables are also there when mpirun runs inside a Slurm allocation.
_LAUNCHERS = (
    _Launcher("mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
              ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")),
    _Launcher("mpirun (MPICH or Intel MPI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ("I_MPI_HYDRA_UUID",)),
    _Launcher("srun", "SLURM_PROCID", "SLURM_NTASKS", None, ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)  # fmt: skip


def from_environment(timeout: float, environ: Mapping[str, str] = os.environ) -> tuple[Any, int, int]:
    """Find the job's ranks.

    Parameters
    ----------
    timeout : float
        Seconds for the ranks to come.
    environ : mapping
        The environment to read.

    Returns
    -------
    tuple
        (store or meeting, rank, world size).

    Raises
    ------
    RuntimeError
        If there is no launcher, or no way to meet; the message says what was tried.
    CollectiveTimeoutError
        If nobody listened at the store's address in time.
    CollectivesError
        If the store could not be made for another reason.
    """
    tried: list[str] = []
    if {"RANK", "WORLD_SIZE"} <= environ.keys():
        launch = Launch("torchrun", int(environ["RANK"]), int(environ["WORLD_SIZE"]), None, None)
        if {"MASTER_ADDR", "MASTER_PORT"} <= environ.keys():
            address = (environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
            hosts = launch.rank == 0 and environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"  # else torchrun does
            # torchrun keeps its store over restarts, where some ranks may have made a group and others not.
            attempt = environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            store = _prefixed(_tcp_store(*address, launch, timeout, hosts=hosts), attempt)
            return store, launch.rank, launch.world_size
        tried.append("torchrun's store: RANK and WORLD_SIZE are set, but MASTER_ADDR or MASTER_PORT is not")
    else:
        tried.append("torchrun: RANK and WORLD_SIZE are not set")
        found = find_launch(environ)
        if found is None:
            tried.append("mpirun and srun: none of " + ", ".join(row.rank for row in _LAUNCHERS) + " is set")
            raise RuntimeError(_no_way(tried))
        launch = found
        tried.append(f"{launch.launcher}: rank {launch.rank} of {launch.world_size}")
    meeting = _meeting_of(launch, timeout, environ, tried)
    if meeting is None:
        raise RuntimeError(_no_way(tried))
    return meeting, launch.rank, launch.world_size


def find_launch(environ: Mapping[str, str]) -> Launch | None:
    """Return what mpirun or srun says about this process; None where it was started by neither."""
    for row in _LAUNCHERS:
        if row.rank in environ and row.world_size in environ:
            local = environ.get(row.local_size) if row.local_size else None
            if row.name == "srun" and environ.get("SLURM_STEP_NUM_NODES", environ.get("SLURM_NNODES")) == "1":
                local = environ[row.world_size]
            return Launch(row.name, int(environ[row.rank]), int(environ[row.world_size]), int(local) if local else None,
                          _job_of(row, environ))  # fmt: skip
    return None


def _job_of(row: _Launcher, environ: Mapping[str, str]) -> str | None:
    """The job's id from the launcher's variables; where it has none (MPICH), the launcher's process, our parent."""
    ids = [environ[name] for name in row.job if name in environ]
    if not ids:
        started = _start_time(os.getppid())
        return None if started is None else f"parent-{os.getppid()}-{started}"
    # Open MPI's id holds the launcher's pid, which another launcher may get later: its start time tells them apart.
    pid = re.search(r"-([0-9]+)@", ids[0])
    started = _start_time(int(pid.group(1))) if pid else None
    return "-".join([*ids, started or ""])


def _start_time(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None where there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def _meeting_of(launch: Launch, timeout: float, environ: Mapping[str, str], tried: list[str]) -> Any:
    address = config.STORE.read(environ)
    if address is None and {"MASTER_ADDR", "MASTER_PORT"} <= environ.keys():
        address = (environ["MASTER_ADDR"], int(environ["MASTER_PORT"]))
    if address is not None:
        return _prefixed(_tcp_store(*address, launch, timeout, hosts=launch.rank == 0))
    tried.append("COLLECTIVES_STORE, and MASTER_ADDR with MASTER_PORT: not set")
    if launch.world_size == 1:
        return _prefixed(dist.HashStore())
    comm = _mpi_world(launch, tried)
    if comm is not None:
        return MpiMeeting(comm)
    path = _job_file(launch, tried)
    if path is not None:
        # One for the life of the process: the last user's end deletes the file, and a rank that had just opened it
        # again for a second communicator would read for ever (torch 2.13).
        if path not in _job_stores:
            _job_stores[path] = dist.FileStore(path, launch.world_size)
        store = _job_stores[path]
        store.set_timeout(_delta(timeout))
        return _prefixed(store)
    return None


def _prefixed(store: Any, attempt: str = "0") -> Any:
    global _groups_made
    _groups_made += 1
    return dist.PrefixStore(f"collectives/from_env/{attempt}/{_groups_made}", store)


def _delta(seconds: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=min(seconds, _LONGEST_S))


def _tcp_store(host: str, port: int, launch: Launch, timeout: float, *, hosts: bool) -> Any:
    """Make torch's own store at an address, within the timeout and with an ear for signals.

    torch's constructor has neither: it tries twice as long as it is told, and for ever where something else than a
    store listens. So it is called once somebody listens, and on a thread of its own.
    """
    deadline = time.monotonic() + timeout
    if not hosts:
        _wait_for_listener(host, port, launch, deadline, timeout)
    made: list[Any] = []

    def make() -> None:
        left_s = max(deadline - time.monotonic(), _LEAST_STORE_TIMEOUT_S)
        try:
            made.append(
                dist.TCPStore(
                    host,
                    port,
                    launch.world_size,
                    is_master=hosts,
                    timeout=_delta(left_s),
                    wait_for_workers=False,
                    multi_tenant=True,
                )
            )
        except Exception as error:
            made.append(error)

    maker = threading.Thread(target=make, name="collectives-store", daemon=True)
    maker.start()
    end = max(deadline, time.monotonic() + _LEAST_STORE_TIMEOUT_S)
    while not made and time.monotonic() < end:
        maker.join(min(_CONNECT_SLICE_S, max(0.0, end - time.monotonic())))
    what = f"Communicator.from_env: rank {launch.rank} of {launch.world_size}"
    if not made:
        raise CollectiveTimeoutError(
            f"{what} waited {timeout:g} s for the job's store at {host}:{port}: something listens there, but does not "
            "answer as a store of torch does; the address is another program's, or rank 0 is stopped"
        )
    if isinstance(made[0], Exception):
        doing = "listen on" if hosts else "connect to the store at"
        raise CollectivesError(f"{what} could not {doing} {host}:{port}: {made[0]}") from made[0]
    return made[0]


def _wait_for_listener(host: str, port: int, launch: Launch, deadline: float, timeout: float) -> None:
    """Try to connect until somebody answers; in short slices, between which signals are handled."""
    while True:
        left_s = deadline - time.monotonic()
        try:
            with socket.create_connection((host, port), timeout=max(min(left_s, _CONNECT_SLICE_S), 0.001)):
                return
        except OSError as error:
            if left_s <= 0:
                raise CollectiveTimeoutError(
                    f"Communicator.from_env: rank {launch.rank} of {launch.world_size} waited {timeout:g} s for the "
                    f"job's store at {host}:{port}, where rank 0 (under torchrun: its agent) listens: {error}. Rank 0 "
                    "has not started, has ended, or the address is wrong"
                ) from None
        time.sleep(max(0.0, min(_CONNECT_PAUSE_S, deadline - time.monotonic())))


def _mpi_world(launch: Launch, tried: list[str]) -> Any:
    """MPI.COMM_WORLD where mpi4py is there and belongs to the MPI that started us."""
    try:
        from mpi4py import MPI
    except Exception as error:  # a RuntimeError where libmpi is missing
        tried.append(f"mpi4py: {type(error).__name__}: {error}")
        return None
    if MPI.COMM_WORLD.Get_size() == launch.world_size:
        return MPI.COMM_WORLD
    tried.append(
        f"mpi4py: it sees {MPI.COMM_WORLD.Get_size()} ranks, not {launch.world_size}: it is linked to another MPI than "
        f"the one that started this process ({MPI.Get_library_version().splitlines()[0]})"
    )
    return None


def _job_file(launch: Launch, tried: list[str]) -> str | None:
    """The path of a file store that only this user's processes of this job know; None, with the reason, if unsafe."""
    if launch.local_size != launch.world_size:
        where = "an unknown number" if launch.local_size is None else str(launch.local_size)
        tried.append(f"a file of this host: {where} of the {launch.world_size} ranks are on it")
        return None
    if launch.job is None:
        tried.append("a file of this host: the launcher gives the job no id")
        return None
    directory = os.path.join(tempfile.gettempdir(), f"collectives-{os.getuid()}")
    os.makedirs(directory, mode=0o700, exist_ok=True)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        tried.append(f"a file of this host: {directory} is not a directory of this user alone (mode 700)")
        return None
    return os.path.join(directory, hashlib.sha256(launch.job.encode()).hexdigest()[:32])


def _no_way(tried: list[str]) -> str:
    lines = "\n".join(f"  - {line}" for line in tried)
    return (
        "Communicator.from_env: the ranks of the job have no way to meet. Start the program with torchrun, mpirun or "
        f"srun, or set RANK, WORLD_SIZE and COLLECTIVES_STORE=host:port (rank 0 listens there). Tried:\n{lines}"
    )


class MpiMeeting:
    """The rounds in which the ranks of a new group find each other, over an mpi4py communicator.

    Non-blocking MPI calls that are polled, so that a round has a deadline and Ctrl-C works in it.
    """

    def __init__(self, comm: Any, *, duplicate: bool = True) -> None:
        self._comm = comm.Dup() if duplicate else comm

    def all_gather(self, mine: bytes, timeout: float) -> list[bytes]:
        """Give every rank's bytes to every rank, in rank order.

        Raises
        ------
        TimeoutError
            If not all ranks made the call within `timeout` seconds.
        """
        size = self._comm.Get_size()
        deadline = time.monotonic() + timeout
        lengths = array("q", [0] * size)
        self._finish(self._comm.Iallgather(array("q", [len(mine)]), lengths), deadline, timeout)
        counts = list(lengths)
        starts = [sum(counts[:i]) for i in range(size)]
        gathered = bytearray(sum(counts))
        from mpi4py import MPI

        request = self._comm.Iallgatherv([mine, len(mine), MPI.BYTE], [gathered, counts, starts, MPI.BYTE])
        self._finish(request, deadline, timeout)
        return [bytes(gathered[start : start + count]) for start, count in zip(starts, counts, strict=True)]

    def sub(self, name: str, ranks: list[int]) -> MpiMeeting:
        """Return the meeting of some of the ranks, in the given order; only they make this call."""
        group = self._comm.Get_group()
        some = group.Incl(ranks)
        tag = int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") & 0x7FFF  # MPI's least upper bound
        try:
            return MpiMeeting(self._comm.Create_group(some, tag), duplicate=False)
        finally:
            some.Free()
            group.Free()

    def _finish(self, request: Any, deadline: float, timeout: float) -> None:
        pause_s = 1e-6
        while not request.Test():
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"the {self._comm.Get_size()} ranks of the MPI communicator did not all come within {timeout:g} s; "
                    "MPI does not say which are missing"
                )
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, 1e-3)
