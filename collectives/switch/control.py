"""The control connections of a switch, over TCP: challenge, proof, and then joining or a question.

An admitted worker's connection is its lease: when it ends, however it ends, the worker has left. What is not proven
costs its own connection and nothing else: lines, time and number of unproven connections are limited, and when there
are too many the oldest goes, since an honest worker proves itself at once. Driven by ``command``; decides nothing about
jobs (``admission`` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ipaddress
import logging
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import collectives
from collectives.switch import lines, metrics
from collectives.switch.admission import Admissions, Answer, Limits, read_ask
from collectives.switch.engines import Engine, Refused

logger = logging.getLogger("collectives.switch")

# One that does not take what it is sent is given up as well.
_SOCKET_OPTIONS = (*lines.SOCKET_OPTIONS, (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 15_000))


@dataclasses.dataclass(frozen=True)
class Guard:
    """What a connection may cost before it has proven anything.

    Attributes
    ----------
    prove_s : float
        How long it may take to prove that it holds the secret.
    unproven : int
        How many may be unproven at a time; one more closes the oldest of them.
    answer_s : float
        How long one that was answered may take to read it.
    """

    prove_s: float = 5.0
    unproven: int = 512
    answer_s: float = 10.0


class _Connection:
    """One connection; a member of :class:`Admissions` once it has asked to join."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, challenge: str) -> None:
        self.reader = reader
        self.writer = writer
        self.challenge = challenge  # ours
        self.their_challenge = ""
        self.address = plain_address(writer.get_extra_info("peername")[0])
        self.udp_port = writer.get_extra_info("sockname")[1]  # the twin of the port that it came to


def plain_address(address: str) -> str:
    """Return an address as the packets from it show it: IPv4 where it is IPv4 in an IPv6 form."""
    plain = ipaddress.ip_address(address)
    mapped = plain.ipv4_mapped if isinstance(plain, ipaddress.IPv6Address) else None
    return str(mapped) if mapped is not None else address


