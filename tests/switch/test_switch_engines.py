"""Both engines on real sockets: workers that joined send packets made by hand, and get sums."""

from __future__ import annotations

import contextlib
import pathlib
import socket
from collections.abc import Iterator

import pytest

pytest.importorskip("scapy")
pytest.importorskip("lark")

from switch_helpers import START, Served, join_all, served

from collectives import _core
from collectives.scapy_layer import Aggregation as Packet
from collectives.switch.command import bind_pairs
from collectives.switch.engines import EngineOptions, Refused
from collectives.switch.join import Ticket
from collectives.switch.native_engine import NativeEngine
from collectives.switch.probe import probe_lanes

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "p4" / "aggregate.p4"
LANES = 32


@contextlib.contextmanager
def switch_of(engine: str) -> Iterator[Served]:
    """A switch as the command makes it: TCP and UDP at one port."""
    sockets, made = bind_pairs([("127.0.0.1", 0)], EngineOptions(engine, PROGRAM, lanes=LANES))
    with served(made, listener=sockets[0]) as one:
        yield one


@pytest.fixture(params=["native", "p4"])
def switch(request: pytest.FixtureRequest) -> Iterator[Served]:
    with switch_of(request.param) as one:
        yield one


@pytest.fixture
def native() -> Iterator[Served]:
    with switch_of("native") as one:
        yield one


def update(ticket: Ticket, values: list[int], epoch: int = 1, **fields: int) -> bytes:
    """A worker's packet, tagged where the ticket has a key."""
    named = {
        "kind": 1,
        "job": ticket.job,
        "incarnation": ticket.incarnation,
        "slot": 0,
        "epoch": epoch,
        "chunk_id": epoch,
        "worker": ticket.worker,
        "lane_bits": 32,
    } | fields
    packet = Packet(lanes=len(values), values=values, **named)
    if ticket.key is not None:
        packet.auth = _core.packet_tag(ticket.key, bytes(packet))
    return bytes(packet)


def receive(ticket: Ticket) -> Packet:
    ticket.udp.settimeout(10)
    data = ticket.udp.recv(1 << 16)
    if ticket.key is not None:
        assert Packet(data).auth == _core.packet_tag(ticket.key, data)
    return Packet(data)


def nothing_came(ticket: Ticket) -> bool:
    ticket.udp.setblocking(False)
    try:
        ticket.udp.recv(1 << 16)
    except BlockingIOError:
        return True
    return False


def leave(tickets: list[Ticket]) -> None:
    for ticket in tickets:
        ticket.leave()


def verdicts(switch: Served) -> dict[str, int]:
    return {name: count for name, count in switch.control.engine.counters().items() if count}


