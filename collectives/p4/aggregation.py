"""The control plane of p4/aggregate.p4: who may send to which slots, and where the replies go.

::

    switch = Aggregation.load("p4/aggregate.p4", lanes=32)
    switch.admit(job=7, incarnation=1, workers=[Worker("10.0.0.1", 40000, 1), Worker("10.0.0.2", 40000, 2)], slots=16)
    for port, frame in switch.process(packet, ingress_port=1, now_us=0):
        ...

It decides, and a :class:`Target` carries it out: the interpreter (:class:`InterpreterTarget`), or BMv2's command line
(:mod:`collectives.p4.simple_switch`). Imported by those who run that program; imports the interpreter.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from collectives.p4.program import load
from collectives.p4.v1model import V1Switch

# Names of the counter AggregationIngress.verdicts, by index: p4/shared/constants.p4.
VERDICTS = (
    "goes_on",
    "malformed",
    "stranger",
    "bad_tag",
    "stale_incarnation",
    "outside",
    "late",
    "early",
    "duplicate",
    "mismatch",
    "added",
    "completed",
    "replayed",
    "lost",
)
MOST_WORKERS = 64
WORKERS_TABLE = "AggregationIngress.admit.workers"
RECEIVERS_TABLE = "AggregationEgress.address.receivers"
LOSS_TABLES = ("AggregationIngress.lose_in", "AggregationEgress.lose_out")


class Refused(ValueError):
    """A job cannot be admitted; the text says why, and what would be possible."""


class Worker(NamedTuple):
    """Where a worker is.

    Attributes
    ----------
    address : str
        IPv4 address that its packets come from.
    udp_port : int
        UDP port that they come from, and that replies go to.
    port : int
        The switch's port behind which it is.
    mac : str
        Ethernet address; by default 02:00 and the IPv4 address, which hosts of a test can be given.
    """

    address: str
    udp_port: int
    port: int
    mac: str = ""

    def mac_number(self) -> int:
        """Return the Ethernet address as a number."""
        return number_of_mac(self.mac) if self.mac else 0x020000000000 | int(ipaddress.IPv4Address(self.address))


class Job(NamedTuple):
    """A job that was admitted: its part of the pool, and the numbers it has in the switch."""

    job: int
    incarnation: int
    workers: tuple[Worker, ...]
    base: int
    slots: int
    group: int
    receivers: tuple[int, ...]


class Target(Protocol):
    """A switch that runs the program, as its control plane sees it. Numbers only; names as in P4Runtime."""

    def add(self, table: str, key: Sequence[int], action: str, params: Mapping[str, int]) -> None:
        """Add an entry to a table whose keys are all exact."""

    def delete(self, table: str, key: Sequence[int]) -> None:
        """Remove an entry."""

    def set_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group of (port, rid)."""

    def delete_group(self, group: int) -> None:
        """Remove a multicast group."""


@dataclasses.dataclass
class InterpreterTarget:
    """The interpreter's switch as a target."""

    switch: V1Switch

    def add(self, table: str, key: Sequence[int], action: str, params: Mapping[str, int]) -> None:
        """Add an entry to a table."""
        self.switch.tables[table].add(tuple(key), action, dict(params))

    def delete(self, table: str, key: Sequence[int]) -> None:
        """Remove an entry."""
        self.switch.tables[table].delete(tuple(key))

    def set_group(self, group: int, copies: Sequence[tuple[int, int]]) -> None:
        """Make a multicast group."""
        self.switch.multicast[group] = list(copies)

    def delete_group(self, group: int) -> None:
        """Remove a multicast group."""
        del self.switch.multicast[group]


def number_of_mac(text: str) -> int:
    """Return an Ethernet address as a number: ``02:00:0a:00:00:01``."""
    parts = text.split(":")
    if len(parts) != 6 or any(len(part) != 2 for part in parts):
        raise ValueError(f"{text!r} is no Ethernet address; write six bytes as 02:00:0a:00:00:01")
    return int("".join(parts), 16)


