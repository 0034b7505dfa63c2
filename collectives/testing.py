"""Run a function on several ranks, as real processes, from a test.

``run_ranks(fn, 3)`` calls ``fn(rank, 3)`` in three processes that share nothing but the file system, and returns their
results. A process starts in a few hundredths of a second: all are forked from one server, which has imported torch
(and the module of ``fn``) and done nothing else (:mod:`collectives._rank_server`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from collectives import _rank_server

if TYPE_CHECKING:
    from collectives.communicator import Communicator

_GRACE_S = 20.0  # for the other ranks, once one has failed
_STACKS_S = 1.0  # for the stacks to be written, before a rank that hangs is killed
_SERVER_START_S = 120.0  # it imports torch


class RanksFailed(AssertionError):
    """Some ranks raised, died, or did not end in time.

    Attributes
    ----------
    errors : dict
        Rank -> the exception it raised, or None where it died or hung.
    """

    def __init__(self, message: str, errors: dict[int, BaseException | None]) -> None:
        super().__init__(message)
        self.errors = errors


def run_ranks(
    fn: Callable[..., Any],
    world_size: int,
    *args: Any,
    timeout: float = 60,
    backend: str | None = "collectives",
    env: Mapping[str, str] | None = None,
    expect_killed: Collection[int] = (),
) -> list[Any]:
    """Run ``fn(rank, world_size, *args)`` in one process a rank.

    Parameters
    ----------
    fn : callable
        A function of a module, so that the processes can find it.
    world_size : int
        The number of processes.
    *args
        Further arguments, pickled.
    timeout : float
        Seconds for everything. Then the stacks of all threads of the ranks that still run are collected, and the
        ranks killed. It is the timeout of the process group, too.
    backend : str or None
        ``torch.distributed`` is initialised with it, and its group destroyed after ``fn`` returned. With None, ``fn``
        can call :func:`communicator` or :func:`init_process_group`, and nothing is destroyed for it.
    env : mapping, optional
        Set in the processes, after torch was imported.
    expect_killed : collection of int
        Ranks that end by a signal, as they should; their result is None.

    Returns
    -------
    list
        What ``fn`` returned, in rank order.

    Raises
    ------
    RanksFailed
        If a rank raised (the message has its traceback and what it printed), ended otherwise than it should, or was
        not done in time (the message has its stacks).
    """
    directory = tempfile.mkdtemp(prefix="collectives-ranks-")
    try:
        job = _rank_server.Job(
            directory=directory,
            call=_pickle_call(fn, args),
            world_size=world_size,
            timeout=timeout,
            backend=backend,
            env=dict(env or {}),
            sys_path=list(sys.path),
            working_directory=os.getcwd(),
            main_path=_main_path(fn),
        )
        run = _Run(_server(), job, frozenset(expect_killed))
        run.wait()
        return run.results()
    except RanksFailed:
        raise
    except BaseException:
        _end_server()  # its messages about these ranks must not meet the next run
        raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def communicator(**options: Any) -> Communicator:
    """Make the communicator of all ranks; for functions under :func:`run_ranks`.

    ``options`` are those of :meth:`collectives.Communicator.from_store`.
    """
    from collectives.communicator import Communicator

    rank, world_size, timeout = _rank_server.current()
    options.setdefault("timeout", timeout)
    return Communicator.from_store(_rank_server.store("communicator"), rank, world_size, **options)


def init_process_group(backend: str = "collectives", **options: Any) -> None:
    """Initialise ``torch.distributed``; for functions under :func:`run_ranks` with ``backend=None``."""
    rank, world_size, timeout = _rank_server.current()
    _rank_server.init_process_group(backend, rank, world_size, timeout, **options)


def _pickle_call(fn: Callable[..., Any], args: tuple[Any, ...]) -> bytes:
    try:
        return pickle.dumps((fn, args))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ValueError(
            f"run_ranks: {getattr(fn, '__qualname__', fn)!r} and its arguments must be picklable (a function of a "
            f"module, not a lambda or a function within one): {error}"
        ) from None


def _main_path(fn: Callable[..., Any]) -> str | None:
    """The file of ``__main__``, where the function is defined in it."""
    if fn.__module__ != "__main__":
        return None
    path = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise ValueError("run_ranks: a function typed into an interpreter cannot be found by other processes")
    return os.path.abspath(path)


class _Server:
    """The process that all ranks are forked from, and the socket to it."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        code = f"import sys; sys.path[:] = {sys.path!r}; from collectives import _rank_server; _rank_server.main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=environ,
            start_new_session=True,
        )
        theirs.close()
        self.owner = os.getpid()
        self.socket.settimeout(_SERVER_START_S)
        _rank_server.receive(self.socket)  # "ready"

    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.socket.close()
        if self.owner != os.getpid():
            return  # a forked child must not wait for its parent's server
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


