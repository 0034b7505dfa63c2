"""The control plane of p4/aggregate.p4, and the program under a network that loses, copies and reorders packets."""

from __future__ import annotations

import functools
import pathlib
import random
import struct
import subprocess

import pytest

pytest.importorskip("lark")
pytest.importorskip("scapy")

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from collectives import p4
from collectives.p4.aggregation import Aggregation, Control, Refused, Worker
from collectives.p4.program import Program, load
from collectives.p4.simple_switch import Commands
from collectives.p4.v1model import V1Switch
from collectives.scapy_layer import HEADER_BYTES, PORT
from collectives.scapy_layer import Aggregation as Packet

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "p4" / "aggregate.p4"
MAX_SLOTS = 8
LANES = 32
JOB = 7
HEADERS_BYTES = 14 + 20 + 8


@functools.cache
def program() -> Program:
    return load(PROGRAM, defines={"LANES": LANES, "MAX_SLOTS": MAX_SLOTS})


def workers(count: int, first: int = 0) -> list[Worker]:
    return [Worker(f"10.0.0.{place + 1}", 40000, place + 1) for place in range(first, first + count)]


def switch(count: int = 2, slots: int = 2, seed: int = 0) -> Aggregation:
    """Return a switch that has admitted a job of so many workers."""
    made = Aggregation(V1Switch(program(), seed=seed))
    made.admit(JOB, 1, workers(count), slots)
    return made


def update(worker: int, values: list[int], **fields: int) -> bytes:
    filled = values + [0] * (LANES - len(values))
    packet = Packet(**({"job": JOB, "incarnation": 1, "epoch": 1} | fields), values=filled)
    return bytes(Ether() / IP(src=f"10.0.0.{worker + 1}", dst="10.0.0.254") / UDP(sport=40000, dport=PORT) / packet)


def result(frame: bytes) -> tuple[int, int, int, list[int]]:
    """Return slot, epoch, chunk_id and lanes."""
    slot, epoch, chunk_id = struct.unpack_from(">IIQ", frame, HEADERS_BYTES + 16)
    return slot, epoch, chunk_id, list(struct.unpack_from(f">{LANES}i", frame, HEADERS_BYTES + HEADER_BYTES))


# ---- admission