class Control:
    """What is admitted to one switch, and the entries that say so.

    Parameters
    ----------
    target : Target
        The switch.
    max_slots : int
        The program's MAX_SLOTS: slots of all jobs together.
    address, mac : str
        The switch's own IPv4 and Ethernet address, from which replies come.
    """

    def __init__(
        self, target: Target, max_slots: int, address: str = "10.0.0.254", mac: str = "02:00:0a:00:00:fe"
    ) -> None:
        self.target = target
        self.max_slots = max_slots
        self.address = address
        self.jobs: dict[int, Job] = {}
        self._own = {"own_mac": number_of_mac(mac), "own_address": int(ipaddress.IPv4Address(address))}

    def admit(self, job: int, incarnation: int, workers: Iterable[Worker | tuple[str, int, int]], slots: int) -> Job:
        """Admit a job, or a new start of one that was admitted before; its slots then begin anew.

        Parameters
        ----------
        job, incarnation : int
            32-bit numbers. A new start has an incarnation that this job never had.
        workers : iterable of Worker
            In the order of their bits in the mask, 1 to 64 of them.
        slots : int
            How many slots the job gets.

        Returns
        -------
        Job
            With the part of the pool that it has.

        Raises
        ------
        Refused
            If there are too few slots left, too many workers, two at one address and port, or the same start again.
            What was admitted before stays as it was.
        """
        members = tuple(Worker(*worker) for worker in workers)
        self._check(job, incarnation, members, slots)
        others = [one for one in self.jobs.values() if one.job != job]
        base = _room(others, self.max_slots, slots)
        taken = {number for one in others for number in one.receivers}
        free = (number for number in range(1, 1 << 16) if number not in taken)
        receivers = tuple(next(free) for _ in members)
        groups = {one.group for one in others}
        group = next(number for number in range(1, 1 << 16) if number not in groups)
        if job in self.jobs:
            self.release(job)
        admitted = Job(job, incarnation, members, base, slots, group, receivers)
        self._write(admitted)
        self.jobs[job] = admitted
        return admitted

    def _check(self, job: int, incarnation: int, workers: Sequence[Worker], slots: int) -> None:
        for name, value in (("job", job), ("incarnation", incarnation)):
            if not 0 <= value < 1 << 32:
                raise Refused(f"{name} {value} is no 32-bit number")
        if not 1 <= len(workers) <= MOST_WORKERS:
            raise Refused(f"job {job} has {len(workers)} workers; a slot serves 1 to {MOST_WORKERS}")
        if slots < 1:
            raise Refused(f"job {job} asks for {slots} slots; it needs at least one")
        places = [(worker.address, worker.udp_port) for worker in workers]
        doubles = {place for place in places if places.count(place) > 1}
        if doubles:
            raise Refused(f"job {job}: several workers at {sorted(doubles)[0]}; each needs a UDP port of its own")
        before = self.jobs.get(job)
        if before is not None and before.incarnation == incarnation:
            raise Refused(
                f"job {job} is admitted with incarnation {incarnation} already; a new start needs another one"
            )

    def _write(self, job: Job) -> None:
        """Put a job into the tables: first where replies go, last who may send, so that no reply gets lost."""
        workers = list(zip(job.workers, job.receivers, strict=True))
        for worker, receiver in workers:
            params = {
                "mac": worker.mac_number(),
                "address": int(ipaddress.IPv4Address(worker.address)),
                "udp_port": worker.udp_port,
                **self._own,
            }
            self.target.add(RECEIVERS_TABLE, [receiver], "AggregationEgress.address.send_to", params)
        self.target.set_group(job.group, [(worker.port, receiver) for worker, receiver in workers])
        for number, (worker, receiver) in enumerate(workers):
            params = {
                "mine": 1 << number,
                "workers": len(workers),
                "group": job.group,
                "port": worker.port,
                "receiver": receiver,
                "base": job.base,
                "slots": job.slots,
                "incarnation": job.incarnation,
            }
            self.target.add(WORKERS_TABLE, _sender(job, worker), "AggregationIngress.admit.admit", params)

    def release(self, job: int) -> None:
        """Take a job out of the tables; its packets are a stranger's from then on, and its slots are free."""
        if job not in self.jobs:
            raise KeyError(f"there is no job {job}; admitted are {sorted(self.jobs) or 'none'}")
        left = self.jobs.pop(job)
        for worker in left.workers:
            self.target.delete(WORKERS_TABLE, _sender(left, worker))
        self.target.delete_group(left.group)
        for receiver in left.receivers:
            self.target.delete(RECEIVERS_TABLE, [receiver])

    def lose(self, port: int, in_per_million: int = 0, out_per_million: int = 0) -> None:
        """Have packets of a port lost at random: the drop simulator. Once a port."""
        for control, rate in zip(LOSS_TABLES, (in_per_million, out_per_million), strict=True):
            if not 0 <= rate <= 1_000_000:
                raise ValueError(f"{rate} packets of a million cannot be lost; give 0 to 1000000")
            if rate:
                self.target.add(f"{control}.loss", [port], f"{control}.lose", {"per_million": rate})