@pytest.mark.parametrize("workers", [1, 2, 8, 64])
def test_sums_of_several_epochs(switch: Served, workers: int) -> None:
    tickets = join_all(switch.address, workers, lanes=LANES)
    for epoch in (1, 2, 3):
        for ticket in tickets:
            values = [epoch * 100 + ticket.worker * lane for lane in range(LANES)]
            ticket.udp.send(update(ticket, values, epoch))
        expected = [workers * epoch * 100 + lane * workers * (workers - 1) // 2 for lane in range(LANES)]
        for ticket in tickets:
            result = receive(ticket)
            assert (result.kind, result.epoch, result.count) == (2, epoch, workers)
            assert list(result.values) == expected
    assert verdicts(switch) == {"completed": 3} | ({"added": 3 * (workers - 1)} if workers > 1 else {})
    job = switch.control.engine.jobs()[0]
    assert [sum(worker.verdicts.values()) for worker in job.workers] == [3] * workers
    assert job.slot_verdicts[0]["completed"] == 3
    leave(tickets)
    switch.until(lambda: not switch.control.engine.jobs(), "the job is released")


def test_a_repeated_packet_after_the_result_is_answered_to_its_worker_alone(switch: Served) -> None:
    tickets = join_all(switch.address, 2, lanes=LANES)
    for ticket in tickets:
        ticket.udp.send(update(ticket, [ticket.worker + 1] * LANES))
    for ticket in tickets:
        assert list(receive(ticket).values) == [3] * LANES
    tickets[1].udp.send(update(tickets[1], [2] * LANES, flags=1))  # the same packet, tag and all, but for the flag
    again = receive(tickets[1])
    assert list(again.values) == [3] * LANES
    assert int(again.flags) & 1
    assert nothing_came(tickets[0])
    assert verdicts(switch)["replayed"] == 1
    leave(tickets)


def test_the_waiting_slot_names_the_workers_that_it_lacks(switch: Served) -> None:
    tickets = join_all(switch.address, 3, lanes=LANES)
    tickets[1].udp.send(update(tickets[1], [1] * LANES))
    engine = switch.control.engine
    switch.until(lambda: bool(engine.waiting()), "the packet has come")
    waiting = engine.waiting()[0]
    assert (waiting.job, waiting.slot, waiting.epoch, list(waiting.missing)) == (tickets[0].job, 0, 1, [0, 2])
    assert 0 <= waiting.begun_ns <= engine.now_ns()
    leave(tickets)


def test_a_new_start_fences_the_packets_of_the_old_one(switch: Served) -> None:
    old = join_all(switch.address, 2, lanes=LANES)
    new = join_all(switch.address, 2, lanes=LANES, start=START[::-1])
    assert new[0].job == old[0].job
    assert new[0].incarnation != old[0].incarnation
    old[0].udp.send(update(old[0], [7] * LANES))  # its address and port are no worker's any more
    for ticket in new:
        ticket.udp.send(update(ticket, [1] * LANES))
    assert [list(receive(ticket).values) for ticket in new] == [[2] * LANES] * 2
    assert verdicts(switch)["stranger"] == 1
    leave(old + new)


def test_strangers_change_no_slot_and_are_counted(switch: Served) -> None:
    tickets = join_all(switch.address, 2, lanes=LANES)
    good = [update(ticket, [1] * LANES) for ticket in tickets]
    engine = switch.control.engine
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.connect(engine.addresses[0][:2])
        for bad in (good[0], b"", b"x", bytes(70), good[0][:-1], good[0] + b"\0", good[0] * 50):
            stranger.send(bad)
    tickets[0].udp.send(good[0][:-4])  # truncated, by one who is known
    tickets[0].udp.send(update(tickets[0], [1] * LANES, job=tickets[0].job + 1))
    tickets[0].udp.send(update(tickets[0], [1] * LANES, incarnation=tickets[0].incarnation + 1))
    tickets[0].udp.send(update(tickets[0], [1] * LANES, slot=16))
    tickets[0].udp.send(update(tickets[0], [1] * LANES, epoch=2))
    for ticket, packet in zip(tickets, good, strict=True):
        ticket.udp.send(packet)
    assert [list(receive(ticket).values) for ticket in tickets] == [[2] * LANES] * 2
    found = verdicts(switch)
    assert found.pop("malformed") >= 6  # an empty datagram need not be counted
    assert found == {"stranger": 2, "stale_incarnation": 1, "outside": 1, "early": 1, "added": 1, "completed": 1}
    leave(tickets)


def test_a_wrong_tag_changes_no_slot(native: Served) -> None:
    tickets = join_all(native.address, 2, lanes=LANES)
    assert tickets[0].key is not None
    good = [update(ticket, [1] * LANES) for ticket in tickets]
    for at in (2, 40, 50, 60, len(good[0]) - 1):  # header, tag, lanes
        wrong = bytearray(good[0])
        wrong[at] ^= 1
        tickets[0].udp.send(wrong)
    for ticket, packet in zip(tickets, good, strict=True):
        ticket.udp.send(packet)
    assert [list(receive(ticket).values) for ticket in tickets] == [[2] * LANES] * 2
    assert verdicts(native) == {"malformed": 1, "bad_tag": 4, "added": 1, "completed": 1}
    leave(tickets)


def test_probes_find_what_the_path_takes(native: Served) -> None:
    tickets = join_all(native.address, 1)
    assert probe_lanes(tickets[0]) == 2048  # loopback takes more than a packet can have
    assert verdicts(native)["probed"] >= 1
    leave(tickets)


def test_a_program_of_one_size_is_not_probed() -> None:
    with switch_of("p4") as switch:
        tickets = join_all(switch.address, 1, lanes=LANES)
        assert probe_lanes(tickets[0]) == LANES
        leave(tickets)


def test_native_serves_several_addresses_and_both_families() -> None:
    engine = NativeEngine([("127.0.0.1", 0), ("::1", 0)])
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four,
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six,
    ):
        try:
            four.bind(("127.0.0.1", 0))
            six.bind(("::1", 0))
            engine.admit(3, 1, [four.getsockname()[:2], six.getsockname()[:2]], 4, LANES, None)
            for worker, (one, place) in enumerate(zip((four, six), engine.addresses, strict=True)):
                one.settimeout(10)
                one.connect(place)
                packet = Packet(
                    kind=1, job=3, incarnation=1, epoch=1, chunk_id=1, lane_bits=16, lanes=3, values=[1, 2, worker]
                )
                one.send(bytes(packet))
            assert [list(Packet(one.recv(9000)).values) for one in (four, six)] == [[2, 4, 1]] * 2
        finally:
            engine.close()
    engine.close()  # again


def test_native_refuses_with_the_reason() -> None:
    engine = NativeEngine([("127.0.0.1", 0)], pool_bytes=1 << 16)
    try:
        worker = [("127.0.0.1", 4000)]
        with pytest.raises(Refused, match="ask for fewer slots"):
            engine.admit(1, 1, worker, 1000, 2048, None)
        with pytest.raises(Refused, match="32 bytes"):
            engine.admit(1, 1, worker, 1, 64, b"short")
        engine.admit(1, 1, worker, 1, 64, None)
        with pytest.raises(Refused, match="incarnation 1 is in use"):
            engine.admit(1, 1, worker, 1, 64, None)
        assert engine.release(1)
        assert not engine.release(1)
    finally:
        engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.counters()
    with pytest.raises(ValueError, match="address"):
        NativeEngine([])
    with pytest.raises(ValueError, match="no IP address"):
        NativeEngine([("nowhere", 1)])
    with pytest.raises(OSError, match=r"192\.0\.2\.1"):
        NativeEngine([("192.0.2.1", 0)])
