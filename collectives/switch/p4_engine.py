"""The engine that runs a P4 program: UDP sockets on one side, the interpreter on the other, a thread between them.

Each datagram gets the headers that it would have had on a wire, goes through the program as a frame, and what leaves is
sent to where the program addressed it. So any edited copy of p4/aggregate.p4 serves real training jobs. Made by
``engines.make``; imports the interpreter (extra ``p4``).
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import pathlib
import selectors
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Sequence

from collectives.p4.aggregation import VERDICTS, Aggregation
from collectives.p4.aggregation import Refused as P4Refused
from collectives.p4.aggregation import Worker as P4Worker
from collectives.p4.errors import P4Error, P4RuntimeError
from collectives.switch.engines import Address, JobState, Refused, Waiting, WorkerState, refuse_ports
from collectives.switch.frames import Pcap, unwrap, wrap

logger = logging.getLogger("collectives.switch")

_PORT = 1  # of the program: all workers are behind one, since sockets do not say by which wire a packet came
_P4_UDP_PORT = 5190  # UDP_PORT of p4/shared/constants.p4, whatever the socket's is
_UNKNOWN_ADDRESS = "10.0.0.254"  # the switch's own, where it listens at all
_BATCH = 64  # datagrams of a socket before the others have their turn
_MOST_BYTES = 65536
_HEADER_BYTES = 56
_JOB_AND_SLOT = struct.Struct(">8xI4xII")  # of our header: job, slot, epoch
_IP_PKTINFO = 8  # Linux; Python's socket has no name for it
_PKTINFO = struct.Struct("@i4s4s")  # interface, address to send from, address it was sent to


class _Place:
    """A worker's address and port, and by which socket (and from which own address) it is answered."""

    def __init__(self, way: tuple[socket.socket, bytes | None]) -> None:
        self.way = way


@dataclasses.dataclass
class _Worker:
    place: Address
    verdicts: Counter[str] = dataclasses.field(default_factory=Counter)
    last_ns: int | None = None


@dataclasses.dataclass
class _Waiting:
    epoch: int
    begun_ns: int
    have: set[int]


@dataclasses.dataclass
class _Job:
    incarnation: int
    slots: int
    workers: list[_Worker]
    numbers: dict[Address, int]
    slot_verdicts: dict[int, Counter[str]] = dataclasses.field(default_factory=dict)
    waiting: dict[int, _Waiting] = dataclasses.field(default_factory=dict)  # by slot, in the order in which they began


