"""The worker's way into a switch: ask over TCP, prove, and come back with a ticket. Blocking, with a deadline.

Called by whoever forms a group that may use a switch, and by ``status``. Imports the errors and the lines of the
protocol; nothing of the server.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import socket
import time
from typing import Any

from collectives.errors import CollectivesError, CollectiveTimeoutError, PeerFailedError
from collectives.switch import lines

_IP_MTU_DISCOVER, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE = 10, 23, 3  # Linux; Python's socket has no names for them
_GRACE_S = 0.5  # what is left of the deadline for the switch's "nobody else came" to arrive


@dataclasses.dataclass
class Ticket:
    """What joining found: all that the packets of a worker need.

    Attributes
    ----------
    job, incarnation : int
        The numbers that packets carry.
    slots, lanes : int
        The job's slots, and the most lanes of its packets.
    lane_bits : tuple of int
        The widths that the switch serves.
    fixed : bool
        Every packet must have exactly ``lanes`` lanes: the switch's program is built for one size.
    tags : bool
        Whether packets carry keyed tags.
    key : bytes or None
        Of the tags, 32 bytes; None where there are none.
    worker, workers : int
        This worker's number, and how many there are.
    udp : socket
        Bound to the address that the control connection has, connected to the switch, non-blocking; its packets are
        never fragmented.
    control : socket
        The lease. It ends (a read returns nothing, or fails) when the switch has lost or ended the job.
    address : (str, int)
        The switch's.
    name : str
        The job's.
    """

    job: int
    incarnation: int
    slots: int
    lanes: int
    lane_bits: tuple[int, ...]
    fixed: bool
    tags: bool
    key: bytes | None = dataclasses.field(repr=False)
    worker: int
    workers: int
    udp: socket.socket
    control: socket.socket
    address: tuple[str, int]
    name: str

    def leave(self) -> None:
        """Close both sockets, by which the switch knows: the job ends for all its workers. May be called twice."""
        for one in (self.udp, self.control):
            one.close()

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


def join(
    address: tuple[str, int],
    secret: str | bytes | None,
    job: str,
    start: str,
    worker: int,
    workers: int,
    slots: int,
    lanes: int,
    timeout: float,
) -> Ticket:
    """Join a job at a switch; returns when all its workers have asked.

    Parameters
    ----------
    address : (str, int)
        The switch's host and port.
    secret : str, bytes or None
        The switch's; None: the switch is open.
    job : str
        The job's name.
    start : str
        32 hexadecimal digits that rank 0 draws whenever the group forms; the same on all workers.
    worker, workers : int
        This worker's number from 0, and how many there are.
    slots, lanes : int
        How many slots are wanted, and the most lanes of a packet; the same on all workers.
    timeout : float
        Seconds, for all of it.

    Returns
    -------
    Ticket
        ``lanes`` may be fewer than were asked for.

    Raises
    ------
    ValueError
        If an argument is wrong.
    PeerFailedError
        If the switch cannot be reached, or goes away.
    CollectiveTimeoutError
        If the deadline passed.
    CollectivesError
        If it refuses, with its reason; if it does not hold the secret, or is no switch.
    """
    secret = lines.as_secret(secret)
    if not lines.is_hex_16(start):
        raise ValueError(f"start is {start!r}; draw 16 bytes on rank 0, as secrets.token_hex(16) does")
    if not 0 <= worker < workers:
        raise ValueError(f"worker {worker} of {workers}: number them from 0")
    with contextlib.ExitStack() as undo:
        talk = undo.enter_context(Conversation(address, secret, timeout))
        udp = undo.enter_context(_bind_beside(talk.control))
        fields = {
            "ask": "join",
            "job": job,
            "start": start,
            "worker": worker,
            "workers": workers,
            "slots": slots,
            "lanes": lanes,
            "udp_port": udp.getsockname()[1],
            "wait_ms": max(1, int((talk.left_s() - min(_GRACE_S, timeout / 10)) * 1e3)),
        }
        answer = talk.ask(fields, lines.MOST_LINE_BYTES, f"for the other workers of job '{job}'")
        ticket = _ticket(answer, talk, udp, fields)
        undo.pop_all()
    return ticket


def ask_status(address: tuple[str, int], secret: str | bytes | None, timeout: float = 10.0) -> dict[str, Any]:
    """Return what a switch tells of itself: the plain values of docs/switch.md.

    Parameters
    ----------
    address : (str, int)
        The switch's host and port.
    secret : str, bytes or None
        The switch's; None: the switch is open.
    timeout : float
        Seconds, for all of it.

    Raises
    ------
    CollectivesError
        As :func:`join` raises them.
    """
    with Conversation(address, lines.as_secret(secret), timeout) as talk:
        answer = talk.ask({"ask": "status"}, lines.MOST_ANSWER_BYTES, "for its status")
        status = answer.get("status")
        if not isinstance(status, dict):
            raise CollectivesError(f"{talk.where} answered with no status; is it a switch of this version?")
        return status


class Conversation:
    """A control connection on which one thing is asked.

    Parameters
    ----------
    address : (str, int)
        The switch's host and port.
    secret : bytes or None
        What is proven with, and what the switch must prove.
    timeout : float
        Seconds, for all of it.
    """

    def __init__(self, address: tuple[str, int], secret: bytes | None, timeout: float) -> None:
        self.secret = secret
        self.where = f"the switch at {address[0]}:{address[1]}"
        self._until_s = time.monotonic() + timeout
        self._timeout = timeout
        self._challenge = secrets.token_hex(16)
        self._received = b""
        try:
            self.control = socket.create_connection(address, timeout=timeout)
        except TimeoutError:
            raise self._late("to be reached") from None
        except OSError as error:
            raise PeerFailedError(
                f"{self.where} cannot be reached: {error.strerror or error}; is it running, and is the address right?"
            ) from None
        for option in lines.SOCKET_OPTIONS:
            self.control.setsockopt(*option)

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.control.close()

    def left_s(self) -> float:
        """Return how many seconds are left, 0 or less where none are."""
        return self._until_s - time.monotonic()

    def ask(self, fields: dict[str, Any], most_bytes: int, waiting: str) -> dict[str, Any]:
        """Ask, and return the answer, which is proven; a refusal is raised.

        Parameters
        ----------
        fields : dict
            The line, without challenge and proof.
        most_bytes : int
            The longest answer that is read.
        waiting : str
            What for, in the words of an error.
        """
        greeting = self._decode(self._line(lines.MOST_LINE_BYTES, "for its greeting"))
        theirs = greeting.get("challenge")
        if greeting.get("collectives-switch") != lines.PROTOCOL or not lines.is_hex_16(theirs):
            version = greeting.get("version", "unknown")
            raise CollectivesError(
                f"{self.where} does not speak version {lines.PROTOCOL} of the switch's protocol (it is of collectives "
                f"{version}); use the same version on both sides"
            )
        assert isinstance(theirs, str)
        fields = fields | {"challenge": self._challenge}
        if self.secret is not None:
            fields["proof"] = lines.prove(self.secret, theirs, fields)
        try:
            self.control.settimeout(max(1e-3, self.left_s()))
            self.control.sendall(lines.encode(fields))
        except OSError as error:
            raise PeerFailedError(f"{self.where} closed the connection: {error}") from None
        answer = self._decode(self._line(most_bytes, waiting))
        proven = self.secret is None or lines.is_proven(self.secret, self._challenge, answer)
        if answer.get("answer") == "refused":
            doubt = "" if proven else " (it proved nothing)"
            raise CollectivesError(f"{self.where} refused{doubt}: {answer.get('why')}")
        if not proven:
            raise CollectivesError(
                f"{self.where} did not prove that it holds the secret of COLLECTIVES_SWITCH_SECRET: it is open, or not "
                "the switch that you mean"
            )
        return answer

    def _line(self, most_bytes: int, waiting: str) -> bytes:
        """Read one line."""
        parts = [self._received]
        size = len(self._received)
        while b"\n" not in parts[-1]:
            left_s = self.left_s()
            if left_s <= 0:
                raise self._late(waiting)
            if size > most_bytes:
                raise CollectivesError(f"{self.where} sent a line of more than {most_bytes} bytes: is it a switch?")
            try:
                self.control.settimeout(left_s)
                data = self.control.recv(1 << 16)
            except TimeoutError:
                raise self._late(waiting) from None
            except OSError as error:
                raise PeerFailedError(f"{self.where} went away while this process waited {waiting}: {error}") from None
            if not data:
                raise PeerFailedError(f"{self.where} closed the connection while this process waited {waiting}")
            parts.append(data)
            size += len(data)
        line, _, self._received = b"".join(parts).partition(b"\n")
        return line

    def _decode(self, line: bytes) -> dict[str, Any]:
        try:
            return lines.decode(line)
        except ValueError:
            raise CollectivesError(f"{self.where} answered {line[:40]!r}: it is no switch") from None

    def _late(self, waiting: str) -> CollectiveTimeoutError:
        return CollectiveTimeoutError(f"{self.where}: {self._timeout:.3g} s passed waiting {waiting}")


def _bind_beside(control: socket.socket) -> socket.socket:
    """Return a UDP socket at the address that a control connection has here."""
    own = control.getsockname()
    udp = socket.socket(control.family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    try:
        udp.bind((own[0], 0, *own[2:]))
        # A packet that is too long for the path must be lost, not cut up: a switch takes no fragments. PROBE: the size
        # that `probe` finds counts, not what the kernel remembers of the path.
        if control.family == socket.AF_INET6:
            udp.setsockopt(socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _PMTUDISC_PROBE)
        else:
            udp.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _PMTUDISC_PROBE)
        udp.setblocking(False)
    except OSError:
        udp.close()
        raise
    return udp


def _ticket(answer: dict[str, Any], talk: Conversation, udp: socket.socket, asked: dict[str, Any]) -> Ticket:
    """Make the ticket of an answer."""
    try:
        numbers = {name: int(answer[name]) for name in ("job", "incarnation", "slots", "lanes", "udp_port")}
        tags, salt = bool(answer["tags"]), answer["salt"]
        lane_bits = tuple(int(bits) for bits in answer["lane_bits"])
        if answer["answer"] != "admitted" or not lines.is_hex_16(salt):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise CollectivesError(f"{talk.where} answered neither 'admitted' nor 'refused': {str(answer)[:200]}") from None
    if tags and talk.secret is None:
        raise CollectivesError(f"{talk.where} wants keyed tags, and gave no secret to make the key of")
    key = None
    if tags and talk.secret is not None:
        key = lines.packet_key(talk.secret, numbers["job"], numbers["incarnation"], asked["start"], salt)
    peer = talk.control.getpeername()
    udp.connect((peer[0], numbers.pop("udp_port"), *peer[2:]))
    talk.control.setblocking(False)
    return Ticket(
        **numbers,
        lane_bits=lane_bits,
        fixed=bool(answer.get("fixed", False)),
        tags=tags,
        key=key,
        worker=asked["worker"],
        workers=asked["workers"],
        udp=udp,
        control=talk.control,
        address=(peer[0], peer[1]),
        name=asked["job"],
    )
