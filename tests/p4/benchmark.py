"""How many aggregations a second the interpreter does: ``python tests/p4/benchmark.py [PROGRAM-LANES]``; printed only.

adder.p4, 64 lanes of 32 bits, 4 workers: an aggregation is four packets in and four out. The aim is 200 a second.
"""

from __future__ import annotations

import pathlib
import statistics
import struct
import sys
import time

from collectives import p4

PROGRAMS = pathlib.Path(__file__).resolve().parent / "programs"
WORKERS = 4


def packets(lanes: int, slot: int) -> list[bytes]:
    """Return what the workers send for one slot."""
    head = bytes(12) + b"\x88\xb6"
    return [head + struct.pack(f">BBH{lanes}I", slot, w, 0, *range(w, w + lanes)) for w in range(WORKERS)]


def main() -> None:
    """Measure and print."""
    lanes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    began = time.perf_counter()
    program = p4.load(PROGRAMS / "adder.p4", defines={"LANES": lanes})
    loaded = time.perf_counter() - began
    switch = p4.V1Switch(program)
    for worker in range(WORKERS):
        switch.tables["AddIngress.jobs"].add(worker + 1, "AddIngress.admit", {"workers": WORKERS, "group": 1})
    switch.multicast[1] = [(worker + 1, worker) for worker in range(WORKERS)]
    work = [packets(lanes, slot) for slot in range(64)]
    rates = []
    for _ in range(7):
        began = time.perf_counter()
        for slot_packets in work:
            for worker, packet in enumerate(slot_packets):
                out = switch.process(packet, worker + 1, 0)
            assert len(out) == WORKERS
        rates.append(len(work) / (time.perf_counter() - began))
    rate = statistics.median(rates)
    print(f"{lanes} lanes, {WORKERS} workers: {rate:.0f} aggregations/s, {rate * WORKERS:.0f} packets/s in")
    print(f"loaded in {loaded:.2f} s; the slowest of 7 rounds {min(rates):.0f}, the fastest {max(rates):.0f}")


if __name__ == "__main__":
    main()