class P4Engine:
    """A P4 program that serves UDP sockets; the methods are those of :class:`collectives.switch.engines.Engine`.

    Parameters
    ----------
    addresses : sequence of (IPv4 address, UDP port)
        Where to take packets; port 0: any.
    program : path
        ``p4/aggregate.p4``, or an edited copy.
    lanes, lane_bits, max_slots : int
        What it is built for: the macros LANES, LANE_BITS and MAX_SLOTS.
    pcap : path, optional
        Where every frame is recorded, as the program sees and sends it.
    seed : int
        What the program's ``random`` draws from.

    Raises
    ------
    P4Error
        If the program is wrong; the text has file, line and column.
    ValueError
        If it lacks a table or counter that the control plane fills or reads, or an address is no IPv4 address.
    OSError
        If an address cannot be bound.
    """

    name = "p4"
    fixed = True
    tags = False

    def __init__(
        self,
        addresses: Sequence[Address],
        program: str | os.PathLike[str],
        lanes: int = 64,
        lane_bits: int = 32,
        max_slots: int = 256,
        pcap: str | None = None,
        seed: int = 0,
    ) -> None:
        refuse_ports(addresses)
        if wrong := [address for address, _ in addresses if ":" in address]:
            raise ValueError(f"the P4 program speaks IPv4, and {wrong[0]} is an IPv6 address; listen at an IPv4 one")
        self.lanes = lanes
        self.lane_bits: tuple[int, ...] = (lane_bits,)
        self._own = addresses[0][0] if addresses[0][0] != "0.0.0.0" else _UNKNOWN_ADDRESS
        self._sockets = [_open(place) for place in addresses]
        self.addresses: Sequence[Address] = [one.getsockname() for one in self._sockets]
        self._pcap: Pcap | None = None
        try:
            self._switch = _load(program, lanes, lane_bits, max_slots, seed, self._own)
            self._pcap = Pcap(pcap) if pcap is not None else None
        except BaseException:
            for one in self._sockets:
                one.close()
            raise
        self._verdict_counts = [0] * len(VERDICTS)
        self._extra: Counter[str] = Counter()  # what no verdict counts
        self._said: set[str] = set()
        self._lock = threading.Lock()
        self._jobs: dict[int, _Job] = {}
        self._places: dict[Address, _Place] = {}
        self._closing = False
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="collectives-switch-p4", daemon=True)
        self._thread.start()

    # ---- what the control plane calls

    def admit(
        self, job: int, incarnation: int, workers: Sequence[Address], slots: int, most_lanes: int, key: bytes | None
    ) -> None:
        """Admit a job; see the protocol of engines."""
        if most_lanes != self.lanes:
            raise Refused(f"the program is built for packets of {self.lanes} lanes, and job {job} has {most_lanes}")
        if key is not None:
            raise Refused("a P4 program checks no tags; it takes no key")
        places = [(address, port) for address, port in workers]
        with self._lock:
            try:
                self._switch.admit(job, incarnation, [P4Worker(*place, _PORT) for place in places], slots)
            except P4Refused as error:
                raise Refused(str(error)) from None
            numbers = {place: number for number, place in enumerate(places)}
            self._jobs[job] = _Job(incarnation, slots, [_Worker(place) for place in places], numbers)
            self._find_places()

    def release(self, job: int) -> bool:
        """Forget a job; False where there is none."""
        with self._lock:
            if self._jobs.pop(job, None) is None:
                return False
            self._switch.release(job)
            self._find_places()
            return True

    def counters(self) -> dict[str, int]:
        """Return the program's counters, and what went wrong around it."""
        with self._lock:
            found = self._switch.counters()
            found.pop("goes_on")
            return found | {name: self._extra[name] for name in ("program_errors", "not_sent")}

    def jobs(self) -> list[JobState]:
        """Return what is kept of each job."""
        with self._lock:
            return [
                JobState(
                    number,
                    job.incarnation,
                    job.slots,
                    self.lanes,
                    [WorkerState(*one.place, dict(one.verdicts), one.last_ns) for one in job.workers],
                    {slot: dict(verdicts) for slot, verdicts in sorted(job.slot_verdicts.items())},
                )
                for number, job in sorted(self._jobs.items())
            ]

    def waiting(self) -> list[Waiting]:
        """Return the oldest incomplete epoch of each job that has one, the oldest first."""
        found = []
        with self._lock:
            for number, job in self._jobs.items():
                if job.waiting:
                    slot, oldest = next(iter(job.waiting.items()))
                    missing = [worker for worker in range(len(job.workers)) if worker not in oldest.have]
                    found.append(Waiting(number, slot, oldest.epoch, oldest.begun_ns, missing))
        return sorted(found, key=lambda one: one.begun_ns)

    def now_ns(self) -> int:
        """Return the time on the engine's clock."""
        return time.monotonic_ns()

    def close(self) -> None:
        """End the thread and close the sockets."""
        if self._closing:
            return
        self._closing = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)
        for one in self._sockets:
            one.close()
        if self._pcap is not None:
            self._pcap.close()

    def _find_places(self) -> None:
        """Keep a place for each worker of an admitted job, and for nobody else."""
        before = self._places
        usual = _Place((self._sockets[0], None))
        wanted = {worker.place for job in self._jobs.values() for worker in job.workers}
        self._places = {place: before.get(place) or _Place(usual.way) for place in wanted}

    # ---- the thread

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for one in self._sockets:
                selector.register(one, selectors.EVENT_READ)
            while not self._closing:
                for key, _ in selector.select():
                    if isinstance(key.fileobj, socket.socket):
                        self._drain(key.fileobj)
                if self._pcap is not None:
                    self._pcap.flush()

    def _drain(self, one: socket.socket) -> None:
        """Take what came to a socket, at most a batch."""
        for _ in range(_BATCH):
            try:
                datagram, ancillary, _, source = one.recvmsg(_MOST_BYTES, 64)
            except BlockingIOError:
                return
            except OSError as error:  # such as an ICMP error; the socket stays as it is
                self._complain(f"{one.getsockname()}: receiving failed: {error}")
                return
            own = next((_PKTINFO.unpack(data)[1] for _, kind, data in ancillary if kind == _IP_PKTINFO), None)
            try:
                self._serve(datagram, source, (one, own))
            except P4RuntimeError as error:
                self._extra["program_errors"] += 1
                self._complain(str(error))
            except Exception:
                # One packet must not end the service of all others; a fault of ours is told with its place.
                self._extra["program_errors"] += 1
                logger.exception("a packet of %d bytes from %s:%d failed", len(datagram), *source)

    def _serve(self, datagram: bytes, source: Address, way: tuple[socket.socket, bytes | None]) -> None:
        """Take one datagram through the program, and send what leaves."""
        now_ns = time.monotonic_ns()
        frame = wrap(source, (self._own, _P4_UDP_PORT), datagram)
        if self._pcap is not None:
            self._pcap.write(frame)
        with self._lock:
            place = self._places.get(source)
            if place is not None:
                place.way = way
            leaving = self._switch.process(frame, _PORT, now_ns // 1000)
            self._count(datagram, source, now_ns)
            ways = self._places
        for _, reply in leaving:
            if self._pcap is not None:
                self._pcap.write(reply)
            self._send(reply, ways)

    def _send(self, frame: bytes, places: dict[Address, _Place]) -> None:
        """Send a frame of the program to the worker that it is addressed to."""
        reply = unwrap(frame)
        place = None if reply is None else places.get((reply.address, reply.udp_port))
        if reply is None or place is None:
            self._extra["not_sent"] += 1
            self._complain(
                "the program sent a frame that is no UDP packet over IPv4 with right lengths"
                if reply is None
                else f"the program sent a packet to {reply.address}:{reply.udp_port}, where no worker is"
            )
            return
        one, own = place.way
        ancillary = [] if own is None else [(socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO.pack(0, own, bytes(4)))]
        try:
            one.sendmsg([reply.payload], ancillary, 0, (reply.address, reply.udp_port))
        except OSError as error:  # lost, as on a wire: the worker asks again
            self._extra["not_sent"] += 1
            if error.errno not in (errno.EAGAIN, errno.ENOBUFS):
                self._complain(f"sending to {reply.address}:{reply.udp_port} failed: {error}")

    def _count(self, datagram: bytes, source: Address, now_ns: int) -> None:
        """Note what became of a packet, if it is of an admitted worker; the program itself counts for all together."""
        verdict = self._verdict()
        if verdict is None or len(datagram) < _HEADER_BYTES:
            return
        number, slot, epoch = _JOB_AND_SLOT.unpack_from(datagram)
        job = self._jobs.get(number)
        worker_number = job.numbers.get(source) if job is not None else None
        if job is None or worker_number is None:
            return
        worker = job.workers[worker_number]
        worker.verdicts[verdict] += 1
        worker.last_ns = now_ns
        if slot >= job.slots or verdict in ("malformed", "stale_incarnation"):
            return
        job.slot_verdicts.setdefault(slot, Counter())[verdict] += 1
        if verdict == "completed":
            job.waiting.pop(slot, None)
        elif verdict == "added":
            waiting = job.waiting.get(slot)
            if waiting is None or waiting.epoch != epoch:
                waiting = job.waiting[slot] = _Waiting(epoch, now_ns, set())
            waiting.have.add(worker_number)

    def _verdict(self) -> str | None:
        """Return what became of the packet that was processed last: which of the program's counters has moved."""
        cells = self._switch.switch.counters["AggregationIngress.verdicts"]
        found = None
        for index, before in enumerate(self._verdict_counts):
            packets = cells[index].packets
            if packets != before:
                self._verdict_counts[index] = packets
                found = VERDICTS[index]
        return found

    def _complain(self, text: str) -> None:
        """Log something once; what goes wrong with one packet goes wrong with thousands."""
        if text not in self._said and len(self._said) < 1000:
            self._said.add(text)
            logger.error("%s", text)


def _open(place: Address) -> socket.socket:
    """Return a UDP socket that is bound; one at all addresses answers from the one that it was asked at."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        one.bind(place)
        one.setblocking(False)
        if place[0] == "0.0.0.0":
            one.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    except OSError as error:
        one.close()
        raise OSError(error.errno, f"cannot take packets at {place[0]}:{place[1]}: {error.strerror}") from None
    return one


def _load(
    program: str | os.PathLike[str], lanes: int, lane_bits: int, max_slots: int, seed: int, own: str
) -> Aggregation:
    """Load the program, and see that it has what the control plane fills and reads."""
    if not pathlib.Path(program).is_file():
        raise ValueError(f"there is no P4 program {os.fspath(program)}")
    try:
        switch = Aggregation.load(program, lanes, lane_bits, max_slots, seed, address=own)
        switch.counters()
        # A job of one worker, taken in and out again: every table and action that a real one needs.
        switch.admit(job=0, incarnation=0, workers=[P4Worker("192.0.2.1", 1, _PORT)], slots=1)
        switch.release(0)
    except P4Error:
        raise
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"{os.fspath(program)}: the control plane cannot work with this program: {error.args[0]}; keep the names "
            "of tables, actions and counters of p4/aggregate.p4"
        ) from None
    return switch