class Control:
    """The control plane of one switch.

    Parameters
    ----------
    engine : Engine
        Runs the packets. It stays the caller's to close.
    secret : bytes or None
        What workers must hold; None: an open switch, which asks for no proof.
    limits : Limits
        Quotas of jobs.
    guard : Guard
        Limits of connections.
    draw : callable
        Number of bytes to random bytes.
    """

    def __init__(
        self,
        engine: Engine,
        secret: bytes | None,
        limits: Limits | None = None,
        guard: Guard | None = None,
        draw: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.engine = engine
        self.limits = limits if limits is not None else Limits()
        self.guard = guard if guard is not None else Guard()
        self.admissions = Admissions(engine, self.limits, secret, draw)
        self.counts: Counter[str] = Counter()
        self._secret = secret
        self._draw = draw
        self._unproven: dict[_Connection, None] = {}  # in the order in which they came
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._timer: asyncio.TimerHandle | None = None
        self._begun_s = time.monotonic()

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Listen at TCP sockets that are bound; they are closed with the control plane."""
        for one in sockets:
            server = await asyncio.start_server(
                self._serve, sock=one, limit=lines.MOST_LINE_BYTES, backlog=1024, start_serving=True
            )
            self._servers.append(server)

    async def close(self) -> None:
        """Close every connection, by which the workers know, and release the jobs."""
        for server in self._servers:
            server.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self._connections):
            connection.writer.transport.abort()
        while self._connections:
            await asyncio.sleep(0)  # their tasks end in this loop's next rounds

    # ---- one connection

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = _Connection(reader, writer, self._draw(16).hex())
            for option in _SOCKET_OPTIONS:
                writer.get_extra_info("socket").setsockopt(*option)
        except (OSError, TypeError):  # it is gone already, and has no address any more
            writer.transport.abort()
            return
        self.counts["connections"] += 1
        self._connections.add(connection)
        self._enter(connection)
        try:
            fields = await self._prove(connection)
            if fields is not None:
                await self._answer(connection, fields)
        except (OSError, asyncio.IncompleteReadError):
            pass  # it went away
        except Exception:
            # A fault of ours, told with its place; it must not end the service of others.
            logger.exception("the connection of %s failed", connection.address)
        finally:
            self._unproven.pop(connection, None)
            self._connections.discard(connection)
            self._deliver(self.admissions.leave(connection))
            writer.close()

    def _enter(self, connection: _Connection) -> None:
        """Count a new connection among the unproven; the oldest makes room."""
        if len(self._unproven) >= self.guard.unproven:
            oldest = next(iter(self._unproven))
            del self._unproven[oldest]
            self.counts["crowded_out"] += 1
            oldest.writer.transport.abort()
        self._unproven[connection] = None

    async def _prove(self, connection: _Connection) -> dict[str, Any] | None:
        """Greet, and read the line that says what is wanted and proves that it may be; None where it does not."""
        greeting = {
            "collectives-switch": lines.PROTOCOL,
            "version": collectives.__version__,
            "challenge": connection.challenge,
        }
        connection.writer.write(lines.encode(greeting))
        try:
            async with asyncio.timeout(self.guard.prove_s):
                line = await connection.reader.readuntil(b"\n")
            fields = lines.decode(line)
        except TimeoutError:
            self.counts["too_slow"] += 1
            return None
        except (ValueError, asyncio.LimitOverrunError):
            self.counts["garbage"] += 1
            return None
        if fields.get("ask") not in ("join", "status") or not lines.is_hex_16(fields.get("challenge")):
            self.counts["garbage"] += 1
            return None
        if self._secret is not None and not lines.is_proven(self._secret, connection.challenge, fields):
            self.counts["wrong_proof"] += 1
            why = (
                "the proof is wrong: this switch has another secret"
                if "proof" in fields
                else "this switch has a secret"
            )
            hint = "set COLLECTIVES_SWITCH_SECRET to what the switch was started with"
            connection.writer.write(lines.encode({"answer": "refused", "why": f"{why}; {hint}"}))
            return None
        connection.their_challenge = fields["challenge"]
        self._unproven.pop(connection, None)
        self.counts["proven"] += 1
        return fields

    async def _answer(self, connection: _Connection, fields: dict[str, Any]) -> None:
        """Do what a connection that has proven itself wants."""
        if fields["ask"] == "status":
            self.counts["asked_status"] += 1
            self._tell(connection, {"answer": "status", "status": self.status()})
            async with asyncio.timeout(self.guard.answer_s):
                await connection.writer.drain()
            return
        try:
            ask = read_ask(fields, connection.address, self.limits)
        except Refused as error:
            self.admissions.counts["refused"] += 1
            self._tell(connection, {"answer": "refused", "why": str(error)})
            return
        self._deliver(self.admissions.ask(connection, ask, self._now_s()))
        # From here on it has nothing to say; what ends this wait ends the lease.
        if await connection.reader.read(1):
            self.counts["garbage"] += 1

    # ---- answers

    def _deliver(self, answers: Iterable[Answer]) -> None:
        """Tell connections what has been decided about them."""
        for answer in answers:
            connection = answer.member
            assert isinstance(connection, _Connection)
            if answer.fields is not None:
                fields = dict(answer.fields)
                if answer.admitted:
                    fields["udp_port"] = connection.udp_port
                else:
                    logger.info("refused %s: %s", connection.address, fields["why"])
                self._tell(connection, fields)
            if not answer.admitted:
                connection.writer.close()
        if any(answer.admitted for answer in answers):
            logger.info("%d jobs are admitted", len(self.admissions.running))
        self._set_timer()

    def _tell(self, connection: _Connection, fields: dict[str, Any]) -> None:
        if self._secret is not None:
            fields = fields | {"proof": lines.prove(self._secret, connection.their_challenge, fields)}
        with contextlib.suppress(OSError):
            connection.writer.write(lines.encode(fields))

    def _set_timer(self) -> None:
        """See to it that who waits too long is told."""
        if self._timer is not None:
            self._timer.cancel()
        at_s = self.admissions.next_expiry_s()
        self._timer = asyncio.get_running_loop().call_at(at_s, self._expire) if at_s is not None else None

    def _expire(self) -> None:
        self._deliver(self.admissions.expire(self._now_s()))

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # ---- what it tells of itself

    def status(self) -> dict[str, Any]:
        """Return everything that ``status`` and the metrics show: plain values, as docs/switch.md describes them."""
        return metrics.collect(
            self.engine,
            self.admissions,
            connections=dict(self.counts) | {"unproven_now": len(self._unproven), "now": len(self._connections)},
            version=collectives.__version__,
            up_s=time.monotonic() - self._begun_s,
            now_s=self._now_s(),
        )
