"""For the tests of the switch: a control plane in a thread, an engine that runs no packets, and joining by hand."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from collectives.switch import lines
from collectives.switch.admission import Limits
from collectives.switch.command import bind_tcp
from collectives.switch.control import Control, Guard
from collectives.switch.engines import Address, Engine, JobState, Refused, Waiting, WorkerState
from collectives.switch.join import Ticket, join

SECRET = b"a secret of the tests, long enough"
START = "0123456789abcdef" * 2


class NoPackets:
    """An engine that only remembers what it was told; ``pool`` is how many slots it has."""

    name = "none"
    lanes = 2048
    lane_bits: tuple[int, ...] = (8, 16, 32)

    def __init__(self, pool: int = 1024, tags: bool = True, fixed: bool = False) -> None:
        self.addresses: Sequence[Address] = [("127.0.0.1", 5190)]
        self.pool, self.tags, self.fixed = pool, tags, fixed
        self.admitted: dict[int, tuple[int, list[Address], int, int, bytes | None]] = {}

    def admit(
        self, job: int, incarnation: int, workers: Sequence[Address], slots: int, most_lanes: int, key: bytes | None
    ) -> None:
        used = sum(one[2] for number, one in self.admitted.items() if number != job)
        if slots > self.pool - used:
            raise Refused(f"the pool has {self.pool - used} slots left; the job asks for {slots}")
        assert job not in self.admitted or self.admitted[job][0] != incarnation
        self.admitted[job] = (incarnation, list(workers), slots, most_lanes, key)

    def release(self, job: int) -> bool:
        return self.admitted.pop(job, None) is not None

    def counters(self) -> dict[str, int]:
        return {"added": 7, "stranger": 0}

    def jobs(self) -> list[JobState]:
        return [
            JobState(
                job,
                one[0],
                one[2],
                one[3],
                [WorkerState(*place, {"added": 3}, 0) for place in one[1]],
                {0: {"added": 6}},
            )
            for job, one in self.admitted.items()
        ]

    def waiting(self) -> list[Waiting]:
        return [Waiting(job, 5, 2, 10**9, [0]) for job in self.admitted]

    def now_ns(self) -> int:
        return 4 * 10**9

    def close(self) -> None:
        pass


class Served:
    """A control plane that runs, and where."""

    def __init__(self, control: Control, address: Address, call: Callable[[Callable[[], Any]], Any]) -> None:
        self.control = control
        self.address = address
        self.call = call

    def counts(self) -> dict[str, int]:
        """What it counted of its connections, and of joining."""
        return dict(self.call(lambda: self.control.counts + self.control.admissions.counts))

    def until(self, holds: Callable[[], bool], what: str, timeout: float = 10.0) -> None:
        """Look in the control plane's own loop, again whenever it has had a turn, until something holds."""
        end_s = time.monotonic() + timeout
        while not self.call(holds):
            assert time.monotonic() < end_s, f"not within {timeout} s: {what}"


@contextlib.contextmanager
def served(
    engine: Engine,
    secret: bytes | None = SECRET,
    limits: Limits | None = None,
    guard: Guard | None = None,
    listener: socket.socket | None = None,
) -> Iterator[Served]:
    """Run a control plane in a thread, at a bound TCP socket or any; the engine is closed with it."""
    one = listener if listener is not None else bind_tcp((engine.addresses[0][0], 0))
    control = Control(engine, secret, limits, guard)
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    ready = threading.Event()

    async def run() -> None:
        await control.start([one])
        ready.set()
        await stop.wait()
        await control.close()

    def call(function: Callable[[], Any]) -> Any:
        async def do() -> Any:
            return function()

        return asyncio.run_coroutine_threadsafe(do(), loop).result(10)

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    try:
        assert ready.wait(10)
        yield Served(control, one.getsockname(), call)
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
        engine.close()


def join_all(
    address: Address,
    workers: int,
    secret: bytes | None = SECRET,
    job: str = "job",
    start: str = START,
    slots: int = 16,
    lanes: int = 2048,
    timeout: float = 20.0,
) -> list[Ticket]:
    """Join with all workers of a job, each in a thread of its own."""
    with ThreadPoolExecutor(workers) as pool:
        return list(
            pool.map(
                lambda worker: join(address, secret, job, start, worker, workers, slots, lanes, timeout), range(workers)
            )
        )


class Hand:
    """A control connection whose lines are written by hand."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address, timeout=10)
        self.file = self.socket.makefile("rb")
        self.challenge = ""

    def greet(self) -> Hand:
        """Read the greeting."""
        greeting = self.read()
        assert greeting["collectives-switch"] == 1
        self.challenge = greeting["challenge"]
        return self

    def read(self) -> dict[str, Any]:
        """Read a line."""
        return lines.decode(self.file.readline())

    def join_line(self, secret: bytes | None = SECRET, **fields: Any) -> bytes:
        """Return the line of worker 0 of 1, proven."""
        asked = {
            "ask": "join",
            "job": "job",
            "start": START,
            "worker": 0,
            "workers": 1,
            "slots": 16,
            "lanes": 2048,
            "udp_port": 40000,
            "challenge": "ab" * 16,
        } | fields
        if secret is not None:
            asked["proof"] = lines.prove(secret, self.challenge, asked)
        return lines.encode(asked)

    def is_closed(self) -> bool:
        """Wait until the switch has closed the connection; what it still said is thrown away."""
        try:
            while self.file.read(1):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        """Close the connection."""
        self.file.close()
        self.socket.close()