def test_a_pool_is_divided_and_a_job_that_asks_for_too_much_is_refused() -> None:
    made = Aggregation(V1Switch(program()))
    assert made.admit(1, 1, workers(1), 3).base == 0
    assert made.admit(2, 1, workers(1, 1), 3).base == 3
    with pytest.raises(Refused, match="3 slots are asked for, and the pool of 8 has 2 left in a row"):
        made.admit(3, 1, workers(1, 2), 3)
    made.release(1)
    assert made.admit(3, 1, workers(1, 2), 3).base == 0
    assert made.admit(4, 1, workers(1, 3), 2).base == 6
    assert len({job.group for job in made.jobs.values()}) == 3
    assert len({number for job in made.jobs.values() for number in job.receivers}) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 1, [], 1), "0 workers"),
        ((1, 1, [("10.0.0.1", port, 1) for port in range(1000, 1065)], 1), "65 workers"),
        ((1, 1, workers(1), 0), "at least one"),
        ((1, 1, workers(1), 9), "pool of 8"),
        ((1, 1, workers(1) * 2, 1), "several workers at"),
        ((1 << 32, 1, workers(1), 1), "no 32-bit number"),
        ((1, -1, workers(1), 1), "no 32-bit number"),
        ((JOB, 1, workers(2), 2), "admitted with incarnation 1 already"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(arguments: tuple, message: str) -> None:
    made = switch()
    before = {name: table.entries() for name, table in made.switch.tables.items()}
    with pytest.raises(Refused, match=message):
        made.admit(*arguments)
    assert {name: table.entries() for name, table in made.switch.tables.items()} == before
    assert list(made.jobs) == [JOB]


def test_a_released_job_leaves_nothing_and_is_a_stranger() -> None:
    made = switch()
    made.release(JOB)
    assert not any(table.entries() for table in made.switch.tables.values())
    assert not made.switch.multicast
    assert made.process(update(0, [1]), 1, 0) == []
    assert made.counters()["stranger"] == 1
    with pytest.raises(KeyError, match="there is no job 7"):
        made.release(JOB)


def test_a_job_that_gets_the_slots_of_another_finds_nothing_of_it() -> None:
    made = switch(1, 1)
    assert len(made.process(update(0, [5]), 1, 0)) == 1
    made.release(JOB)
    made.admit(8, 1, workers(2), 1)
    assert made.process(update(0, [1], job=8), 1, 0) == []
    ((_, frame), _) = made.process(update(1, [2], job=8), 2, 0)
    assert result(frame)[3][0] == 3


# ---- epochs


def test_epochs_wrap_around() -> None:
    """A slot after 2^32 - 2 uses: nobody can send so many packets, so the registers are set."""
    made = switch(2, 1)
    made.process(update(0, [1]), 1, 0)
    made.process(update(1, [2]), 2, 0)
    last = (1 << 32) - 1
    registers = made.switch.registers
    registers["AggregationIngress.slot.currents"][0] = last
    registers["AggregationIngress.slot.epochs"][1] = last
    for epoch in (0, 1, 2):
        assert made.process(update(0, [10], epoch=epoch, chunk_id=epoch), 1, 0) == []
        assert made.process(update(0, [10], epoch=epoch, chunk_id=epoch), 1, 0) == []  # a duplicate, at 0 too
        before = (epoch - 1) % (1 << 32)
        chunk = 0 if epoch == 0 else before
        ((port, frame),) = made.process(update(1, [7], epoch=before, chunk_id=chunk), 2, 0)
        assert port == 2 and result(frame)[1] == before
        out = made.process(update(1, [20], epoch=epoch, chunk_id=epoch), 2, 0)
        assert [result(frame)[:2] for _, frame in out] == [(0, epoch)] * 2
        assert result(out[0][1])[3][0] == 30
    assert made.counters()["late"] == made.counters()["early"] == 0
    assert made.counters()["duplicate"] == 3


# ---- losses


def test_the_drop_simulator_loses_about_as_many_as_it_is_told_each_way() -> None:
    made = switch(2, 2, seed=3)
    made.lose(1, in_per_million=250_000)
    made.lose(2, out_per_million=500_000)
    for _ in range(2000):
        made.process(update(0, [1]), 1, 0)
    lost = made.counters()["lost"]
    assert 400 < lost < 600
    assert lost + made.counters()["added"] + made.counters()["duplicate"] == 2000
    made.process(update(1, [1]), 2, 0)
    came = sum(len(made.process(update(1, [1]), 2, 0)) for _ in range(1000))
    assert 400 < came < 600
    assert made.counters()["lost_out"] in (1000 - came, 1001 - came)
    with pytest.raises(ValueError, match="cannot be lost"):
        made.lose(3, in_per_million=-1)


def test_nothing_is_lost_unless_told() -> None:
    made = switch(1, 1)
    assert all(made.process(update(0, [1]), 1, 0) for _ in range(300))


class Sender:
    """A worker as docs/protocol.md has it: the next epoch of a slot only with the result of the last."""

    def __init__(self, number: int, chunks: list[list[int]], slots: int) -> None:
        self.number = number
        self.chunks = chunks
        self.slots = slots
        self.next = dict.fromkeys(range(slots), 0)  # slot -> how many of its chunks are done
        self.sums: dict[int, list[int]] = {}

    def chunk(self, slot: int) -> int:
        return slot + self.slots * self.next[slot]

    def packet(self, slot: int) -> bytes | None:
        """Return what this worker has to say for a slot; None if it has done all of the slot's chunks."""
        chunk = self.chunk(slot)
        if chunk >= len(self.chunks):
            return None
        epoch = self.next[slot] + 1
        return update(self.number, self.chunks[chunk], slot=slot, epoch=epoch, chunk_id=chunk)

    def take(self, frame: bytes) -> bytes | None:
        """Take a result; return the next packet of the slot, if there is one."""
        slot, epoch, chunk, lanes = result(frame)
        if chunk != self.chunk(slot) or epoch != self.next[slot] + 1:
            assert self.sums[chunk] == lanes, "a result that came twice must be the same"
            return None
        self.sums[chunk] = lanes
        self.next[slot] += 1
        return self.packet(slot)


@pytest.mark.parametrize("seed", range(12))
def test_sums_are_right_over_any_network(seed: int) -> None:
    """Packets are delivered in any order, lost and copied, copies as late as chance has it."""
    draw = random.Random(seed)
    count, slots, chunks = draw.choice([1, 2, 3, 5]), draw.choice([1, 2, 3]), 9
    made = switch(count, slots)
    data = [[[draw.randint(-(1 << 31), (1 << 31) - 1)] for _ in range(chunks)] for _ in range(count)]
    senders = [Sender(number, data[number], slots) for number in range(count)]
    way: list[tuple[int | None, int, bytes]] = []  # (to a worker, or None; from port, frame)
    for _ in range(20_000):
        if all(len(sender.sums) == chunks for sender in senders) and not way:
            break
        if not way:  # silence: all repeat what is outstanding
            packets = [(sender, sender.packet(slot)) for sender in senders for slot in range(slots)]
            way += [(None, sender.number + 1, packet) for sender, packet in packets if packet]
            continue
        place = draw.randrange(len(way))
        to, port, frame = way[place]
        chance = draw.random()
        if chance < 0.15 or chance > 0.3:  # else it is copied: delivered, and still on its way
            way.pop(place)
        if chance < 0.15:
            continue
        if to is None:
            way += [(out - 1, 0, answer) for out, answer in made.process(frame, port, 0)]
        elif answer := senders[to].take(frame):
            way.append((None, to + 1, answer))
    wrapped = [(sum(one[c][0] for one in data) + (1 << 31)) % (1 << 32) - (1 << 31) for c in range(chunks)]
    for sender in senders:
        assert [sender.sums[chunk][0] for chunk in range(chunks)] == wrapped, f"seed {seed}"
    counters = made.counters()
    assert counters["completed"] == chunks
    assert counters["added"] == chunks * (count - 1)
    assert counters["mismatch"] == counters["early"] == counters["stranger"] == counters["malformed"] == 0


# ---- BMv2


@pytest.mark.needs_command("cpp")
@pytest.mark.parametrize(("lanes", "lane_bits"), [(32, 32), (64, 8), (128, 16), (256, 32)])
def test_the_preprocessor_that_p4c_uses_makes_the_same_program(
    lanes: int, lane_bits: int, tmp_path: pathlib.Path
) -> None:
    """p4c runs GNU cpp in its assembler mode; only the marks of lines are left out here."""
    defines = {"LANES": lanes, "LANE_BITS": lane_bits, "MAX_SLOTS": MAX_SLOTS}
    builtin = pathlib.Path(p4.__file__).parent / "builtin"
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    mode = ["-P", "-C", "-undef", "-nostdinc", "-x", "assembler-with-cpp"]
    text = subprocess.run(["cpp", *mode, "-I", builtin, *flags, PROGRAM], check=True, capture_output=True, text=True)
    assert not text.stderr
    own = text.stdout[text.stdout.index("const bit<16> UDP_PORT") :]
    (tmp_path / "whole.p4").write_text(f"#include <core.p4>\n#include <v1model.p4>\n{own}")
    assert load(tmp_path / "whole.p4").python == load(PROGRAM, defines=defines).python


def test_the_commands_for_bmv2() -> None:
    commands = Commands()
    control = Control(commands, max_slots=MAX_SLOTS)
    control.admit(JOB, 1, [("10.0.0.1", 40000, 1), ("10.0.0.2", 40001, 2)], 2)
    admit = "AggregationIngress.admit.workers AggregationIngress.admit.admit"
    assert commands.lines == [
        "table_add AggregationEgress.address.receivers AggregationEgress.address.send_to 1 => "
        "2199191027713 167772161 40000 2199191027966 167772414",
        "table_add AggregationEgress.address.receivers AggregationEgress.address.send_to 2 => "
        "2199191027714 167772162 40001 2199191027966 167772414",
        "mc_mgrp_create 1",
        "mc_node_create 1 1",
        "mc_node_associate 1 0",
        "mc_node_create 2 2",
        "mc_node_associate 1 1",
        f"table_add {admit} 167772161 40000 7 => 1 2 1 1 1 0 2 1",
        f"table_add {admit} 167772162 40001 7 => 2 2 1 2 2 0 2 1",
    ]


def test_the_commands_parameters_are_in_the_programs_order() -> None:
    """The command line knows no names: the order in which the control plane gives parameters must be the action's."""
    given: dict[str, list[str]] = {}

    class Names(Commands):
        def add(self, table, key, action, params):  # type: ignore[no-untyped-def]
            given[action] = list(params)

    control = Control(Names(), MAX_SLOTS)
    control.admit(JOB, 1, workers(1), 1)
    control.lose(1, 1, 1)
    tables = program().compiled.layout.tables.values()
    actions = {action.name: [name for name, _ in action.parameters] for table in tables for action in table.actions}
    assert {name: actions[name] for name in given} == given
    assert len(given) == 4


def test_an_entry_is_removed_by_clearing_and_adding_the_others() -> None:
    commands = Commands()
    control = Control(commands, max_slots=MAX_SLOTS)
    control.admit(1, 1, workers(1), 2)
    control.admit(2, 1, workers(1, 1), 2)
    kept = [line for line in commands.lines if line.startswith("table_add AggregationIngress.admit.workers")][1]
    commands.lines.clear()
    control.release(1)
    assert commands.lines[:2] == ["table_clear AggregationIngress.admit.workers", kept]
    assert commands.lines[2] == "mc_mgrp_destroy 1"
