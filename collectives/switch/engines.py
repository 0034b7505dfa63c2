"""What runs a switch's packets, behind one set of methods: the engine in C++, or a P4 program in the interpreter.

The control plane (``admission``, ``control``) decides who may send; an engine is told, carries it out and counts. It
has a thread and the UDP sockets of its own. Imports the extension, or the interpreter, only for an engine that is made.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Protocol

MOST_WORKERS = 64
"""Of a job."""
MOST_LANES = 2048
"""Of a packet."""
Address = tuple[str, int]
"""(IP address, UDP port)."""


class Refused(ValueError):
    """A job cannot be admitted; the text says why, and what would be possible."""


@dataclasses.dataclass(frozen=True)
class WorkerState:
    """What came from one worker of a job.

    Attributes
    ----------
    address, udp_port
        Where it is.
    verdicts : mapping of str to int
        Packets by what became of them, as the counters of docs/protocol.md; those that are 0 may be left out.
    last_ns : int or None
        When its last packet came, on the clock of :attr:`Engine.now_ns`; None where none came yet.
    """

    address: str
    udp_port: int
    verdicts: Mapping[str, int]
    last_ns: int | None


@dataclasses.dataclass(frozen=True)
class JobState:
    """What an engine keeps of a job; ``slot_verdicts`` has the slots that were used, by number."""

    job: int
    incarnation: int
    slots: int
    lanes: int
    workers: Sequence[WorkerState]
    slot_verdicts: Mapping[int, Mapping[str, int]]

    def verdicts(self) -> dict[str, int]:
        """Return the job's packets by what became of them: those of its workers together."""
        total: dict[str, int] = {}
        for worker in self.workers:
            for name, count in worker.verdicts.items():
                total[name] = total.get(name, 0) + count
        return total


@dataclasses.dataclass(frozen=True)
class Waiting:
    """The oldest epoch of a job that is not complete, since when, and the workers that it lacks."""

    job: int
    slot: int
    epoch: int
    begun_ns: int
    missing: Sequence[int]


class Engine(Protocol):
    """What the control plane needs of whatever runs the packets. Methods may be called from any one thread.

    Attributes
    ----------
    name : str
        As in ``--engine``.
    addresses : sequence of (str, int)
        Where it takes packets, with the ports that it got.
    lanes : int
        The most lanes of a packet.
    lane_bits : tuple of int
        The widths that it serves.
    fixed : bool
        Packets must have exactly ``lanes`` lanes, as for a P4 program that is built for one size.
    tags : bool
        Whether it checks keyed tags; where not, the key of ``admit`` is None.
    """

    name: str
    addresses: Sequence[Address]
    lanes: int
    lane_bits: tuple[int, ...]
    fixed: bool
    tags: bool

    def admit(
        self, job: int, incarnation: int, workers: Sequence[Address], slots: int, most_lanes: int, key: bytes | None
    ) -> None:
        """Admit a job, or a new start of one, whose slots then begin anew.

        Parameters
        ----------
        job, incarnation : int
            32-bit numbers.
        workers : sequence of (address, UDP port)
            In the order of their bits in the mask.
        slots, most_lanes : int
            Its part of the pool.
        key : bytes or None
            Of its packets' tags, 32 bytes; None: its packets have none.

        Raises
        ------
        Refused
            With the reason; what was admitted before stays as it was.
        """

    def release(self, job: int) -> bool:
        """Forget a job, whose packets are a stranger's from then on; False where there is none."""

    def counters(self) -> dict[str, int]:
        """Return how many packets came to each verdict, and what else the engine counts."""

    def jobs(self) -> Sequence[JobState]:
        """Return what is kept of each job."""

    def waiting(self) -> Sequence[Waiting]:
        """Return the oldest incomplete epoch of each job that has one, the oldest of all first."""

    def now_ns(self) -> int:
        """Return the time on the engine's clock."""

    def close(self) -> None:
        """End the thread and close the sockets; may be called twice."""


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """What an engine is made of: the options of ``collectives switch``.

    Attributes
    ----------
    engine : str
        ``native`` or ``p4``.
    program : path or None
        P4 only: the program; None: ``p4/aggregate.p4`` of the checkout that the package lies in.
    lanes, lane_bits, slots : int
        P4 only: LANES, LANE_BITS and MAX_SLOTS, what the program is built for.
    pool_bytes : int
        Native only: memory for the slots of all jobs.
    pcap : path or None
        P4 only: where every packet is recorded.
    """

    engine: str = "native"
    program: str | os.PathLike[str] | None = None
    lanes: int = 64
    lane_bits: int = 32
    slots: int = 256
    pool_bytes: int = 64 << 20
    pcap: str | None = None


def make(options: EngineOptions, addresses: Sequence[Address]) -> Engine:
    """Make an engine that takes packets at these addresses.

    Raises
    ------
    ValueError
        If there is no such engine, or no such program.
    collectives.p4.P4Error
        If the program is wrong: file, line and column.
    OSError
        If an address cannot be bound.
    """
    if options.engine == "p4":
        from collectives.switch.p4_engine import P4Engine

        program = options.program if options.program is not None else program_of_checkout()
        return P4Engine(
            addresses, program, options.lanes, options.lane_bits, max_slots=options.slots, pcap=options.pcap
        )
    if options.engine == "native":
        from collectives.switch.native_engine import NativeEngine

        if options.pcap is not None:
            raise ValueError("only the engine p4 records packets so far; for the native one take tcpdump")
        return NativeEngine(addresses, options.pool_bytes)
    raise ValueError(f"there is no engine {options.engine!r}; there are native and p4")


def program_of_checkout() -> pathlib.Path:
    """Return ``p4/aggregate.p4`` of the checkout that this package lies in.

    Raises
    ------
    ValueError
        If it does not lie in one: the program is not part of the installed package.
    """
    path = pathlib.Path(__file__).resolve().parent.parent.parent / "p4" / "aggregate.p4"
    if not path.is_file():
        raise ValueError(
            f"there is no {path}: the P4 program comes with the source, not with the installed package; name one, "
            "as in --engine p4 p4/aggregate.p4"
        )
    return path


def refuse_ports(addresses: Sequence[Address]) -> None:
    """Check the addresses that an engine is given.

    Raises
    ------
    ValueError
        If there are none, or one is named twice.
    """
    if not addresses:
        raise ValueError("a switch needs an address to listen at, such as 10.0.0.254:5190")
    doubles = [place for place in addresses if place[1] and list(addresses).count(place) > 1]
    if doubles:
        raise ValueError(f"{doubles[0][0]}:{doubles[0][1]} is named twice")


__all__ = [
    "MOST_LANES",
    "MOST_WORKERS",
    "Address",
    "Engine",
    "EngineOptions",
    "JobState",
    "Refused",
    "Waiting",
    "WorkerState",
    "make",
    "program_of_checkout",
]
