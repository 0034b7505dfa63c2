"""Whole programs, read from tests/p4/programs, over packets."""

from __future__ import annotations

import struct

from collectives import p4
from tests.p4.harness import PROGRAMS

A, B = bytes(range(6)), bytes(range(6, 12))


def counting(key: int, count: int = 0, reverse: bool = False) -> bytes:
    """Return a packet of counter.p4."""
    return (B + A if reverse else A + B) + b"\x88\xb5" + struct.pack(">BI", key, count) + b"rest"


def test_the_counter_counts_each_key_and_answers() -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / "counter.p4"))
    for key, count in [(7, 1), (7, 2), (8, 1), (7, 3)]:
        assert switch.process(counting(key), 3, 0) == [(3, counting(key, count, reverse=True))]
    assert switch.registers["CountIngress.counts"][7] == 3
    assert switch.counters["CountIngress.seen"][1] == (4, 4 * len(counting(7)))


def test_the_counter_drops_what_it_does_not_know() -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / "counter.p4"))
    assert switch.process(A + B + b"\x08\x00" + bytes(20), 3, 0) == []
    assert switch.process(counting(7)[:16], 3, 0) == []  # ends within its header
    assert switch.process(b"", 3, 0) == []
    assert switch.counters["CountIngress.seen"][0].packets == 3
    assert switch.registers["CountIngress.counts"][7] == 0


def test_switches_of_one_program_share_nothing() -> None:
    program = p4.load(PROGRAMS / "counter.p4")
    one, other = p4.V1Switch(program), p4.V1Switch(program)
    one.process(counting(7), 3, 0)
    assert other.registers["CountIngress.counts"][7] == 0
    other.registers["CountIngress.counts"][7] = 41
    assert other.process(counting(7), 3, 0) == [(3, counting(7, 42, reverse=True))]


def adding(slot: int, worker: int, values: list[int], count: int = 0) -> bytes:
    """Return a packet of adder.p4."""
    return A + B + b"\x88\xb6" + struct.pack(f">BBH{len(values)}I", slot, worker, count, *values)


def adder(workers: int, lanes: int = 4) -> p4.V1Switch:
    """Return a switch that adds for workers on ports 1, 2, ..."""
    switch = p4.V1Switch(p4.load(PROGRAMS / "adder.p4", defines={"LANES": lanes}))
    for worker in range(workers):
        switch.tables["AddIngress.jobs"].add(worker + 1, "AddIngress.admit", {"workers": workers, "group": 5})
    switch.multicast[5] = [(worker + 1, worker) for worker in range(workers)]
    return switch


def test_the_adder_sends_the_sum_to_all_when_the_last_has_come() -> None:
    switch = adder(3)
    rows = [[1, 2, 3, 0xFFFFFFFF], [10, 20, 30, 2], [100, 200, 300, 0]]
    assert switch.process(adding(9, 0, rows[0]), 1, 0) == []
    assert switch.process(adding(9, 0, rows[0]), 1, 0) == []  # a repeat is not added again
    assert switch.process(adding(9, 2, rows[2]), 3, 0) == []
    assert switch.registers["AddIngress.bitmap.seen"][9] == 0b101
    assert switch.registers["AddIngress.pool.value_1"][9] == 202
    sums = [111, 222, 333, 1]
    out = switch.process(adding(9, 1, rows[1]), 2, 0)
    assert out == [(worker + 1, adding(9, worker, sums, count=3)) for worker in range(3)]
    assert switch.registers["AddIngress.bitmap.seen"][9] == 0


def test_the_adder_drops_strangers() -> None:
    switch = adder(2)
    for packet, port in [
        (adding(1, 0, [1] * 4), 9),  # no such port in the table
        (adding(1, 2, [1] * 4), 1),  # no such worker
        (adding(1, 0, [1] * 4)[:-1], 1),
        (A + B + b"\x08\x00", 1),
    ]:
        assert switch.process(packet, port, 0) == []
    assert switch.registers["AddIngress.bitmap.seen"].cells == [0] * 256


def test_the_adder_with_64_lanes() -> None:
    switch = adder(2, lanes=64)
    assert switch.process(adding(255, 0, list(range(64))), 1, 0) == []
    out = switch.process(adding(255, 1, list(range(64))), 2, 0)
    assert [frame for _, frame in out] == [adding(255, w, [2 * n for n in range(64)], count=2) for w in (0, 1)]


def test_the_l2_switch_forwards_and_floods() -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / "l2.p4"))
    switch.multicast[1] = [(port, 0) for port in (1, 2, 3)]
    table = switch.tables["L2Ingress.addresses"]
    table.add({"mac": int.from_bytes(A, "big")}, "forward", {"port": 2})
    frame = A + B + b"\x08\x00data"
    assert switch.process(frame, 1, 0) == [(2, frame)]
    assert switch.process(frame, 2, 0) == []  # back to where it came from
    unknown = B + A + b"\x08\x00data"
    assert switch.process(unknown, 2, 0) == [(1, unknown), (3, unknown)]
    assert switch.counters["L2Ingress.sent"][int.from_bytes(A, "big")].packets == 2
    table.set_default("L2Ingress.forward", {"port": 3})
    assert switch.process(unknown, 2, 0) == [(3, unknown)]


def test_the_l2_switch_reads_a_stack_of_tags() -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / "l2.p4"))
    switch.multicast[1] = [(2, 0)]

    def tagged(*tags: int, kind: bytes = b"\x08\x00") -> bytes:
        return A + B + b"".join(b"\x81\x00" + tag.to_bytes(2, "big") for tag in tags) + kind + b"data"

    assert switch.process(tagged(7, 8), 1, 0) == [(2, tagged(7, 8))]
    assert switch.process(tagged(0, 8), 1, 0) == [(2, tagged(8))]  # the tag 0 is taken away
    assert switch.process(tagged(7, 8, 9), 1, 0) == []  # more than the stack holds


def test_the_calculator() -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / "calculator.p4"))

    def packet(operation: bytes, a: int, b: int, result: int = 0, version: int = 1) -> bytes:
        return b"\x12\x34P4" + bytes([version]) + operation + struct.pack(">III", a, b, result)

    for operation, result in [(b"+", 9), (b"-", 3), (b"&", 2), (b"|", 7), (b"^", 5)]:
        assert switch.process(A + B + packet(operation, 6, 3), 4, 0) == [(4, B + A + packet(operation, 6, 3, result))]
    assert switch.process(A + B + packet(b"/", 6, 3), 4, 0) == []
    assert switch.process(A + B + packet(b"+", 6, 3, version=4), 4, 0) == []
    assert switch.process(A + B + packet(b"+", 6, 3)[:4], 4, 0) == []
