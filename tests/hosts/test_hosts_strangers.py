"""Strangers knock at a running job from a host of their own: results, memory and descriptors stay, a counter goes up.

They send noise, greet falsely and go on with frames of absurd length, open a thousand connections at once, and say one
byte a second. What the listener does with each of them, one by one, is in tests/cpp/transport/test_tcp.cc.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.hosts import Hosts, run_ranks_on_hosts, wait_until
from tests.hosts.ranks import store

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(120)]
Address = tuple[str, int]
STRANGER = 2  # the rank, on a host of its own, that is no member
HANDSHAKE_S = 5.0  # the library's patience with one (kHandshakeNs)
MEMORY_BYTES = 16 << 20  # what may come and go without strangers: buffers of an allocator, pages of Python
CROWD = 1000


@dataclass
class Account:
    """What a member saw."""

    rounds: int = 0
    memory_bytes: int = 0  # growth while the strangers knocked
    descriptors: int = 0  # growth from before they came to after they left
    log: list[str] = field(default_factory=list)


def member_or_stranger(rank: int, world_size: int, attack: str, folder: str) -> Account | int:
    """Rank 2 attacks ranks 0 and 1, which reduce until it is done; it returns how many connections it made."""
    here = Path(folder)
    if rank == STRANGER:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
        wait_until(lambda: len(list(here.glob("address.*"))) == 2, 30, "the addresses of the members")
        addresses = [_parsed(path.read_text()) for path in sorted(here.glob("address.*"))]
        made = ATTACKS[attack](addresses)
        (here / "done").touch()
        return made
    with _stderr_in(here / f"log.{rank}") as log:
        account = _member(rank, here)
        account.log = [line for line in log.read_text().splitlines() if "refused" in line]
    return account


def _member(rank: int, here: Path) -> Account:
    """Reduce and move until the strangers are done, checking every result."""
    from collectives import Communicator

    comm = Communicator.from_store(store(), rank, 2, timeout=20.0)
    account = Account()
    for _ in range(50):  # so that what is made once has been made
        _exchange(comm, rank, account)
    memory, descriptors = _memory_bytes(), len(os.listdir("/proc/self/fd"))
    place = re.search(r"at ([0-9.]+:[0-9]+)", comm.describe())
    assert place is not None, comm.describe()
    _appear(here / f"address.{rank}", place.group(1))
    account.rounds = 0
    going = np.ones(1, np.int64)
    while going[0]:
        _exchange(comm, rank, account)
        account.memory_bytes = max(account.memory_bytes, _memory_bytes() - memory)
        going[0] = not (here / "done").exists()
        comm.broadcast(going, root=0)
    # The links are served by whoever communicates: those who are still expected to greet go at the end of their time.
    end_s = time.monotonic() + HANDSHAKE_S + 3
    going[0] = 1
    while going[0]:
        _exchange(comm, rank, account)
        time.sleep(0.01)
        grown = np.array([len(os.listdir("/proc/self/fd")) - descriptors])
        account.descriptors = int(grown[0])
        comm.all_reduce(grown, "max")
        going[0] = grown[0] > 0 and time.monotonic() < end_s
        comm.broadcast(going, root=0)
    comm.barrier()
    comm.close()
    return account


def _exchange(comm, rank: int, account: Account) -> None:
    for count in (3, 3_000, 60_000):
        array = np.full(count, rank + 1.0 + account.rounds)
        comm.all_reduce(array)
        assert (array == 3.0 + 2 * account.rounds).all(), (account.rounds, count)
    out = np.empty(2_000, np.int32)
    comm.all_to_all(out, np.repeat(np.arange(2, dtype=np.int32) + 10 * rank, 1_000))
    assert (out == np.repeat([rank, 10 + rank], 1_000)).all()
    account.rounds += 1


# ---- the attacks: each returns how many connections it made to each member -------------------------------------------


def noise(addresses: list[Address]) -> int:
    """Random bytes of random length; every other one hangs up at once."""
    random = np.random.default_rng(7)
    made = 0
    for made in range(1, 151):
        for address in addresses:
            with _connected(address) as stranger:
                _say(stranger, random.bytes(int(random.integers(1, 5000))))
                if made % 2:
                    _hear(stranger, 0.01)
    return made


def false_greeting(addresses: list[Address]) -> int:
    """A greeting in the right form, a proof that is none, then what could be frames if anybody believed it."""
    random = np.random.default_rng(8)
    made = 0
    for made in range(1, 201):
        for address in addresses:
            with _connected(address) as stranger:
                # Magic, identity, nonce, lane, seven zeros: csrc/transport/tcp_connection.h.
                _say(stranger, b"colltcp1" + random.bytes(16 + 32) + bytes(8))
                answer = _hear(stranger, 1.0)
                # It has to prove itself, too, and its proof is no use to us: we send it back.
                proof = answer[-32:] if made % 2 else random.bytes(32)
                _say(stranger, proof + _frame(length=1 << (20 + made % 40)) + random.bytes(4096))
                _hear(stranger, 0.5)
    return made


def crowd(addresses: list[Address]) -> int:
    """A thousand connections at once to each, open and silent, for some seconds."""
    held = []
    for _ in range(CROWD):
        for address in addresses:
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(address)
            held.append(stranger)
    time.sleep(2.0)
    for each in held:
        each.close()
    return CROWD


def slow_talkers(addresses: list[Address]) -> int:
    """Fifty who begin a proper greeting and say one byte of it a second, for longer than one has for all of it."""
    held = [_connected(address) for address in addresses for _ in range(50)]
    for byte in b"colltcp1"[: int(HANDSHAKE_S) + 2]:
        for stranger in held:
            _say(stranger, bytes([byte]))
        time.sleep(1.0)
    for stranger in held:
        stranger.close()
    return 50


ATTACKS: dict[str, Callable[[list[Address]], int]] = {
    "noise": noise,
    "false_greeting": false_greeting,
    "crowd": crowd,
    "slow_talkers": slow_talkers,
}


def _frame(length: int) -> bytes:
    """Return a header as csrc/wire/frame.h lays it out: data of operation 1 of some group, this many bytes long."""
    return struct.pack("<IHBBQQQQqIIQ", 0x4C4C4F43, 1, 1, 0, 5, 1, 2, 3, 4, 0, 0, length)


def _connected(address: Address) -> socket.socket:
    return socket.create_connection(address, timeout=10)


def _say(stranger: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it may have hung up
        stranger.sendall(data)


def _hear(stranger: socket.socket, seconds: float) -> bytes:
    if not select.select([stranger], [], [], seconds)[0]:
        return b""
    with contextlib.suppress(OSError):
        return stranger.recv(4096)
    return b""


# ---- the tests -------------------------------------------------------------------------------------------------------


def _parsed(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host, int(port)


def _appear(path: Path, text: str) -> None:
    path.with_name(f".{path.name}").write_text(text)
    path.with_name(f".{path.name}").rename(path)


def _memory_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def _stderr_in(path: Path) -> Iterator[Path]:
    """Have what the library writes to stderr in a file."""
    saved = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 2)
    try:
        yield path
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(file)


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_strangers_change_nothing_but_a_counter(attack: str, tmp_path: Path) -> None:
    with Hosts(3) as hosts:
        *members, made = run_ranks_on_hosts(
            member_or_stranger, hosts, 1, attack, str(tmp_path), backend=None, timeout=90
        )
    for account in members:
        assert account.rounds > 30, account
        assert account.memory_bytes < MEMORY_BYTES, account
        assert account.descriptors <= 0, account
        # One line a power of two, up to the number of those who came: 1, 2, 4, 8, ...
        counts = [int(re.search(r"refused (\d+) connection", line).group(1)) for line in account.log]
        assert counts == [2**power for power in range(len(counts))], account.log
        assert made / 2 < 2 ** len(counts) <= 2 * made, (made, account.log)
