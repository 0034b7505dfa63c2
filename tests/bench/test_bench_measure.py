"""One block of the benchmark, and the figures made of it, with peers whose behaviour is known."""

from __future__ import annotations

import math
import mmap
import os
import pathlib
import threading
from typing import Any

import bench_fakes
import numpy as np
import pytest

from bench import cases, machine, metrics, probe, world
from bench.measure import Measurement, measure
from bench.options import parse


def block(solo: world.World, peer: Any, name: str, count: int = 64) -> Measurement:
    case = cases.Case(cases.operation(name), count, 0, 1, np.dtype("float32"))
    buffers = cases.allocate(count, 1, case.dtype)
    return measure(solo, peer, case, buffers, parse(["-n", "6", "-w", "1"]))


@pytest.mark.parametrize("name", [row.name for row in cases.OPERATIONS])
def test_a_right_peer_gets_figures(solo: world.World, name: str) -> None:
    made = block(solo, bench_fakes.Local(), name)
    assert made.error is None
    assert made.summary is not None
    assert made.summary.iterations == 6
    assert 0 < made.summary.median_us <= made.summary.p95_us
    assert made.back_to_back_us is not None


def test_large_messages_have_no_loop_figure(solo: world.World) -> None:
    made = block(solo, bench_fakes.Local(), "all_gather", 4096)
    assert made.summary is not None
    assert made.back_to_back_us is None


@pytest.mark.parametrize("name", ["reduce_scatter", "all_gather", "all_to_all"])
def test_a_peer_that_idles_when_timed_is_caught(solo: world.World, name: str) -> None:
    made = block(solo, bench_fakes.Lazy(), name)
    assert made.summary is None
    assert made.wrong == 64
    assert made.error == "wrong result in the timed loop"


def test_a_peer_that_raises_is_reported(solo: world.World) -> None:
    made = block(solo, bench_fakes.Raising(), "all_reduce")
    assert made.summary is None
    assert made.error == "rank 0: OverflowError: too large for me"


def test_a_peer_that_lacks_the_operation_is_reported(solo: world.World) -> None:
    assert block(solo, bench_fakes.Lacking(), "broadcast").error == "rank 0: no broadcast in this library"


def test_summary_is_median_and_95th_percentile() -> None:
    made = metrics.summarise([1000.0 * value for value in range(1, 101)])
    assert (made.median_us, made.p95_us, made.iterations) == (50.5, 95.0, 100)
    assert metrics.summarise([3000.0]).p95_us == 3.0
    with pytest.raises(ValueError, match="no iteration"):
        metrics.summarise([])


@pytest.mark.parametrize(
    ("name", "factor"), [("all_reduce", 1.5), ("reduce_scatter", 0.75), ("broadcast", 1.0), ("barrier", 0.0)]
)
def test_bus_factors(name: str, factor: float) -> None:
    assert metrics.bus_factor(cases.operation(name).bus, 4) == factor


def test_algorithm_bandwidth() -> None:
    assert metrics.algorithm_bandwidth_gbps(64_000_000, 8000) == 8.0


def test_ratios_pair_the_rounds() -> None:
    # One round three times slower for both leaves every ratio at 2.
    assert metrics.median_ratio([2, 6, 2], [1, 3, 1]) == 2
    assert math.isnan(metrics.median_ratio([], []))


@pytest.mark.parametrize(
    ("before", "after", "mode"),
    [(80, 90, "near"), (430, 350, "far"), (80, 430, "changed"), (None, None, "unknown")],
)
def test_modes(before: float | None, after: float | None, mode: str) -> None:
    assert metrics.mode_between(before, after) == mode


def test_memfd_bytes_are_this_process_s_share_of_pages_in_use() -> None:
    smaps = (
        "7f0000000000-7f1000400000 rw-s 00000000 00:01 77 /memfd:staging (deleted)\nSize: 67108864 kB\nPss: 2048 kB\n"
        "7f2000000000-7f2000001000 rw-s 00000000 00:01 78 /memfd:staging (deleted)\nPss: 4 kB\nPss_Dirty: 4 kB\n"
        "7f3000000000-7f3000001000 rw-p 00000000 00:00 0 \nSize: 400 kB\nPss: 400 kB\n"
        "7f4000000000-7f4000001000 r-xp 00000000 08:01 12 /usr/lib/libc.so.6\nPss: 300 kB\n"
    )
    assert machine.memfd_bytes(smaps) == (2048 + 4) * 1024


def test_memfd_bytes_of_this_process() -> None:
    before = machine.memfd_bytes()
    descriptor = os.memfd_create("bench-test")
    os.truncate(descriptor, 1 << 30)
    with mmap.mmap(descriptor, 1 << 30) as memory:
        memory[: 1 << 20] = bytes(1 << 20)
        assert machine.memfd_bytes() - before == 1 << 20
    os.close(descriptor)


def test_idle_and_busy_are_told_apart() -> None:
    assert machine.idle_cpu_fraction(0.2) < 0.5


def test_busy_cores_are_seen(tmp_path: pathlib.Path) -> None:
    first, second = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1\n", "cpu  130 0 120 850 0 0 0 0 0 0\ncpu0 1\n"
    stat = tmp_path / "stat"
    stat.write_text(first)
    later = threading.Timer(0.05, stat.write_text, [second])
    later.start()
    assert machine.busy_fraction(0.3, stat) == 0.5
    later.join()
    assert 0 <= machine.busy_fraction(0.05) <= 1


def test_machine_is_described_without_names() -> None:
    described = machine.describe()
    assert described["cores"] >= 1
    assert described["cpu"]
    assert "numpy" in described["versions"]
    assert "hostname" not in described
    assert described["kernel"] in machine.heading(described)


def test_core_lists_are_read() -> None:
    assert probe._ranges("0-2,5") == {0, 1, 2, 5}


def test_the_probe_measures_this_machine() -> None:
    try:
        program = probe.build()
    except probe.ProbeError as error:
        pytest.skip(str(error))
    assert program.exists()
    cores = probe.cores_of_host()[:2]
    found = probe.run(cores, 2, [4096, 1 << 20])
    assert (found.round_trip_ns is None) == (len(cores) < 2)
    assert found.round_trip_ns is None or found.round_trip_ns > 10
    assert found.copy_gbps_a_core[4096] > 0.5
    assert set(found.zero_copy_all_reduce_us) == {1 << 20}


def test_a_core_that_is_not_ours_is_an_error() -> None:
    try:
        probe.build()
    except probe.ProbeError as error:
        pytest.skip(str(error))
    with pytest.raises(probe.ProbeError, match="cannot run on core 1000"):
        probe.run([0, 1000])


def test_launchers_are_told_apart() -> None:
    assert world.launcher_of({"RANK": "0", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}) == "torchrun"
    assert world.launcher_of({"OMPI_COMM_WORLD_SIZE": "2"}) == "mpirun"
    assert world.launcher_of({"PMI_RANK": "0", "PMI_SIZE": "2"}) == "mpirun"
    with pytest.raises(world.LaunchError, match="mpirun -n 2 python"):
        world.launcher_of({"PATH": "/bin"})
    assert world.local_rank_of({"OMPI_COMM_WORLD_LOCAL_RANK": "3"}) == 3
    assert world.local_rank_of({}) == 0
