"""What the fault tests share: dying, stopping, and noting what a call raised and how long it took."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Raised:
    """What a call raised, and when (CLOCK_MONOTONIC, which all processes of a host share)."""

    kind: str
    text: str
    began_s: float
    ended_s: float

    @property
    def took_s(self) -> float:
        return self.ended_s - self.began_s


def catch(call: Callable[[], Any]) -> Raised:
    """Run a call that should fail; "nothing" if it does not."""
    began_s = time.monotonic()
    try:
        call()
    except BaseException as error:
        return Raised(type(error).__name__, str(error), began_s, time.monotonic())
    return Raised("nothing", "", began_s, time.monotonic())


def die(directory: str, number: int = signal.SIGKILL) -> None:
    """End (or stop) this process, and leave the time at which it happened."""
    path = pathlib.Path(directory) / "died.new"
    path.write_text(str(time.monotonic()), encoding="utf-8")
    path.rename(path.with_name("died"))
    os.kill(os.getpid(), number)


def die_soon(directory: str, after_s: float) -> None:
    """Die from another thread, while this one is busy."""
    threading.Timer(after_s, die, (directory,)).start()


def died_at(directory: str, wait_s: float = 5.0) -> float:
    """Return when the other process died; waits until it has."""
    path = pathlib.Path(directory) / "died"
    deadline_s = time.monotonic() + wait_s
    while not path.exists():
        assert time.monotonic() < deadline_s, "nobody died"
        time.sleep(0.005)
    return float(path.read_text(encoding="utf-8"))
