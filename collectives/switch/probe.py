"""How many lanes a packet may have on the path to the switch: found with datagrams of each size, not assumed.

A probe is as long as an update with as many lanes, and is answered with as many bytes, so that both ways are known.
Called by whoever has joined, before any other packet. Each worker has a path of its own: a job takes the least of all.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import select
import struct
import time
from collections.abc import Callable

from collectives.errors import CollectiveTimeoutError
from collectives.switch.join import Ticket

SIZES = (2048, 1024, 512, 256, 128, 64, 32)
"""The lanes that are tried, of 32 bits."""

HEADER = struct.Struct(">HBBHHIIIIQQhhBBHQ")
"""The header of p4/shared/packet.json, to which a test holds it."""
_MAGIC, _VERSION, _PROBE, _PROBED = 0xC0CA, 1, 20, 21
_NO_EXPONENT = -32768
_ROUNDS = 5  # how often a size is tried before it is taken not to pass
_FIRST_WAIT_S = 0.02
_LEAST_WAIT_S = 0.005

Tag = Callable[[bytes, bytes], int]
"""(key, packet with auth 0) -> auth."""


def probe_lanes(ticket: Ticket, timeout: float = 2.0) -> int:
    """Return the most lanes, of 32 bits, whose datagrams pass to the switch and back.

    Parameters
    ----------
    ticket : Ticket
        From ``join``. Datagrams that came meanwhile and answer no probe are thrown away.
    timeout : float
        Seconds until it is an error that nothing passes.

    Returns
    -------
    int
        One of 2048, 1024, ... 32, and no more than the ticket has. A program that is built for one size (``fixed``)
        serves that size or none, and answers no probe: then it is the ticket's own.

    Raises
    ------
    CollectiveTimeoutError
        If no datagram came back.
    """
    if ticket.fixed:
        return ticket.lanes
    sizes = [lanes for lanes in SIZES if lanes <= ticket.lanes] or [ticket.lanes]
    search = _Search(ticket, sizes)
    until_s = time.monotonic() + timeout
    round_number = 0
    while search.sizes and search.best < search.sizes[0]:
        now_s = time.monotonic()
        if now_s >= until_s or (search.best and round_number >= _ROUNDS):
            break
        search.send()
        search.receive(min(until_s, now_s + search.wait_s))
        search.wait_s = min(2 * search.wait_s, 0.5)
        round_number += 1
    if search.best == 0:
        host, port = ticket.address
        raise CollectiveTimeoutError(
            f"within {timeout:.3g} s no datagram came back from the switch at {host}:{port}, although it answers over "
            "TCP: does a firewall let UDP pass on this port?"
        )
    return search.best


class _Search:
    """Which sizes have passed, and how long an answer takes."""

    def __init__(self, ticket: Ticket, sizes: list[int]) -> None:
        self.ticket = ticket
        self.sizes = sizes  # the largest first; those that cannot even be sent are taken out
        self.best = 0
        self.wait_s = _FIRST_WAIT_S
        self._nonce = secrets.randbits(64)  # an answer to another search is none to this one
        self._sent_s = 0.0

    def send(self) -> None:
        """Send a probe of each size that is larger than what has passed."""
        self._sent_s = time.monotonic()
        for lanes in [lanes for lanes in self.sizes if lanes > self.best]:
            try:
                self.ticket.udp.send(make_probe(self.ticket, lanes, self._nonce))
            except OSError as error:
                if error.errno == errno.EMSGSIZE:  # this machine's own link is too small
                    self.sizes.remove(lanes)
                # All else (a full queue, an ICMP error for an earlier one) is a loss.

    def receive(self, until_s: float) -> None:
        """Take what comes until the time, or until the largest has passed."""
        while self.sizes and self.best < self.sizes[0]:
            left_s = until_s - time.monotonic()
            if left_s <= 0 or not select.select([self.ticket.udp], [], [], left_s)[0]:
                return
            with contextlib.suppress(OSError):
                lanes = self._lanes_of(self.ticket.udp.recv(1 << 16))
                if lanes > self.best:
                    if self.best == 0:  # from now on, four times as long as that took
                        self.wait_s = max(_LEAST_WAIT_S, 2 * (time.monotonic() - self._sent_s))
                    self.best = lanes

    def _lanes_of(self, datagram: bytes) -> int:
        """Return the lanes of an answer to this search; 0 of anything else."""
        if len(datagram) < HEADER.size:
            return 0
        magic, version, kind, _, lanes, job, incarnation, _, _, nonce = HEADER.unpack_from(datagram)[:10]
        ours = (_MAGIC, _VERSION, _PROBED, self.ticket.job, self.ticket.incarnation, self._nonce)
        if (magic, version, kind, job, incarnation, nonce) != ours or lanes not in self.sizes:
            return 0
        return int(lanes) if len(datagram) == HEADER.size + 4 * lanes else 0


def make_probe(ticket: Ticket, lanes: int, nonce: int) -> bytes:
    """Return a probe of so many lanes, all 0, tagged where the ticket has a key."""
    auth = 0
    while True:
        header = HEADER.pack(
            _MAGIC,
            _VERSION,
            _PROBE,
            0,
            lanes,
            ticket.job,
            ticket.incarnation,
            0,
            0,
            nonce,
            0,
            _NO_EXPONENT,
            _NO_EXPONENT,
            ticket.worker,
            32,
            0,
            auth,
        )
        packet = header + bytes(4 * lanes)
        if ticket.key is None or auth:
            return packet
        auth = _tag(ticket.key, packet)


def _tag(key: bytes, packet: bytes) -> int:
    from collectives import _core

    return int(_core.packet_tag(key, packet))