_the_server: _Server | None = None


def _server() -> _Server:
    global _the_server
    if _the_server is None or not _the_server.alive():
        _the_server = _Server()
        atexit.register(_the_server.close)
    return _the_server


def _end_server() -> None:
    global _the_server
    if _the_server is not None:
        _the_server.close()
        _the_server = None


class _Run:
    """One call of :func:`run_ranks`."""

    def __init__(self, server: _Server, job: _rank_server.Job, expect_killed: frozenset[int]) -> None:
        self.server = server
        self.job = job
        self.expect_killed = expect_killed
        self.statuses: dict[int, int] = {}  # rank -> exit status as waitpid gives it
        self.hung: set[int] = set()
        self.deadline = time.monotonic() + job.timeout
        _rank_server.send(server.socket, job)
        server.socket.settimeout(job.timeout)
        started = _rank_server.receive(server.socket)
        if isinstance(started, str):
            raise RanksFailed(f"run_ranks: the function could not be loaded\n{started}", {})
        self.pids: list[int] = started

    def wait(self) -> None:
        """Return when every rank has ended, by itself or by force."""
        try:
            while len(self.statuses) < len(self.pids):
                if not self._collect(self.deadline):
                    self._end_those_that_hang()
        finally:
            self._kill_all()

    def _collect(self, deadline: float) -> bool:
        """Take the next exit of a rank; False if there was none before the deadline."""
        self.server.socket.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            pid, status = _rank_server.receive(self.server.socket)
        except TimeoutError:
            return False
        rank = self.pids.index(pid)
        self.statuses[rank] = status
        failed = status != 0 and rank not in self.expect_killed
        if failed:
            self.deadline = min(self.deadline, time.monotonic() + _GRACE_S)
        return True

    def _end_those_that_hang(self) -> None:
        self.hung |= set(range(len(self.pids))) - self.statuses.keys()
        for rank in self.hung:
            for number in (signal.SIGUSR1, signal.SIGCONT):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pids[rank], number)
        stacks_deadline = time.monotonic() + _STACKS_S
        while len(self.statuses) < len(self.pids) and self._collect(stacks_deadline):
            pass
        self._kill_all()
        self.deadline = time.monotonic() + 10

    def _kill_all(self) -> None:
        for rank, pid in enumerate(self.pids):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # each rank is a session of its own: what it started goes with it
            if rank not in self.statuses:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def results(self) -> list[Any]:
        values: list[Any] = []
        problems: dict[int, str] = {}
        errors: dict[int, BaseException | None] = {}
        for rank in range(len(self.pids)):
            outcome = _rank_server.read_outcome(self.job.directory, rank)
            problem = self._problem(rank, outcome)
            values.append(outcome.value() if problem is None and outcome is not None else None)
            if problem is not None:
                problems[rank] = problem
                errors[rank] = outcome.error() if outcome is not None else None
            output = _rank_server.read_text(self.job.directory, "output", rank)
            if output:
                print(f"---- rank {rank} printed ----\n{output}", end="")
        if problems:
            text = "\n".join(f"---- rank {rank} of {len(self.pids)}: {text}" for rank, text in problems.items())
            raise RanksFailed(text, errors)
        return values

    def _problem(self, rank: int, outcome: _rank_server.Outcome | None) -> str | None:
        status = self.statuses.get(rank, -1)
        killed = (os.WIFSIGNALED(status) and os.WTERMSIG(status)) or 0
        if rank in self.hung:
            stacks = _rank_server.read_text(self.job.directory, "stacks", rank)
            return f"not done after {self.job.timeout:g} s; its threads:\n{stacks or '(no stacks: stopped?)'}"
        if outcome is not None and outcome.failed:
            return outcome.traceback
        if rank in self.expect_killed:
            return None if killed else "ended by itself, though it should have been killed"
        if killed:
            return f"killed by {signal.Signals(killed).name}" + (" after it returned" if outcome is not None else "")
        if outcome is None or status != 0:
            return f"ended with status {os.waitstatus_to_exitcode(status)}" + (
                " after it returned" if outcome is not None else " without a result"
            )
        return None
