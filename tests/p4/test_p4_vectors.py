"""The packet vectors on p4/aggregate.p4: in the interpreter, and on BMv2 where that is installed."""

from __future__ import annotations

import functools
import pathlib

import pytest

pytest.importorskip("lark")
pytest.importorskip("scapy")

from collectives.p4.aggregation import Aggregation
from collectives.p4.program import Program, load
from collectives.p4.v1model import V1Switch

from . import bmv2, vector_runner

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "p4" / "aggregate.p4"
MAX_SLOTS = 16
FILES = vector_runner.files()


@functools.cache
def program(lanes: int, lane_bits: int) -> Program:
    """Load a build once."""
    return load(PROGRAM, defines={"LANES": lanes, "LANE_BITS": lane_bits, "MAX_SLOTS": MAX_SLOTS})


def test_there_are_vectors() -> None:
    assert len(FILES) >= 15


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_interpreter(path: pathlib.Path) -> None:
    vectors = vector_runner.read(path)
    switch = Aggregation(
        V1Switch(program(vectors.lanes, vectors.lane_bits)), vector_runner.SWITCH_ADDRESS, vector_runner.SWITCH_MAC
    )
    for number, step in enumerate(vectors.steps):
        if isinstance(step, vector_runner.Admit):
            switch.admit(step.job.job, step.job.incarnation, step.job.workers, step.job.slots)
            continue
        got = [(port, vector_runner.dissect(frame)) for port, frame in switch.process(step.frame, step.port, number)]
        assert sorted(got, key=_port) == sorted(step.out, key=_port), f"step {number}: {step.about}"
    counted = {name: count for name, count in switch.counters().items() if count}
    assert counted == vectors.counters


def _port(one: tuple[int, object]) -> int:
    return one[0]


@pytest.mark.needs_command("p4c-bm2-ss", "simple_switch", "simple_switch_CLI")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_bmv2(path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    vectors = vector_runner.read(path)
    if any(isinstance(step, vector_runner.Admit) for step in _after_first_send(vectors.steps)):
        pytest.skip("admits a job between packets, and simple_switch reads its packets from files at once")
    outputs, counters = bmv2.run(PROGRAM, vectors, MAX_SLOTS, tmp_path)
    expected: dict[int, list[object]] = {}
    for step in vectors.steps:
        if isinstance(step, vector_runner.Send):
            for port, fields in step.out:
                expected.setdefault(port, []).append(fields)
    got = {port: [vector_runner.dissect(frame) for frame in frames] for port, frames in outputs.items() if frames}
    assert got == expected
    assert {name: count for name, count in counters.items() if count} == vectors.counters


def _after_first_send(steps: list[object]) -> list[object]:
    first = next((number for number, step in enumerate(steps) if isinstance(step, vector_runner.Send)), len(steps))
    return steps[first:]
