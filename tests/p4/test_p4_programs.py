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
