"""Runs packet vectors on BMv2: compiles with p4c-bm2-ss, and has simple_switch read and write pcap files (no root)."""

from __future__ import annotations

import pathlib
import re
import socket
import subprocess
import time

from scapy.layers.l2 import Ether
from scapy.utils import PcapReader, PcapWriter

from collectives.p4.aggregation import VERDICTS, Control
from collectives.p4.simple_switch import Commands

from . import vector_runner

WAIT_S = 4  # simple_switch begins to read its files that long after its start; the tables are filled in between
GAP_S = 0.02  # between packets, by their time in the files: the order among ports is kept by nothing else
_COUNTERS = {
    **{("AggregationIngress.verdicts", index): name for index, name in enumerate(VERDICTS)},
    ("AggregationEgress.lose_out.lost", 0): "lost_out",
    ("AggregationEgress.address.unknown", 0): "unknown_receiver",
}


def run(
    program: pathlib.Path, vectors: vector_runner.Vectors, max_slots: int, folder: pathlib.Path
) -> tuple[dict[int, list[bytes]], dict[str, int]]:
    """Run one file of vectors.

    Returns
    -------
    tuple
        Switch port -> frames that left by it, in order; counter -> packets.
    """
    sends = [step for step in vectors.steps if isinstance(step, vector_runner.Send)]
    ports = {step.port for step in sends} | {port for step in sends for port, _ in step.out}
    _write_inputs(folder, sends, ports)
    commands = Commands()
    control = Control(commands, max_slots, vector_runner.SWITCH_ADDRESS, vector_runner.SWITCH_MAC)
    for step in vectors.steps:
        if isinstance(step, vector_runner.Admit):
            control.admit(step.job.job, step.job.incarnation, step.job.workers, step.job.slots)
    compiled = folder / "aggregate.json"
    defines = {"LANES": vectors.lanes, "LANE_BITS": vectors.lane_bits, "MAX_SLOTS": max_slots}
    flags = [f"-D{name}={value}" for name, value in defines.items()]
    subprocess.run(["p4c-bm2-ss", "--std", "p4-16", *flags, "-o", compiled, program], check=True)
    thrift = _free_port()
    interfaces = [word for port in sorted(ports) for word in ("-i", f"{port}@port{port}")]
    switch = subprocess.Popen(
        ["simple_switch", "--use-files", str(WAIT_S), "--thrift-port", str(thrift), *interfaces, str(compiled)],
        cwd=folder,
    )
    try:
        time.sleep(1)
        _command_line(thrift, commands.text())
        time.sleep(WAIT_S + GAP_S * len(sends) + 1)
        counters = _read_counters(thrift)
    finally:
        switch.terminate()
        switch.wait(10)
    return {port: _frames(folder / f"port{port}_out.pcap") for port in sorted(ports)}, counters


def _write_inputs(folder: pathlib.Path, sends: list[vector_runner.Send], ports: set[int]) -> None:
    writers = {port: PcapWriter(str(folder / f"port{port}_in.pcap"), linktype=1) for port in ports}
    for writer in writers.values():
        writer.write_header(None)
    for number, step in enumerate(sends):
        packet = Ether(step.frame)
        packet.time = 1.0 + GAP_S * number
        writers[step.port].write(packet)
    for writer in writers.values():
        writer.close()


def _frames(path: pathlib.Path) -> list[bytes]:
    with PcapReader(str(path)) as reader:
        return [bytes(packet) for packet in reader]


def _command_line(thrift: int, text: str) -> str:
    result = subprocess.run(
        ["simple_switch_CLI", "--thrift-port", str(thrift)], input=text, text=True, capture_output=True, check=True
    )
    assert "Error" not in result.stdout and "Invalid" not in result.stdout, result.stdout
    return result.stdout


def _read_counters(thrift: int) -> dict[str, int]:
    lines = "".join(f"counter_read {name} {index}\n" for name, index in _COUNTERS)
    found = re.findall(r"(\S+)\[(\d+)\]=(.*)", _command_line(thrift, lines))
    assert len(found) == len(_COUNTERS), found
    counters = {}
    for name, index, value in found:  # versions differ: "packets=3", "3 packets"
        packets = re.search(r"packets=(\d+)|(\d+) packets", value)
        assert packets, value
        counters[_COUNTERS[name, int(index)]] = int(packets[1] or packets[2])
    return counters


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
