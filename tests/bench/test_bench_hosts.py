"""The figures between hosts: judged as the rows say, by fakes; and one real, quick run where a rig can be made."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

from bench import hosts, hosts_ranks, hosts_report, hosts_rows, launchers
from bench.hosts_rows import Row

ROOT = pathlib.Path(__file__).resolve().parents[2]


def figures(median_us: float) -> dict[str, Any]:
    return {"median_us": median_us, "p95_us": median_us, "iterations": 5}


def cell(ours_us: float, **others: Any) -> dict[str, Any]:
    return {"op": "all_reduce", "bytes": 64 << 20, "collectives": figures(ours_us), **others}


def sample(name: str, index: int, *cells: dict[str, Any]) -> dict[str, Any]:
    return {"row": name, "round": index, "busy": 0.02, "iperf": {"one_way": 1e9, "both": 8e8}, "cells": list(cells)}


def test_busbw_is_taken_over_iperf3_by_the_figure_that_the_row_names() -> None:
    least_us = 8 * (64 << 20) / 1e9 * 1e6  # two ranks: 2(n-1)/n is 1
    row = Row("r", "sweep", 2, 1, "1gbit", bound="one_way", need=0.97)
    good, bad = cell(least_us / 0.98), cell(least_us / 0.96)
    assert [each.passed for each in hosts_rows.verdicts(row, [sample("r", 0, good)])] == [True]
    (verdict,) = hosts_rows.verdicts(row, [sample("r", 0, bad)])
    assert not verdict.passed and verdict.value == pytest.approx(0.96) and verdict.note == "both at once: 1.200"


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


def test_a_step_is_judged_by_the_larger_of_computing_and_exchange() -> None:
    row = Row("r", "ddp", 4, 1, "1gbit", bound="one_way", need=1.1)
    exchange_s = 12 * 50_000_000 / 1e9
    ddp = {"model_bytes": 50_000_000, "compute_s": 0.5, "collectives_step_s": 1.2 * exchange_s, "gloo_step_s": 2.0}
    ours, _ = hosts_rows.verdicts(row, [{**sample("r", 0), "ddp": ddp}])
    assert not ours.passed and ours.value == pytest.approx(1.2)
    ours, _ = hosts_rows.verdicts(row, [{**sample("r", 0), "ddp": {**ddp, "compute_s": 0.7}}])
    assert ours.passed


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
    assert order == [(0, "links-2"), (0, "small"), (1, "small"), (1, "links-2")]
    assert json.loads(path.read_text()) == document
    hosts_report.validate(document)
    text = hosts_report.markdown(document)
    assert "RuntimeError: no rank came" in text and "reno" in text and "2 rounds" in text


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
    assert 0.5e9 < one["iperf"]["one_way"] < 1e9 and "median_us" in one["cells"][0]["gloo"], one
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
