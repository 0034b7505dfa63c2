"""The figures between hosts: judged as the rows say, by fakes; and one real, quick run where a rig can be made."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from bench import hosts, hosts_ranks, hosts_report, hosts_rows, launchers, machine
from bench.hosts_rows import Row

ROOT = pathlib.Path(__file__).resolve().parents[2]


def figures(median_us: float) -> dict[str, Any]:
    return {"median_us": median_us, "p95_us": median_us, "iterations": 5}


def cell(ours_us: float, **others: Any) -> dict[str, Any]:
    return {"op": "all_reduce", "bytes": 64 << 20, "collectives": figures(ours_us), **others}


def iperf(*one_way: float) -> dict[str, list[float]]:
    return {"one_way": list(one_way), "both": [8e8]}


def sample(name: str, index: int, *cells: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "row": name, "round": index, "busy": 0.02, "others": {"before": 0.0, "cells": 0.01, "after": 0.0},
        "cores": {"round_trip_ns": [84.2, 86.0], "mode": "near"},
        "iperf": {"before": iperf(1e9), "after": iperf(1e9)}, "cells": list(cells), **changed,
    }  # fmt: skip


def a_document(*samples: dict[str, Any], **changed: Any) -> dict[str, Any]:
    names = {one["row"] for one in samples}
    rows = [row.name for row in hosts_rows.ROWS if row.name in names]
    return {"schema": hosts_report.SCHEMA, "machine": machine.describe(), "congestion": "reno", "streams": 1,
            "quick": False, "rows": rows, "samples": list(samples), **changed}  # fmt: skip


def test_busbw_is_taken_over_iperf3_by_the_figure_that_the_row_names() -> None:
    least_us = 8 * (64 << 20) / 1e9 * 1e6  # two ranks: 2(n-1)/n is 1
    row = Row("r", "sweep", 2, 1, "1gbit", bound="one_way", need=0.97)
    good, bad = cell(least_us / 0.98), cell(least_us / 0.96)
    assert [each.passed for each in hosts_rows.verdicts(row, [sample("r", 0, good)])] == [True]
    (verdict,) = hosts_rows.verdicts(row, [sample("r", 0, bad)])
    assert not verdict.passed and verdict.value == pytest.approx(0.96)
    assert verdict.note == "both at once: 1.200; bound 1,000.0 (1,000.0..1,000.0) Mbit/s"


def test_the_bound_is_the_median_of_all_readings_before_and_after_in_all_rounds() -> None:
    row = Row("r", "sweep", 2, 1, "1gbit", bound="one_way", need=0.97)
    ours = cell(8 * (64 << 20) / 0.97e9 * 1e6)
    first = sample("r", 0, ours, iperf={"before": iperf(0.9e9, 0.999e9), "after": iperf(1.0e9, 1.0e9)})
    second = sample("r", 1, ours, iperf={"before": iperf(1.001e9, 1.02e9), "after": iperf(1.0e9, 1.0e9)})
    bound = hosts_rows.bounds([first, second])["one_way"]
    assert len(bound.readings) == 8 and bound.median == 1e9 and not bound.steady
    (verdict,) = hosts_rows.verdicts(row, [first, second])
    assert verdict.value == pytest.approx(0.97)
    assert verdict.note.endswith("bound 1,000.0 (900.0..1,020.0) Mbit/s, bound unsteady")
    assert hosts_rows.bounds([{"row": "r", "round": 0}]) == {}


def test_both_ways_at_once_is_the_mean_direction() -> None:
    end = {"sum_received": {"bits_per_second": 14e9}, "sum_received_bidir_reverse": {"bits_per_second": 52e9}}
    assert hosts.each_way(end) == 33e9


def test_three_percent_between_the_readings_is_steady_and_more_is_not() -> None:
    assert hosts_rows.Bound((1.0e9, 1.0e9, 1.03e9)).steady
    assert not hosts_rows.Bound((1.0e9, 1.0e9, 1.031e9)).steady
    good = sample("links-2", 0, cell(6e5), iperf={"before": iperf(950e6, 952e6), "after": iperf(951e6)})
    bad = sample("links-4", 0, cell(9e5), iperf={"before": iperf(950e6, 903e6), "after": iperf(951e6)})
    text = hosts_report.markdown(a_document(good, bad))
    one, other = text.index("\n## links-2"), text.index("\n## links-4")
    assert "| one way | 951.0 | 950.0..952.0 | steady | 950.0 952.0 and 951.0 |" in text[one:other]
    assert "| one way | 950.0 | 903.0..951.0 | **bound unsteady** | 950.0 903.0 and 951.0 |" in text[other:]
    assert "bound unsteady" not in text[one:other]
    judged = [line for line in text[:one].splitlines() if "bound unsteady" in line]
    assert len(judged) == 1 and judged[0].startswith("| links-4 | all_reduce 64 MiB")


def test_two_ranks_a_host_share_the_bytes_of_their_host() -> None:
    assert hosts_rows.link_bits(Row("r", "sweep", 2, 2, None), "all_reduce", 64 << 20) == 8 * (64 << 20)
    assert hosts_rows.link_bits(Row("r", "sweep", 4, 1, None), "all_to_all", 64 << 20) == 6 * (64 << 20)


def test_ratios_are_medians_of_paired_rounds() -> None:
    row = Row("r", "sweep", 4, 1, None, gloo=5.0)
    rounds = [sample("r", index, cell(10.0, gloo=figures(time))) for index, time in enumerate((20.0, 60.0, 55.0))]
    (verdict,) = hosts_rows.verdicts(row, rounds)
    assert verdict.passed and verdict.value == pytest.approx(5.5)


def test_what_was_not_measured_or_is_wrong_never_passes() -> None:
    row = Row("r", "sweep", 4, 1, None, gloo=5.0, mpi=0.97)
    gloo, mpi = hosts_rows.verdicts(row, [sample("r", 0, cell(10.0, gloo=figures(60.0)))])
    assert gloo.passed and not mpi.passed and mpi.value is None
    wrong = {"op": "all_reduce", "bytes": 8, "collectives": {"error": "wrong result: 1 of 2", "wrong": 1}}
    (verdict,) = hosts_rows.verdicts(row, [sample("r", 0, wrong)])
    assert not verdict.passed and verdict.note == "wrong result: 1 of 2"
    assert not hosts_rows.verdicts(row, [])[0].passed
    document = {"samples": [sample("r", 0, wrong), {"row": "s", "round": 0, "error": "no rig"}]}
    assert hosts_report.broken(document) == ["s: no rig", "r: all_reduce 8 B, collectives: wrong result: 1 of 2"]


def test_sizes_for_information_are_shown_and_judged_by_nothing() -> None:
    row = next(row for row in hosts_rows.ROWS if row.name == "unshaped")
    assert row.informs == (256 << 10, 2 << 20) == next(r for r in hosts_rows.ROWS if r.name == "small").informs
    slow = {**cell(1e9), "bytes": 256 << 10}
    informed, judged = hosts_rows.verdicts(row, [sample("unshaped", 0, slow, cell(1.0))])
    assert informed.need == "-" and informed.passed and informed.value is not None and informed.value < 0.01
    assert judged.need == ">= 0.8" and judged.passed
    text = hosts_report.markdown(a_document(sample("unshaped", 0, slow, cell(1.0))))
    assert re.search(r"\| unshaped \| all_reduce 256 KiB, .* \| - \| 0\.000 \| information \|", text)
    small = Row("r", "sweep", 4, 1, None, sizes=(8,), informs=(256 << 10,), gloo=5.0, mpi=0.97)
    gloo, mpi = hosts_rows.verdicts(small, [sample("r", 0, {**slow, "gloo": figures(1.0)})])
    assert gloo.passed and gloo.need == "-" and mpi.value is None and mpi.need == "-"


def test_open_mpi_is_asked_for_the_sizes_of_its_row() -> None:
    from bench.options import size_series

    for row in hosts_rows.ROWS:
        if row.mpi:
            sizes = (*row.sizes, *row.informs)
            assert size_series(sizes[0], sizes[-1], sizes[1] // sizes[0]) == sizes


def test_what_others_used_is_told_before_and_during_the_row_and_the_worst_part_of_it_counts() -> None:
    quiet = sample("links-2", 0, cell(6e5))
    other = sample("links-2", 1, cell(6e5), busy=0.04, others={"before": 0.0, "cells": 0.03, "after": 0.0})
    busy = sample("links-2", 2, cell(6e5), others={"before": 0.0, "cells": 0.01, "after": 0.25})
    text = hosts_report.markdown(a_document(quiet, other))
    assert "NOT QUIET" not in text and "Other programs used 3 % of the processor before the median row" in text
    assert "4 % before the worst, 2 % during the median row and 3 % during the worst." in text
    text = hosts_report.markdown(a_document(quiet, other, busy))
    assert "**NOT QUIET**: other programs" in text and "3 % during the median row and 25 % during the worst." in text


def test_the_mode_of_the_cores_is_told_for_every_round() -> None:
    far = sample("links-2", 1, cell(6e5), cores={"round_trip_ns": [84.2, 410.0], "mode": "changed"})
    blind = sample("links-2", 2, cell(6e5), cores={"round_trip_ns": [None, None], "mode": "unknown"}, no_mode="no c++")
    text = hosts_report.markdown(a_document(sample("links-2", 0, cell(6e5)), far, blind))
    assert "near (84 and 86 ns), changed (84 and 410 ns), unknown (? and ? ns)" in text
    assert "The mode of the cores is not known: no c++." in text


def test_a_step_is_judged_by_the_larger_of_computing_and_exchange() -> None:
    row = Row("r", "ddp", 4, 1, "1gbit", bound="one_way", need=1.1)
    exchange_s = 12 * 50_000_000 / 1e9
    ddp = {"model_bytes": 50_000_000, "compute_s": 0.5, "collectives_step_s": 1.2 * exchange_s, "gloo_step_s": 2.0}
    ours, _ = hosts_rows.verdicts(row, [{**sample("r", 0), "ddp": ddp}])
    assert not ours.passed and ours.value == pytest.approx(1.2)
    ours, _ = hosts_rows.verdicts(row, [{**sample("r", 0), "ddp": {**ddp, "compute_s": 0.7}}])
    assert ours.passed
    _, gloo = hosts_rows.verdicts(row, [{**sample("r", 0), "ddp": ddp}])
    assert gloo.need == "-"


def test_the_planner_is_judged_by_its_choice_and_its_prediction() -> None:
    plan = {"bytes": 200, "chosen": "all_reduce_ring", "predicted_us": {"all_reduce_ring": 13.0},
            "measured_us": {"all_reduce_ring": 10.0, "all_reduce_direct": 8.0}}  # fmt: skip
    choice, prediction = hosts_rows.verdicts(
        Row("r", "planner", 4, 1, None), [{"row": "r", "round": 0, "plans": [plan]}]
    )
    assert choice.value == pytest.approx(1.25) and not choice.passed and choice.note == "ring (best direct)"
    assert prediction.value == pytest.approx(1.3) and not prediction.passed


def test_no_planned_size_is_one_that_tune_measures() -> None:
    assert not {8 * 4**power for power in range(20)} & set(hosts_rows.PLANNED)


def test_a_plan_is_read() -> None:
    text = "head\n  * all_reduce_direct: 1 step; 12.3 us predicted\n    all_reduce_ring: x; 1.5 ms predicted\n"
    text += "    all_reduce_halving: does not apply\n"
    assert hosts_ranks.read_plan(text) == (
        "all_reduce_direct",
        {"all_reduce_direct": 12.3, "all_reduce_ring": pytest.approx(1500)},
    )
    with pytest.raises(ValueError, match="0 algorithms"):
        hosts_ranks.read_plan("nothing")


def test_rounds_turn_and_a_row_that_fails_is_kept(tmp_path: pathlib.Path) -> None:
    order = []

    def measure(row: Row, index: int, quick: bool, timeout: float) -> dict[str, Any]:
        order.append((index, row.name))
        if row.name == "small":
            raise RuntimeError("no rank came")
        return sample(row.name, index, cell(1e6))

    path = tmp_path / "hosts.json"
    options = hosts.build_parser().parse_args(["--rounds", "2", "--json", str(path)])
    document = hosts.measure_all(hosts_rows.chosen("links-2,small"), options, lambda text: None, measure)
    assert [path.name for path in tmp_path.iterdir()] == ["hosts.json"]
    assert order == [(0, "links-2"), (0, "small"), (1, "small"), (1, "links-2")]
    assert json.loads(path.read_text()) == document
    hosts_report.validate(document)
    text = hosts_report.markdown(document)
    assert "RuntimeError: no rank came" in text and "reno" in text and "2 rounds of every row" in text
    assert "0 of 2 rounds ran to the end" in text


def append(path: pathlib.Path, rows: str, *more: str, measured: list[Any] | None = None) -> dict[str, Any]:
    """One round more of these rows, each 1 s."""

    def measure(row: Row, index: int, quick: bool, timeout: float) -> dict[str, Any]:
        if measured is not None:
            measured.append((row.name, index))
        return sample(row.name, index, cell(1e6))

    options = hosts.build_parser().parse_args(["--rounds", "1", "--append", "--json", str(path), *more])
    return hosts.measure_all(hosts_rows.chosen(rows), options, lambda text: None, measure)


def test_rounds_are_added_row_by_row_to_a_document(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, measured = tmp_path / "hosts.json", []
    append(path, "small", measured=measured)
    append(path, "links-2", measured=measured)
    document = append(path, "links-2,unshaped", measured=measured)
    assert measured == [("small", 0), ("links-2", 0), ("links-2", 1), ("unshaped", 0)]
    assert json.loads(path.read_text()) == document and document["rows"] == ["links-2", "small", "unshaped"]
    assert len(hosts_rows.bounds(hosts_report.samples_of(document, "links-2"))["one_way"].readings) == 4
    assert hosts.main(["--from", str(path)]) == 0
    text = capsys.readouterr().out
    assert "Rounds by row: links-2 2, small 1, unshaped 1; congestion" in text
    assert "2 of 2 rounds ran to the end" in text and "1 of 1 round ran to the end" in text


def test_an_interrupt_keeps_the_rows_that_were_done(tmp_path: pathlib.Path) -> None:
    def measure(row: Row, index: int, quick: bool, timeout: float) -> dict[str, Any]:
        if row.name == "small":
            raise KeyboardInterrupt
        return sample(row.name, index, cell(1e6))

    path = tmp_path / "hosts.json"
    options = hosts.build_parser().parse_args(["--json", str(path)])
    with pytest.raises(KeyboardInterrupt):
        hosts.measure_all(hosts_rows.chosen("links-2,small"), options, lambda text: None, measure)
    document = json.loads(path.read_text())
    hosts_report.validate(document)
    assert [one["row"] for one in document["samples"]] == ["links-2"]
    assert "not measured" in hosts_report.markdown(document)


@pytest.mark.parametrize(
    ("changed", "more", "said"),
    [
        ({"congestion": "cubic"}, (), "congestion is 'cubic' there and 'reno' here$"),
        ({"streams": 4}, (), "streams is 4 there and 1 here$"),
        ({}, ("--quick",), "quick is False there and True here$"),
        ({"schema": "collectives-hosts/1"}, (), "schema is 'collectives-hosts/1', not"),
        ({"machine": {**machine.describe(), "cores": 4096}}, (), "cores is 4096 there"),
    ],
)
def test_rounds_made_in_another_way_are_not_added(
    tmp_path: pathlib.Path, changed: dict[str, Any], more: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "hosts.json"
    text = json.dumps(a_document(sample("links-2", 0, cell(1e6)), **changed))
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        append(path, "links-2", *more)
    assert path.read_text() == text


def test_to_append_without_a_document_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        hosts.main(["--append"])
    assert "give --json" in capsys.readouterr().err


def test_rounds_of_different_sizes_are_not_judged_by_their_place() -> None:
    other = {**cell(1e6), "bytes": 8}
    with pytest.raises(ValueError, match="rounds of row links-2 hold different"):
        hosts_report.validate(a_document(sample("links-2", 0, cell(1e6)), sample("links-2", 1, other)))


def process(proc: pathlib.Path, pid: int, parent: int, ticks: tuple[int, ...], name: str = "x", flags: int = 0) -> None:
    (proc / str(pid)).mkdir(exist_ok=True)
    fields = ["S", parent, 0, 0, 0, 0, flags, 0, 0, 0, 0, *ticks, 20, 0]
    (proc / str(pid) / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}\n")


def test_others_are_neither_this_tree_nor_the_kernels_threads(tmp_path: pathlib.Path) -> None:
    (tmp_path / "stat").write_text("cpu 0 0 0 1000 0 0 0 0 0 0\n")
    process(tmp_path, 1, 0, (5, 5, 100, 0))
    process(tmp_path, 7, 1, (1, 1, 0, 0), name="a) (b")
    process(tmp_path, 9, 7, (0, 0, 0, 0))
    process(tmp_path, 20, 1, (30, 0, 0, 0))
    process(tmp_path, 3, 2, (0, 0, 0, 0), flags=0x200040)
    (tmp_path / "self").mkdir()
    others = machine.Others(7, tmp_path)
    (tmp_path / "stat").write_text("cpu 40 0 30 1125 0 0 0 5 0 0\n")
    process(tmp_path, 7, 1, (20, 20, 10, 0), name="a) (b")
    process(tmp_path, 9, 7, (50, 0, 0, 0))
    process(tmp_path, 3, 2, (0, 60, 0, 0), flags=0x200040)
    process(tmp_path, 21, 20, (6, 2, 0, 0))
    (tmp_path / "20" / "stat").unlink()  # ended, and what it used is now in what its parent waited for
    process(tmp_path, 1, 0, (5, 5, 137, 0))
    assert others.lap() == pytest.approx((7 + 8 + 5) / 200)
    assert others.lap() == 0.0


def test_this_process_is_found_among_those_of_the_machine() -> None:
    parent, ticks = machine._process(pathlib.Path("/proc/self/stat").read_text())
    assert parent == os.getppid() and ticks > 0
    assert 0.0 <= machine.Others().lap() <= 1.0


def test_an_orphan_stays_in_the_tree() -> None:
    """In a process of its own, which stays the parent of all orphans; the orphan sleeps until its input ends."""
    script = (
        "import os, pathlib, subprocess; from bench import machine\n"
        "machine.adopt_orphans()\n"
        "command = ['sh', '-c', 'cat <&3 >/dev/null 2>&1 3<&- & echo $!']\n"
        "reading, writing = os.pipe(); os.dup2(reading, 3)\n"
        "done = subprocess.run(command, pass_fds=(3,), stdout=subprocess.PIPE, text=True, check=True)\n"
        "parent, _ = machine._process(pathlib.Path(f'/proc/{int(done.stdout)}/stat').read_text())\n"
        "assert parent == os.getpid(), (parent, os.getpid())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_rows_and_foreign_documents_are_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match=r"unknown row nonsense: choose from links-2"):
        hosts_rows.chosen("nonsense")
    path = tmp_path / "other.json"
    path.write_text("{}")
    assert hosts.main(["--from", str(path)]) == 2


@pytest.mark.deadline(120)
def test_a_quick_run_for_real(tmp_path: pathlib.Path) -> None:
    from tests.hosts import why_not

    if reason := why_not("iperf3"):
        pytest.skip(reason)
    path = tmp_path / "hosts.json"
    command = [sys.executable, str(ROOT / "bench" / "hosts.py"), "--quick", "--rounds", "1", "--rows", "two-level"]
    environment = launchers.clean_environment()
    done = subprocess.run(
        [*command, "--json", str(path)], env=environment, capture_output=True, text=True, check=False, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (one,) = json.loads(path.read_text())["samples"]
    readings = [*one["iperf"]["before"]["one_way"], *one["iperf"]["after"]["one_way"]]
    assert len(readings) == 2 and all(0.5e9 < each < 1e9 for each in readings), one
    assert "median_us" in one["cells"][0]["gloo"], one
    assert set(one["others"]) == {"before", "cells", "after"} and one["cores"]["mode"], one
    assert "two-level" in done.stdout


@pytest.mark.deadline(120)
def test_training_and_plans_end_and_give_every_figure(tmp_path: pathlib.Path) -> None:
    from tests.hosts import Hosts, run_ranks_on_hosts, why_not

    if reason := why_not("iperf3"):
        pytest.skip(reason)
    with Hosts(2, congestion=hosts.CONGESTION) as rig:
        steps = run_ranks_on_hosts(hosts_ranks.ddp, rig, 1, 0.001, 1, 0, timeout=55, backend=None)[0]
        plans = run_ranks_on_hosts(
            hosts_ranks.plan, rig, 1, (16, 200), 0.05, 4096, str(tmp_path), timeout=55, backend=None
        )[0]
    assert steps["batch"] == hosts_ranks.SMALL_BATCH and steps["model_bytes"] == 50_380_800
    assert min(steps["compute_s"], steps["collectives_step_s"], steps["gloo_step_s"]) > 0
    assert [plan["bytes"] for plan in plans] == [16, 200]
    for plan in plans:
        assert plan["chosen"] in plan["measured_us"] and set(plan["measured_us"]) == set(plan["predicted_us"])
