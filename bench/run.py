"""Collectives of several libraries in one interleaved run, verified as they are timed.

    mpirun -n 2 python bench/run.py            torchrun --nproc-per-node 2 bench/run.py

The entry point under a launcher; includes everything else here but compare.py. Method: bench/README.md.
Exit status: 0, or 1 when a peer gave a wrong result, or 2 when the run could not start.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Last, so that an installed package is never shadowed by the source tree.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import numpy as np

from bench import cases, machine, metrics, probe, report
from bench.measure import measure
from bench.options import Options, parse
from bench.peers import Peer, PeerUnavailableError, chosen
from bench.world import LaunchError, World, connect, launcher_of, local_rank_of


def pin(options: Options, environment: dict[str, str]) -> list[int]:
    """Pin this rank to one core when all ranks of the host fit; returns the cores that the ranks use.

    Under torchrun only when asked: gloo's own thread would share its rank's core (README.md, Pinning).
    """
    cores = probe.cores_of_host()
    names = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_SIZE", "WORLD_SIZE")
    local_size = next((int(environment[name]) for name in names if name in environment), 1)
    asked = options.pin == "cores" or (options.pin == "auto" and launcher_of(environment) == "mpirun")
    if asked and local_size <= len(cores):
        os.sched_setaffinity(0, {cores[local_rank_of(environment)]})
        return cores[:local_size]
    return cores


def start_peers(world: World, wanted: Sequence[Peer]) -> tuple[list[Peer], dict[str, dict[str, Any]]]:
    """Start each peer on every rank; one that any rank cannot start is left out, with the reason."""
    running, described = [], {}
    for peer in wanted:
        reason, version = None, ""
        try:
            version = peer.start(world)
        except PeerUnavailableError as error:
            reason = str(error)
        except Exception as error:  # a peer that breaks at start must not take the others' figures with it
            reason = f"{type(error).__name__}: {error}"
        reasons = [(rank, text) for rank, text in enumerate(world.gather(reason)) if text is not None]
        if reasons:
            rank, text = reasons[0]
            described[peer.name] = {
                "available": False,
                "reason": text if len(reasons) == world.size else f"on rank {rank} alone: {text}",
            }
        else:
            described[peer.name] = {"available": True, "version": version}
            running.append(peer)
    return running, described


class Sweep:
    """The interleaved run: rounds over cases over peers, the order of the peers turning from round to round."""

    def __init__(self, world: World, peers: Sequence[Peer], options: Options, cores: Sequence[int]) -> None:
        self.world, self.peers, self.options, self.cores = world, list(peers), options, list(cores)
        self.dtype = np.dtype(options.dtype)
        self.modes: list[dict[str, Any]] = []
        self.probed: dict[str, Any] = {}
        self._rounds: dict[tuple[str, int, str], list[dict[str, Any]]] = {}

    def case_list(self) -> list[tuple[cases.Operation, int]]:
        """(operation, elements) in the order of the options."""
        listed = []
        for name in self.options.ops:
            row = cases.operation(name)
            counts = [cases.element_count(s, self.dtype.itemsize, self.world.size) for s in self.options.sizes]
            listed += [(row, count) for count in dict.fromkeys(counts)] if row.sized else [(row, self.world.size)]
        return listed

    def run(self) -> None:
        """All rounds, the mode of the cores before and after each."""
        self.probed = self._probe(self._sizes()).as_json() if self.options.probe else {"reason": "--no-probe"}
        for index in range(self.options.rounds):
            busy, before = self._others_busy(), self._round_trip()
            for row, count in self.case_list():
                self._measure_case(index, row, count)
            after = self._round_trip()
            self.modes.append(
                {
                    "round": index,
                    "round_trip_before_ns": before,
                    "round_trip_after_ns": after,
                    "mode": metrics.mode_between(before, after),
                    "others_busy": max(busy, self._others_busy()),
                }
            )

    def results(self) -> list[dict[str, Any]]:
        """Rows of the document, cases in order, peers in order within each."""
        return [
            report.result(row.name, self._bytes(row, count), peer.name, self.world.size, self._rounds[key])
            for row, count in self.case_list()
            for peer in self.peers
            if (key := (row.name, count, peer.name)) in self._rounds
        ]

    def _bytes(self, row: cases.Operation, count: int) -> int:
        return count * self.dtype.itemsize if row.sized else 0

    def _sizes(self) -> list[int]:
        return sorted({self._bytes(row, count) for row, count in self.case_list() if row.sized})

    def _measure_case(self, index: int, row: cases.Operation, count: int) -> None:
        case = cases.Case(row, count, self.world.rank, self.world.size, self.dtype)
        shared = cases.allocate(count, self.world.size, self.dtype)
        turn = index % max(1, len(self.peers))
        for peer in self.peers[turn:] + self.peers[:turn]:
            own = cases.allocate(count, self.world.size, self.dtype, peer.allocate) if peer.own_memory else shared
            block = measure(self.world, peer, case, own, self.options)
            entry: dict[str, Any] = {"round": index}
            if block.summary is None:
                entry |= {"error": block.error, "wrong": block.wrong}
            else:
                entry |= dataclasses.asdict(block.summary) | {"back_to_back_us": block.back_to_back_us}
            self._rounds.setdefault((row.name, count, peer.name), []).append(entry)

    def _others_busy(self) -> float:
        """Share of the machine's CPU that other programs take while every rank sleeps."""
        self.world.quiet_barrier()
        busy = machine.busy_fraction() if self.world.rank == 0 else 0.0
        self.world.quiet_barrier()
        return self.world.agree_maximum(busy)

    def _round_trip(self) -> float | None:
        return self._probe(()).round_trip_ns if self.options.probe and "reason" not in self.probed else None

    def _probe(self, sizes: Sequence[int]) -> probe.ProbeResult:
        """Measured by rank 0's child while the other ranks sleep; every rank gets the result."""
        self.world.quiet_barrier()
        found: probe.ProbeResult | str = ""
        if self.world.rank == 0:
            try:
                found = probe.run(self.cores, self.world.size, sizes)
            except probe.ProbeError as error:
                found = str(error)
        self.world.quiet_barrier()
        found = self.world.gather(found)[0]
        if isinstance(found, str):
            self.probed = {"reason": found}
            return probe.ProbeResult(None)
        return found