def _sender(job: Job, worker: Worker) -> list[int]:
    """Return the key of a worker in the table of who may send."""
    return [int(ipaddress.IPv4Address(worker.address)), worker.udp_port, job.job]


def _room(others: Iterable[Job], max_slots: int, slots: int) -> int:
    """Return the first place in the pool with so many free slots in a row."""
    base, largest = 0, 0
    for one in sorted(others, key=lambda job: job.base):
        if one.base - base >= slots:
            return base
        largest = max(largest, one.base - base)
        base = one.base + one.slots
    largest = max(largest, max_slots - base)
    if max_slots - base < slots:
        raise Refused(f"{slots} slots are asked for, and the pool of {max_slots} has {largest} left in a row")
    return base


class Aggregation(Control):
    """The program in the interpreter, with its control plane.

    Parameters
    ----------
    switch : V1Switch
        That runs p4/aggregate.p4.
    address, mac : str
        The switch's own.
    """

    def __init__(self, switch: V1Switch, address: str = "10.0.0.254", mac: str = "02:00:0a:00:00:fe") -> None:
        slots = len(switch.registers["AggregationIngress.slot.owners"])
        super().__init__(InterpreterTarget(switch), slots, address, mac)
        self.switch = switch
        self.process = switch.process

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        lanes: int = 32,
        lane_bits: int = 32,
        max_slots: int = 256,
        seed: int = 0,
        address: str = "10.0.0.254",
        mac: str = "02:00:0a:00:00:fe",
    ) -> Aggregation:
        """Load the program for one size of packet.

        Parameters
        ----------
        path : path
            ``p4/aggregate.p4``, or an edited copy.
        lanes, lane_bits, max_slots : int
            The macros of p4/shared/constants.p4.
        seed : int
            What the drop simulator draws from.
        address, mac : str
            The switch's own.

        Raises
        ------
        P4Error
            If the program is wrong.
        """
        program = load(path, defines={"LANES": lanes, "LANE_BITS": lane_bits, "MAX_SLOTS": max_slots})
        return cls(V1Switch(program, seed=seed), address, mac)

    def counters(self) -> dict[str, int]:
        """Return how many packets came to each verdict; and, of copies going out, lost and addressed to nobody."""
        cells = self.switch.counters["AggregationIngress.verdicts"]
        found = {name: cells[index].packets for index, name in enumerate(VERDICTS)}
        found["lost_out"] = self.switch.counters["AggregationEgress.lose_out.lost"][0].packets
        found["unknown_receiver"] = self.switch.counters["AggregationEgress.address.unknown"][0].packets
        return found


__all__ = ["VERDICTS", "Aggregation", "Control", "InterpreterTarget", "Job", "Refused", "Target", "Worker"]
