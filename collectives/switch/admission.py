"""Who gets in: the workers of a job are gathered, the quotas are looked at, and the engine is told. No I/O, no clock.

A job has a name and a start, which its rank 0 draws whenever a group forms. The workers of one start are admitted
together, when the last has asked: the first to come disturbs nothing that runs. The same name with another start is a
new incarnation of the job, which takes the place of the one before. Driven by ``control``, with its connections as
members, and by tests with anything that can be a key of a dict.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from collectives.switch import lines
from collectives.switch.engines import MOST_LANES, MOST_WORKERS, Engine, Refused

_MOST_NAME = 200
_REMEMBERED = 4096  # names of jobs whose numbers are kept
_MOST_NUMBER = (1 << 32) - 1

Member = Hashable


@dataclasses.dataclass(frozen=True)
class Limits:
    """The quotas of a switch.

    Attributes
    ----------
    workers : int
        The most workers of a job, 1 to 64.
    jobs : int
        The most jobs at a time; as many starts may gather at a time.
    slots : int or None
        The most slots of a job; None: what the pool has.
    wait_s : float
        The longest that a worker waits for the others of its start.
    """

    workers: int = MOST_WORKERS
    jobs: int = 64
    slots: int | None = None
    wait_s: float = 120.0


@dataclasses.dataclass(frozen=True)
class Ask:
    """What a worker asks for, checked by :func:`read_ask`, and where it is."""

    job: str
    start: str
    worker: int
    workers: int
    slots: int
    lanes: int
    udp_port: int
    address: str
    wait_s: float


class Answer(NamedTuple):
    """What a member is to be told; ``fields`` None: nothing. Its connection is closed, unless it is admitted."""

    member: Member
    fields: dict[str, Any] | None
    admitted: bool = False


@dataclasses.dataclass
class _Gathering:
    """The workers of one start that have asked so far, by number."""

    first: Ask
    order: int  # which gathering began first
    since_s: float
    members: dict[int, Member] = dataclasses.field(default_factory=dict)
    asks: dict[int, Ask] = dataclasses.field(default_factory=dict)
    until_s: dict[int, float] = dataclasses.field(default_factory=dict)

    def missing(self) -> list[int]:
        return [worker for worker in range(self.first.workers) if worker not in self.members]


@dataclasses.dataclass
class Running:
    """A job that is admitted."""

    name: str
    start: str
    job: int
    incarnation: int
    slots: int
    lanes: int
    since_s: float
    members: dict[int, Member]


def read_ask(fields: dict[str, Any], address: str, limits: Limits) -> Ask:
    """Check what a worker sent.

    Parameters
    ----------
    fields : dict
        Its line.
    address : str
        Where its connection comes from.
    limits : Limits
        The switch's.

    Raises
    ------
    Refused
        If something is missing, of the wrong type, or out of range.
    """
    name = fields.get("job")
    if not isinstance(name, str) or not 1 <= len(name) <= _MOST_NAME or not name.isprintable():
        raise Refused(f"job must be a name of 1 to {_MOST_NAME} printable characters")
    start = fields.get("start")
    if not isinstance(start, str) or not lines.is_hex_16(start):
        raise Refused("start must be 16 bytes as 32 hexadecimal digits, the same of all workers")
    workers = _number(fields, "workers", 1, MOST_WORKERS)
    if workers > limits.workers:
        raise Refused(f"a job may have {limits.workers} workers at this switch, and this one has {workers}")
    slots = _number(fields, "slots", 1, _MOST_NUMBER)
    if limits.slots is not None and slots > limits.slots:
        raise Refused(f"a job may have {limits.slots} slots at this switch; the job asks for {slots}")
    wait_ms = _number(fields, "wait_ms", 1, _MOST_NUMBER) if "wait_ms" in fields else limits.wait_s * 1e3
    return Ask(
        name,
        start,
        _number(fields, "worker", 0, workers - 1),
        workers,
        slots,
        _number(fields, "lanes", 1, MOST_LANES),
        _number(fields, "udp_port", 1, 65535),
        address,
        min(wait_ms / 1e3, limits.wait_s),
    )


def _number(fields: dict[str, Any], name: str, least: int, most: int) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        shown = "missing" if value is None else repr(value)[:40]
        raise Refused(f"{name} must be a whole number from {least} to {most}; it is {shown}")
    return value


class Admissions:
    """What is admitted, and who waits.

    Parameters
    ----------
    engine : Engine
        Runs the packets.
    limits : Limits
        The quotas.
    secret : bytes or None
        The switch's; None: an open switch, whose packets carry no tags.
    draw : callable
        Number of bytes to random bytes; chance is an argument.

    Attributes
    ----------
    running : dict of int to Running
        The admitted jobs, by number.
    counts : Counter
        ``admitted``, ``refused``, ``replaced``, ``left``, ``expired``.
    """

    def __init__(
        self, engine: Engine, limits: Limits, secret: bytes | None, draw: Callable[[int], bytes] = secrets.token_bytes
    ) -> None:
        self.engine = engine
        self.limits = limits
        self.running: dict[int, Running] = {}
        self.counts: Counter[str] = Counter()
        self._secret = secret
        self._draw = draw
        self._gatherings: dict[tuple[str, str], _Gathering] = {}
        self._of_member: dict[Member, tuple[_Gathering, int] | tuple[Running, int]] = {}
        self._names: OrderedDict[str, tuple[int, int]] = OrderedDict()  # -> number, the incarnation that it had last
        self._begun = 0
        self._last_number = 0

    @property
    def tags(self) -> bool:
        """Whether the packets of jobs carry keyed tags."""
        return self._secret is not None and self.engine.tags

    # ---- what happens

    def ask(self, member: Member, ask: Ask, now_s: float) -> list[Answer]:
        """Take a worker's wish to join.

        Returns
        -------
        list of Answer
            Empty where others are missing still; else for all whose fate is decided now.
        """
        try:
            gathering = self._gather(ask, now_s)
        except Refused as error:
            return [self._refusal(member, str(error))]
        if different := _difference(gathering.first, ask):
            # One start, two opinions of it: none of them can go on, so all are told.
            return self._refuse_all(gathering, different) + [self._refusal(member, different)]
        gathering.members[ask.worker] = member
        gathering.asks[ask.worker] = ask
        gathering.until_s[ask.worker] = now_s + ask.wait_s
        self._of_member[member] = (gathering, ask.worker)
        return [] if gathering.missing() else self._admit(gathering, now_s)

    def leave(self, member: Member) -> list[Answer]:
        """Take note that a member's connection ended; with a worker of an admitted job the job ends."""
        found = self._of_member.pop(member, None)
        if found is None:
            return []
        group, worker = found
        if isinstance(group, _Gathering):
            self._forget(group, worker)
            return []
        self.counts["left"] += 1
        del group.members[worker]
        return self._end(group)

    def expire(self, now_s: float) -> list[Answer]:
        """Refuse those who have waited for the others of their start as long as they may."""
        answers = []
        for gathering in list(self._gatherings.values()):
            late = [worker for worker, until_s in gathering.until_s.items() if until_s <= now_s]
            missing = ", ".join(map(str, gathering.missing()))
            for worker in late:
                member, wait_s = gathering.members[worker], gathering.asks[worker].wait_s
                why = (
                    f"of the {gathering.first.workers} workers of job '{gathering.first.job}', {missing} did not ask "
                    f"within {wait_s:.3g} s; see why they did not start"
                )
                self.counts["expired"] += 1
                self._forget(gathering, worker)
                del self._of_member[member]
                answers.append(self._refusal(member, why))
        return answers

    def next_expiry_s(self) -> float | None:
        """Return when :meth:`expire` has something to do, on the clock of ``now_s``; None: never."""
        times = [until_s for gathering in self._gatherings.values() for until_s in gathering.until_s.values()]
        return min(times, default=None)

    def gathering(self, now_s: float) -> list[dict[str, Any]]:
        """Return the starts whose workers have not all asked."""
        return [
            {
                "name": gathering.first.job,
                "workers": gathering.first.workers,
                "missing": gathering.missing(),
                "since_s": now_s - gathering.since_s,
            }
            for gathering in self._gatherings.values()
        ]

    # ---- how

    def _gather(self, ask: Ask, now_s: float) -> _Gathering:
        """Return the gathering that a worker belongs to, made if it is the first."""
        if any((one.name, one.start) == (ask.job, ask.start) for one in self.running.values()):
            raise Refused(
                f"job '{ask.job}' has begun with this start; a worker that comes back needs a new start of all"
            )
        gathering = self._gatherings.get((ask.job, ask.start))
        if gathering is None:
            if len(self._gatherings) >= self.limits.jobs:
                raise Refused(f"{self.limits.jobs} jobs wait for their workers already; try again later")
            self._check_lanes(ask)
            self._begun += 1
            gathering = self._gatherings[ask.job, ask.start] = _Gathering(ask, self._begun, now_s)
        elif ask.worker in gathering.members:
            other = gathering.asks[ask.worker]
            raise Refused(f"worker {ask.worker} of job '{ask.job}' has asked already, from {other.address}")
        return gathering

    def _check_lanes(self, ask: Ask) -> None:
        if self.engine.fixed and ask.lanes < self.engine.lanes:
            raise Refused(
                f"this switch's program takes packets of {self.engine.lanes} lanes only; the job has at most "
                f"{ask.lanes}"
            )

    def _admit(self, gathering: _Gathering, now_s: float) -> list[Answer]:
        """Admit a start whose workers are all there, in place of an earlier one of the job."""
        first = gathering.first
        before = next((one for one in self.running.values() if one.name == first.job), None)
        lanes = min(first.lanes, self.engine.lanes)
        try:
            if before is None and len(self.running) >= self.limits.jobs:
                raise Refused(f"{self.limits.jobs} jobs are admitted, which is all that this switch takes")
            number, incarnation = self._number_of(first.job)
            salt = self._draw(16).hex()
            key = None
            if self._secret is not None and self.engine.tags:
                key = lines.packet_key(self._secret, number, incarnation, first.start, salt)
            asks = [gathering.asks[worker] for worker in range(first.workers)]
            places = [(ask.address, ask.udp_port) for ask in asks]
            self.engine.admit(number, incarnation, places, first.slots, lanes, key)
        except Refused as error:
            return self._refuse_all(gathering, str(error))
        self._remember(first.job, number, incarnation)
        self.counts["admitted"] += 1
        del self._gatherings[first.job, first.start]
        answers = self._replace(before, gathering)
        job = Running(first.job, first.start, number, incarnation, first.slots, lanes, now_s, dict(gathering.members))
        self.running[number] = job
        fields = {
            "answer": "admitted",
            "job": number,
            "incarnation": incarnation,
            "slots": first.slots,
            "lanes": lanes,
            "lane_bits": list(self.engine.lane_bits),
            "fixed": self.engine.fixed,
            "tags": self.tags,
            "salt": salt,
        }
        for worker, member in sorted(job.members.items()):
            self._of_member[member] = (job, worker)
            answers.append(Answer(member, dict(fields), admitted=True))
        return answers

    def _replace(self, before: Running | None, gathering: _Gathering) -> list[Answer]:
        """End what a new start takes the place of: the job's earlier one, and those that began to gather before it."""
        answers = []
        if before is not None:
            self.counts["replaced"] += 1
            for member in before.members.values():
                del self._of_member[member]
                answers.append(Answer(member, None))
        for other in list(self._gatherings.values()):
            if other.first.job == gathering.first.job and other.order < gathering.order:
                answers += self._refuse_all(other, f"job '{other.first.job}' was started anew")
        return answers

    def _end(self, job: Running) -> list[Answer]:
        """Release a job; the workers that are left have their connections closed."""
        del self.running[job.job]
        self.engine.release(job.job)
        for member in job.members.values():
            del self._of_member[member]
        return [Answer(member, None) for member in job.members.values()]

    def _number_of(self, name: str) -> tuple[int, int]:
        """Return the job's number, and an incarnation that it never had.

        The first incarnation is random: to a switch that was started anew, packets of before are stale, too.
        """
        if name in self._names:
            number, incarnation = self._names[name]
            return number, (incarnation + 1) & _MOST_NUMBER
        taken = {number for number, _ in self._names.values()} | self.running.keys()
        number = self._last_number
        while True:
            number = number % _MOST_NUMBER + 1
            if number not in taken:
                return number, int.from_bytes(self._draw(4), "big")

    def _remember(self, name: str, number: int, incarnation: int) -> None:
        if name not in self._names:
            self._last_number = number
        self._names[name] = (number, incarnation)
        self._names.move_to_end(name)
        running = {one.name for one in self.running.values()} | {name}
        for old in list(self._names):
            if len(self._names) <= _REMEMBERED:
                break
            if old not in running:
                del self._names[old]

    def _forget(self, gathering: _Gathering, worker: int) -> None:
        """Take a worker out of a gathering, which ends with the last."""
        del gathering.members[worker], gathering.asks[worker], gathering.until_s[worker]
        if not gathering.members:
            self._gatherings.pop((gathering.first.job, gathering.first.start), None)

    def _refuse_all(self, gathering: _Gathering, why: str) -> list[Answer]:
        self._gatherings.pop((gathering.first.job, gathering.first.start), None)
        members: Sequence[Member] = list(gathering.members.values())
        for member in members:
            del self._of_member[member]
        return [self._refusal(member, why) for member in members]

    def _refusal(self, member: Member, why: str) -> Answer:
        self.counts["refused"] += 1
        return Answer(member, {"answer": "refused", "why": why})


def _difference(first: Ask, other: Ask) -> str | None:
    """Say in what two workers of one start disagree; None where they do not."""
    for name in ("workers", "slots", "lanes"):
        one, two = getattr(first, name), getattr(other, name)
        if one != two:
            return (
                f"the workers of job '{first.job}' disagree: {name} is {one} at worker {first.worker} and {two} at "
                f"worker {other.worker}; they must ask for the same"
            )
    return None
