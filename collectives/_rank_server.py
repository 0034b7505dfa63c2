"""The process that :func:`collectives.testing.run_ranks` forks its ranks from, and what runs in a rank.

The server imports torch and the modules of the functions that it is asked to run, and never starts a thread, so that
its forks are as good as fresh interpreters, in a hundredth of the time. It ends, with all ranks, when the socket to its
owner closes.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import faulthandler
import gc
import os
import pickle
import runpy
import select
import signal
import socket
import struct
import sys
import traceback as traceback_module
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True)
class Job:
    """What the ranks are to do; see :func:`collectives.testing.run_ranks`."""

    directory: str  # of this run: the store's file, and one result, output and stacks file a rank
    call: bytes  # pickled (function, arguments)
    world_size: int
    timeout: float
    backend: str | None
    env: dict[str, str]
    sys_path: list[str]
    working_directory: str
    main_path: str | None


@dataclass(frozen=True)
class Outcome:
    """What a rank left: a value, or an error with its traceback."""

    failed: bool
    pickled: bytes
    traceback: str

    def value(self) -> Any:
        """Return what the function returned."""
        return pickle.loads(self.pickled)

    def error(self) -> BaseException | None:
        """Return the exception, where it can be pickled."""
        if not self.failed or not self.pickled:
            return None
        try:
            return pickle.loads(self.pickled)
        except Exception:  # some exceptions can be pickled and not unpickled
            return None


# ---- messages between owner and server -------------------------------------------------------------------------------


def send(connection: socket.socket, message: Any) -> None:
    """Send one pickled message."""
    data = pickle.dumps(message)
    connection.sendall(struct.pack("!Q", len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """Receive one message. Raises EOFError at the end, TimeoutError when nothing comes in the socket's timeout."""
    (size,) = struct.unpack("!Q", _receive_exactly(connection, 8))
    return pickle.loads(_receive_exactly(connection, size))


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the rank server ended")
        parts += part
    return bytes(parts)


# ---- the server ------------------------------------------------------------------------------------------------------


class _RankEnds(BaseException):
    """Leaves the server's frames in a rank, so that the interpreter ends there as that of any program does."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def main() -> NoReturn:
    """Serve the socket whose descriptor is the first argument."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    _preload()
    try:
        _serve(connection)
    except _RankEnds as end:
        sys.exit(end.status)
    sys.exit(0)


def _preload() -> None:
    import numpy  # noqa: F401
    import torch
    import torch.distributed

    with contextlib.suppress(ImportError):  # where the extension is not built, the ranks say so
        import collectives._core
        import collectives.backend
        import collectives.communicator  # noqa: F401
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # keeps the garbage collector of the ranks from touching, and so copying, these pages


def _serve(connection: socket.socket) -> None:
    wake, waker = socket.socketpair()
    wake.setblocking(False)
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner
    running: set[int] = set()
    send(connection, "ready")
    try:
        while True:
            readable, _, _ = select.select([connection, wake], [], [])
            if wake in readable:
                with contextlib.suppress(BlockingIOError):
                    wake.recv(4096)
                _report_exits(connection, running)
            if connection in readable:
                try:
                    job = receive(connection)
                except EOFError:
                    return
                _start(connection, job, running, (connection, wake, waker))
    except BrokenPipeError:
        return
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def _report_exits(connection: socket.socket, running: set[int]) -> None:
    while running:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        running.discard(pid)
        send(connection, (pid, status))


def _start(
    connection: socket.socket, job: Job, running: set[int], ours: tuple[socket.socket, socket.socket, socket.socket]
) -> None:
    try:
        sys.path[:] = job.sys_path
        os.chdir(job.working_directory)
        if job.main_path is not None:
            _load_main(job.main_path)
        function, args = pickle.loads(job.call)
    except BaseException:
        send(connection, traceback_module.format_exc())
        return
    pids: list[int] = []
    for rank in range(job.world_size):
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            running.clear()  # they are the server's, to kill at its end
            for end in ours:
                end.close()
            raise _RankEnds(_run_rank(job, rank, function, args))
        pids.append(pid)
        running.add(pid)
    send(connection, pids)


def _load_main(path: str) -> None:
    module = type(sys)("__mp_main__")
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


# ---- a rank ----------------------------------------------------------------------------------------------------------

_stores: collections.Counter[str] = collections.Counter()  # made so far, by purpose
_rank: tuple[int, int, float, str] | None = None  # rank, world size, timeout in seconds, directory


def current() -> tuple[int, int, float]:
    """Return (rank, world size, timeout in seconds) of this process.

    Raises
    ------
    RuntimeError
        If this process is none of run_ranks'.
    """
    if _rank is None:
        raise RuntimeError("collectives.testing: this process was not started by run_ranks")
    return _rank[:3]


def store(purpose: str) -> Any:
    """Return a store in which the ranks of this run meet; another purpose, or another call, is another store.

    No two share a file, and none removes its file: a FileStore that counts its users deletes the file under whoever
    has just opened it again, who then reads for ever (torch 2.13).
    """
    import torch.distributed as dist

    assert _rank is not None
    _stores[purpose] += 1
    file = dist.FileStore(os.path.join(_rank[3], f"store-{purpose}-{_stores[purpose]}"))
    file.set_timeout(datetime.timedelta(seconds=_rank[2]))
    return file


def init_process_group(backend: str, rank: int, world_size: int, timeout: float, **options: Any) -> None:
    """Initialise ``torch.distributed`` among the ranks of this run."""
    import torch.distributed as dist

    options.setdefault("timeout", datetime.timedelta(seconds=timeout))
    dist.init_process_group(backend, store=store("group"), rank=rank, world_size=world_size, **options)


def _run_rank(job: Job, rank: int, function: Any, args: tuple[Any, ...]) -> int:
    """Run the function and leave its outcome; returns the exit status."""
    _prepare(job, rank)
    try:
        if job.backend is not None:
            init_process_group(job.backend, rank, job.world_size, job.timeout)
        value = function(rank, job.world_size, *args)
        _leave(job, rank, Outcome(False, pickle.dumps(value), ""))
        if job.backend is not None:
            import torch.distributed as dist

            if dist.is_initialized():
                dist.destroy_process_group()
        return 0
    except BaseException as error:
        try:
            pickled = pickle.dumps(error)
        except Exception:
            pickled = b""
        _leave(job, rank, Outcome(True, pickled, traceback_module.format_exc()))
        return 1


def _prepare(job: Job, rank: int) -> None:
    global _rank
    _rank = (rank, job.world_size, job.timeout, job.directory)
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(job.env)
    output = os.open(_path(job.directory, "output", rank), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    stacks = open(_path(job.directory, "stacks", rank), "w")  # noqa: SIM115 - open as long as the process
    faulthandler.enable(sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def _path(directory: str, what: str, rank: int) -> str:
    return os.path.join(directory, f"{what}-{rank}")


def _leave(job: Job, rank: int, outcome: Outcome) -> None:
    path = _path(job.directory, "outcome", rank)
    with open(path + ".new", "wb") as file:
        pickle.dump(outcome, file)
    os.replace(path + ".new", path)


def read_outcome(directory: str, rank: int) -> Outcome | None:
    """Return what a rank left; None where it died before it left anything."""
    try:
        with open(_path(directory, "outcome", rank), "rb") as file:
            return pickle.load(file)
    except FileNotFoundError:
        return None


def read_text(directory: str, what: str, rank: int) -> str:
    """Return the text of a rank's file ("output" or "stacks"); empty where there is none."""
    try:
        with open(_path(directory, what, rank), encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""
