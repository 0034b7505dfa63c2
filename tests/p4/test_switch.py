"""The C++ switch on the packet vectors, and against p4/aggregate.p4 on random traces: byte for byte the same."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pytest

pytest.importorskip("lark")
pytest.importorskip("scapy")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from collectives._core import SwitchPipeline
from collectives.p4.aggregation import Aggregation, Worker
from collectives.p4.program import Program, load
from collectives.p4.v1model import V1Switch
from collectives.scapy_layer import KINDS, PORT
from collectives.scapy_layer import Aggregation as Packet

from . import vector_runner

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "p4" / "aggregate.p4"
LANES, SLOTS = 32, 2
FILES = [path for path in vector_runner.files() if "frames" not in vector_runner.read(path).needs]


def _what(payload: bytes) -> dict[str, Any]:
    """Header and lanes of a reply, as the runner's dissect() gives them."""
    packet = Packet(payload)
    header = {field.name: getattr(packet, field.name) for field in packet.fields_desc}
    lanes = header.pop("values")
    header["flags"] = int(header["flags"])
    assert not bytes(packet.payload)
    return {"header": header, "lanes": lanes}


class Native:
    """The C++ switch with the face of the interpreted one: frames in, (switch port, reply) out."""

    def __init__(self, lanes: int, lane_bits: int) -> None:
        self.pipeline = SwitchPipeline(lanes=lanes, lane_bits=lane_bits)
        self.lanes = lanes
        self.workers: dict[int, list[Worker]] = {}

    def admit(self, job: int, incarnation: int, workers: list[Worker], slots: int) -> None:
        places = [(worker.address, worker.udp_port) for worker in workers]
        self.pipeline.admit(job, incarnation, places, slots, self.lanes)
        self.workers[job] = list(workers)

    def process(self, frame: bytes, now_ns: int) -> list[tuple[int, dict[str, Any]]]:
        packet = Ether(frame)
        if packet[UDP].dport != PORT:
            return []  # another socket's
        payload = bytes(packet[UDP].payload)
        verdict, worker, reply = self.pipeline.process((packet["IP"].src, packet[UDP].sport), payload, now_ns)
        assert verdict in self.pipeline.counters()
        if not reply:
            return []
        everyone = self.workers[Packet(reply).job]
        return [(one.port, _what(reply)) for one in (everyone if worker is None else [everyone[worker]])]


def _expected(out: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    return [(port, {name: fields[name] for name in ("header", "lanes")}) for port, fields in out]


def _sorted(out: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
    return sorted(out, key=lambda one: one[0])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_vectors(path: pathlib.Path) -> None:
    vectors = vector_runner.read(path)
    switch = Native(vectors.lanes, vectors.lane_bits)
    for number, step in enumerate(vectors.steps):
        if isinstance(step, vector_runner.Admit):
            switch.admit(step.job.job, step.job.incarnation, step.job.workers, step.job.slots)
            continue
        assert _sorted(switch.process(step.frame, number)) == _sorted(_expected(step.out)), (
            f"step {number}: {step.about}"
        )
    counted = {name: count for name, count in switch.pipeline.counters().items() if count}
    assert counted == {name: count for name, count in vectors.counters.items() if name in switch.pipeline.counters()}


@functools.cache
def _program(lane_bits: int) -> Program:
    return load(PROGRAM, defines={"LANES": LANES, "LANE_BITS": lane_bits, "MAX_SLOTS": 8})


WORKERS = [Worker(f"10.0.0.{w + 1}", 40000 + w, w + 1) for w in range(4)]
JOBS = {7: WORKERS[:2], 9: WORKERS[2:]}

packets = st.fixed_dictionaries(
    {
        "worker": st.integers(0, 3),
        "job": st.sampled_from([7, 7, 7, 9, 9, 8]),
        "incarnation": st.sampled_from([1, 1, 1, 1, 2]),
        "slot": st.sampled_from([0, 0, 0, 1, SLOTS]),
        "epoch": st.integers(0, 4),
        "chunk_id": st.sampled_from([1, 1, 1, 2, 1 << 63]),
        "exponent": st.sampled_from([-3, -3, -3, 4]),
        "next_exponent": st.integers(-32768, 32767),
        "flags": st.sampled_from([0, 0, 0, 1, 2, 4, 40]),
        "kind": st.sampled_from([*["update"] * 8, "result", "probe"]),
        "version": st.sampled_from([*[1] * 9, 2]),
        "mask": st.integers(0, 3),
        "lane": st.integers(-(2**31), 2**31 - 1),
        "extra_bytes": st.sampled_from([*[0] * 9, -1, 4]),
    }
)
steps = st.lists(
    st.one_of(packets, packets, packets, st.tuples(st.sampled_from([7, 9]), st.integers(1, 3))), max_size=60
)


def _payload(fields: dict[str, Any], lane_bits: int) -> bytes:
    half = 1 << (lane_bits - 1)
    lanes = [(fields["lane"] + 77777 * i + half) % (2 * half) - half for i in range(LANES)]
    named = {name: fields[name] for name in fields if name not in ("lane", "extra_bytes", "kind")}
    kind = next(number for number, name in KINDS.items() if name == fields["kind"])
    body = bytes(Packet(kind=kind, lanes=LANES, lane_bits=lane_bits, values=lanes, **named))
    return body[: len(body) + fields["extra_bytes"]].ljust(len(body) + fields["extra_bytes"], b"\1")


@pytest.mark.parametrize("lane_bits", [8, 16, 32])
@given(trace=steps)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_traces_are_answered_byte_for_byte_alike(lane_bits: int, trace: list[Any]) -> None:
    from scapy.layers.inet import IP

    interpreted = Aggregation(V1Switch(_program(lane_bits)), vector_runner.SWITCH_ADDRESS, vector_runner.SWITCH_MAC)
    native = Native(LANES, lane_bits)
    running = {7: 1, 9: 1}
    for job, workers in JOBS.items():
        interpreted.admit(job, 1, workers, SLOTS)
        native.admit(job, 1, workers, SLOTS)
    for number, step in enumerate(trace):
        if isinstance(step, tuple):
            job, incarnation = step
            if incarnation != running[job]:
                interpreted.admit(job, incarnation, JOBS[job], SLOTS)
                native.admit(job, incarnation, JOBS[job], SLOTS)
                running[job] = incarnation
            continue
        worker = WORKERS[step["worker"]]
        frame = bytes(
            Ether(src=worker.mac, dst=vector_runner.SWITCH_MAC)
            / IP(src=worker.address, dst=vector_runner.SWITCH_ADDRESS)
            / UDP(sport=worker.udp_port, dport=PORT)
            / _payload(step, lane_bits)
        )
        out = [(port, bytes(Ether(one)[UDP].payload)) for port, one in interpreted.process(frame, worker.port, number)]
        assert _sorted(native.process(frame, number)) == _sorted([(port, _what(one)) for port, one in out])
    theirs, ours = interpreted.counters(), native.pipeline.counters()
    assert {name: theirs.get(name, 0) for name in ours} == ours  # it answers no probe