def residency(world: World, peers: Sequence[Peer]) -> dict[str, Any]:
    """What the peers hold and burn: CPU while idle, and core's shared staging memory (its part of a rank)."""
    world.quiet_barrier()
    checks: dict[str, Any] = {"idle_cpu_fraction": world.agree_maximum(machine.idle_cpu_fraction())}
    names = {peer.name for peer in peers}
    if "core" in names and "core_zero_copy" not in names:
        # Beside the zero-copy peer the memory that users allocated would be counted too.
        checks["staging_bytes_a_rank"] = sum(world.gather(machine.memfd_bytes())) / world.size
    return checks


def main(arguments: Sequence[str]) -> int:
    """Run under a launcher; the exit status of the process."""
    options = parse(arguments)
    try:
        wanted = chosen(options.peers)
        cores = pin(options, dict(os.environ))
        world = connect()
    except (LaunchError, ValueError) as error:
        print(f"bench/run.py: {error}", file=sys.stderr)
        return 2
    peers, described = start_peers(world, wanted)
    sweep = Sweep(world, peers, options, cores)
    sweep.run()
    document = {
        "schema": report.SCHEMA,
        "machine": machine.describe(),
        "options": dataclasses.asdict(options),
        "ranks": world.size,
        "launcher": world.launcher,
        "peers": described,
        "modes": sweep.modes,
        "probe": sweep.probed,
        "checks": residency(world, peers),
        "results": sweep.results(),
    }
    report.add_comparisons(document)
    wrong = report.wrong_rows(document)
    if world.rank == 0:
        print(report.table(document), flush=True)
        if options.json_path:
            Path(options.json_path).write_text(json.dumps(document, indent=1) + "\n")
        for row in wrong:
            print(f"bench/run.py: WRONG: {row['peer']} {row['op']} {row['bytes']} B: {row['error']}", file=sys.stderr)
    for peer in peers:
        peer.stop()
    world.close()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
