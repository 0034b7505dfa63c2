"""Following several processes: their output as it comes, their ends, and the end of the others when one fails."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_GRACE_S = 5.0  # between SIGTERM and SIGKILL
_AFTER_END_S = 0.5  # for the rest of the output, where something that the command started holds on to it


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes
    ----------
    status : int
        As of subprocess: negative for a signal.
    output : str
        What it printed on both streams.
    timed_out : bool
        It was ended because the time was over.
    """

    status: int
    output: str
    timed_out: bool = False


def end(process: subprocess.Popen[bytes], number: int) -> None:
    """Send a signal to a process and, where it leads a group of its own, to that."""
    if process.poll() is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


class Follower:
    """Reads processes that write into pipes until all have ended.

    Parameters
    ----------
    processes : sequence of Popen
        With stdout=PIPE, or None where it is not to be read.
    said : callable
        Called with (index, bytes) as output comes.
    """

    def __init__(
        self, processes: Sequence[subprocess.Popen[bytes]], said: Callable[[int, bytes], None] | None = None
    ) -> None:
        self.processes = processes
        self.said = said or (lambda index, data: None)
        self.first_failure: int | None = None  # the index of the process
        self._selector = selectors.DefaultSelector()
        for index, process in enumerate(processes):
            if process.stdout is not None:
                self._selector.register(process.stdout, selectors.EVENT_READ, index)

    def wait(self, timeout: float | None, *, end_others: bool = True) -> bool:
        """Follow to the end; False if the time was over before, and the processes were ended.

        Parameters
        ----------
        timeout : float or None
            Seconds.
        end_others : bool
            End the others when one has ended with a status other than 0.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        in_time = True
        try:
            while any(process.poll() is None for process in self.processes):
                self._read(0.02)
                if end_others and self._note_failure():
                    break
                if deadline is not None and time.monotonic() >= deadline:
                    in_time = False
                    break
            self._note_failure()
        finally:
            self._end_all()
        self._read_rest()
        return in_time

    def _note_failure(self) -> bool:
        for index, process in enumerate(self.processes):
            if self.first_failure is None and process.poll() not in (None, 0):
                self.first_failure = index
        return self.first_failure is not None

    def _read(self, timeout: float) -> None:
        if not self._selector.get_map():
            time.sleep(timeout)
        for key, _ in self._selector.select(timeout):
            data = os.read(key.fd, 65536)
            if data:
                self.said(key.data, data)
            else:
                self._selector.unregister(key.fileobj)

    def _end_all(self) -> None:
        for process in self.processes:
            end(process, signal.SIGTERM)
        deadline = time.monotonic() + _GRACE_S
        while any(process.poll() is None for process in self.processes) and time.monotonic() < deadline:
            self._read(0.02)
        for process in self.processes:
            end(process, signal.SIGKILL)
            process.wait()

    def _read_rest(self) -> None:
        deadline = time.monotonic() + _AFTER_END_S
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(0.02)
        self._selector.close()
        for process in self.processes:
            if process.stdout is not None:
                process.stdout.close()


def collect(processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> list[Ended]:
    """Return how each ended and what it printed; those that the timeout (seconds) ended are marked."""
    output = [bytearray() for _ in processes]
    follower = Follower(processes, lambda index, data: output[index].extend(data))
    in_time = follower.wait(timeout)
    ended_by_us = (-signal.SIGTERM, -signal.SIGKILL)
    return [
        Ended(process.returncode, data.decode(errors="replace"), not in_time and process.returncode in ended_by_us)
        for process, data in zip(processes, output, strict=True)
    ]


class Lines:
    """Passes output on in whole lines, each behind a prefix, so that the lines of several do not mix."""

    def __init__(self, prefixes: Sequence[str], write: Callable[[bytes], object]) -> None:
        self._prefixes = [prefix.encode() for prefix in prefixes]
        self._parts = [b"" for _ in prefixes]
        self._write = write

    def said(self, index: int, data: bytes) -> None:
        """Take what one of them printed."""
        *lines, self._parts[index] = (self._parts[index] + data).split(b"\n")
        if lines:
            self._write(b"".join(self._prefixes[index] + line + b"\n" for line in lines))

    def finish(self) -> None:
        """Pass on lines that had no end."""
        for index, part in enumerate(self._parts):
            if part:
                self.said(index, b"\n")
