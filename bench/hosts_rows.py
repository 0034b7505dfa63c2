"""The rows of bench/hosts.py: what is measured between hosts, and how each round's figures are judged. Pure.

Used by hosts.py and hosts_report.py; includes cases.py, metrics.py and report.py. A new case is one row in ROWS.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from bench import cases, metrics, report

LARGE = 64 << 20
SMALL = (8, 64, 512, 4096, 32 << 10)
NO_SLOWER = 0.97  # as in compare.py
EVERY_OP = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


@dataclass(frozen=True)
class Row:
    """A case on a rig of `hosts` hosts with `ranks` ranks each, whose links carry `rate` (None: not shaped).

    `kind` is sweep, ddp or planner. `bound` says which iperf3 figure judges: one_way or both (each direction, while
    both are in use); `need` is the least share of it. `gloo` and `mpi` are the least ratios of their time over ours.
    """

    name: str
    kind: str
    hosts: int
    ranks: int
    rate: str | None
    ops: tuple[str, ...] = ("all_reduce",)
    sizes: tuple[int, ...] = (LARGE,)
    bound: str | None = None
    need: float | None = None
    gloo: float | None = None
    mpi: float | None = None


@dataclass(frozen=True)
class Verdict:
    """One cell judged: `value` is the median over the rounds, None where there is none; `note` says why or more."""

    row: str
    what: str
    need: str
    value: float | None
    passed: bool
    note: str = ""


ROWS: tuple[Row, ...] = (
    Row("links-2", "sweep", 2, 1, "1gbit", EVERY_OP, bound="one_way", need=0.97),
    Row("links-4", "sweep", 4, 1, "1gbit", EVERY_OP, bound="one_way", need=0.97),
    Row("two-level", "sweep", 2, 2, "1gbit", bound="one_way", need=0.95, gloo=1.4),
    Row("small", "sweep", 4, 1, None, sizes=SMALL, gloo=5.0, mpi=NO_SLOWER),
    Row("unshaped", "sweep", 2, 1, None, bound="both", need=0.8),
)


def chosen(names: str | None) -> list[Row]:
    """Rows by name, all of them for None.

    Raises
    ------
    ValueError
        For an unknown name; the message lists the known ones.
    """
    known = {row.name: row for row in ROWS}
    wanted = [name.strip() for name in names.split(",") if name.strip()] if names else list(known)
    unknown = [name for name in wanted if name not in known]
    if unknown or not wanted:
        raise ValueError(f"unknown row {', '.join(unknown) or '(none given)'}: choose from {', '.join(known)}")
    return [known[name] for name in wanted]


def link_bits(row: Row, op: str, size_bytes: int) -> float:
    """Bits that the busiest host must send: busbw's, counted by host rather than by rank."""
    return 8 * size_bytes * metrics.bus_factor(cases.operation(op).bus, row.hosts)


def share(row: Row, cell: dict[str, Any], iperf: dict[str, float], bound: str, peer: str = "collectives") -> float:
    """Share of an iperf3 figure (bits/s) that a cell reached; for a rank a host it is busbw over iperf3."""
    return link_bits(row, cell["op"], cell["bytes"]) / (cell[peer]["median_us"] / 1e6) / iperf[bound]


def verdicts(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    """Judge a row on its samples, one a round."""
    errors = [sample["error"] for sample in samples if sample.get("error")]
    if errors or not samples:
        return [Verdict(row.name, "all", "-", None, False, errors[0] if errors else "not measured")]
    return _sweep(row, samples)


def _sweep(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    found = []
    for index, first in enumerate(samples[0]["cells"]):
        cells = [(sample, sample["cells"][index]) for sample in samples]
        what = f"{first['op']} {report.size_text(first['bytes'])}"
        broken = [cell["collectives"]["error"] for _, cell in cells if "error" in cell["collectives"]]
        if broken:
            found.append(Verdict(row.name, what, "-", None, False, broken[0]))
            continue
        if row.bound and row.need:
            value = statistics.median(share(row, cell, sample["iperf"], row.bound) for sample, cell in cells)
            other = "both" if row.bound == "one_way" else "one_way"
            beside = statistics.median(share(row, cell, sample["iperf"], other) for sample, cell in cells)
            named = {"one_way": "one way", "both": "both at once"}
            found.append(
                _at_least(
                    row, f"{what}, of iperf3 {named[row.bound]}", row.need, value, f"{named[other]}: {beside:.3f}"
                )
            )
        if row.gloo:
            found.append(_ratio(row, what, "gloo", row.gloo, cells, "collectives"))
        if row.mpi:
            found.append(_ratio(row, what, "mpi", row.mpi, cells, "core"))
    return found


def _ratio(row: Row, what: str, peer: str, need: float, cells: list[Any], ours: str) -> Verdict:
    """The peer's time over ours, within each round."""
    pairs = [(cell.get(peer, {}), cell.get(ours, {})) for _, cell in cells]
    missing = [str(each.get("error", "not measured")) for pair in pairs for each in pair if "median_us" not in each]
    if missing:
        return Verdict(row.name, f"{what}, {peer} / {ours}", f">= {need:g}", None, False, missing[0])
    value = metrics.median_ratio((p["median_us"] for p, _ in pairs), (o["median_us"] for _, o in pairs))
    return _at_least(row, f"{what}, {peer} / {ours}", need, value)


def _at_least(row: Row, what: str, need: float, value: float, note: str = "") -> Verdict:
    return Verdict(row.name, what, f">= {need:g}", value, value >= need, note)


def _at_most(row: Row, what: str, need: float, value: float, note: str = "") -> Verdict:
    return Verdict(row.name, what, f"<= {need:g}", value, value <= need, note)
