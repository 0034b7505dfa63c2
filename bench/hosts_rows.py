"""The rows of bench/hosts.py: what is measured between hosts, and how each round's figures are judged. Pure.

Used by hosts.py and hosts_report.py; includes cases.py, metrics.py and report.py. A new case is one row in ROWS.
A sample (a row in a round) has, where the row has a bound, `iperf`: {before, after: {one_way, both: [bits/s, ..]}}.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from bench import cases, metrics, report

LARGE = 64 << 20
SMALL = (8, 64, 512, 4096, 32 << 10)
# None of them is a size that tune() measures (8 B times a power of 4).
PLANNED = (16, 200, 1536, 12 << 10, 100 << 10, 700 << 10, 5 << 20, LARGE)
BETWEEN = (256 << 10, 2 << 20)  # for information: where the small algorithms give way to the large ones
NO_SLOWER = 0.97  # as in compare.py
STEADY_WITHIN = 0.03  # a bound whose readings differ by more judges no row whose margin is 3 %
EVERY_OP = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all")


@dataclass(frozen=True)
class Row:
    """A case on a rig of `hosts` hosts with `ranks` ranks each, whose links carry `rate` (None: not shaped).

    `kind` is sweep, ddp or planner; sizes in `informs` are measured as well, and judged by nothing. `bound` says which
    iperf3 figure judges: one_way or both (each direction, while both are in use); `need` is the least share of it.
    `gloo` and `mpi` are the least ratios of their time over ours.
    """

    name: str
    kind: str
    hosts: int
    ranks: int
    rate: str | None
    ops: tuple[str, ...] = ("all_reduce",)
    sizes: tuple[int, ...] = (LARGE,)
    informs: tuple[int, ...] = ()
    bound: str | None = None
    need: float | None = None
    gloo: float | None = None
    mpi: float | None = None


@dataclass(frozen=True)
class Bound:
    """All readings of an iperf3 figure of a row, bits per second: before and after its cells, in all its rounds."""

    readings: tuple[float, ...]

    @property
    def median(self) -> float:
        """What the row is judged by."""
        return statistics.median(self.readings)

    @property
    def steady(self) -> bool:
        """Whether the readings agree well enough to judge by."""
        return max(self.readings) - min(self.readings) <= STEADY_WITHIN * self.median

    def __str__(self) -> str:
        least, median, most = (f"{each / 1e6:,.1f}" for each in (min(self.readings), self.median, max(self.readings)))
        return f"{median} ({least}..{most}) Mbit/s{'' if self.steady else ', bound unsteady'}"


@dataclass(frozen=True)
class Verdict:
    """One cell judged: `value` is the median over the rounds, None where there is none; `note` says why or more.

    `need` is "-" where nothing is needed: then the value is for information.
    """

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
    Row("small", "sweep", 4, 1, None, sizes=SMALL, informs=BETWEEN, gloo=5.0, mpi=NO_SLOWER),
    Row("unshaped", "sweep", 2, 1, None, informs=BETWEEN, bound="both", need=0.8),
    # The sizes are the largest batch: of the first, computing is short; of the second it lasts about as long as the
    # exchange.
    Row("ddp", "ddp", 4, 1, "1gbit", sizes=(32,), bound="one_way", need=1.1),
    Row("ddp-balanced", "ddp", 4, 1, "1gbit", sizes=(512,), bound="one_way", need=1.1),
    *(Row(f"plan-{hosts}", "planner", hosts, 1, None, sizes=PLANNED) for hosts in (2, 3, 4, 8)),
    *(Row(f"plan-{hosts}-1gbit", "planner", hosts, 1, "1gbit", sizes=PLANNED) for hosts in (2, 3, 4, 8)),
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


def share(row: Row, cell: dict[str, Any], bound: Bound, peer: str = "collectives") -> float:
    """Share of an iperf3 figure that a cell reached; for a rank a host it is busbw over iperf3."""
    return link_bits(row, cell["op"], cell["bytes"]) / (cell[peer]["median_us"] / 1e6) / bound.median


def bounds(samples: list[dict[str, Any]]) -> dict[str, Bound]:
    """Of each iperf3 figure (one_way, both) all readings in these samples; none where iperf3 did not run."""
    found: dict[str, tuple[float, ...]] = {}
    for sample in samples:
        for readings in sample.get("iperf", {}).values():
            for name, each in readings.items():
                found[name] = (*found.get(name, ()), *each)
    return {name: Bound(readings) for name, readings in found.items()}


def in_short(error: str) -> str:
    """The line of an error that says most: one that says how a rank ended, else the first."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or ["no message"]
    return next((line for line in lines if line.startswith("---- rank")), lines[0])[:200]


def verdicts(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    """Judge a row on its samples, one a round."""
    errors = [sample["error"] for sample in samples if sample.get("error")]
    if errors or not samples:
        return [Verdict(row.name, "all", "-", None, False, in_short(errors[0]) if errors else "not measured")]
    return {"sweep": _sweep, "ddp": _ddp, "planner": _planner}[row.kind](row, samples)


_NAMED = {"one_way": "one way", "both": "both at once"}


def _sweep(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    found, bound = [], bounds(samples)
    for index, first in enumerate(samples[0]["cells"]):
        cells = [(sample, sample["cells"][index]) for sample in samples]
        what = f"{first['op']} {report.size_text(first['bytes'])}"
        broken = [cell["collectives"]["error"] for _, cell in cells if "error" in cell["collectives"]]
        if broken:
            found.append(Verdict(row.name, what, "-", None, False, broken[0]))
            continue
        informs = first["bytes"] in row.informs
        if row.bound and row.need:
            need = None if informs else row.need
            value = statistics.median(share(row, cell, bound[row.bound]) for _, cell in cells)
            other = "both" if row.bound == "one_way" else "one_way"
            beside = statistics.median(share(row, cell, bound[other]) for _, cell in cells)
            note = f"{_NAMED[other]}: {beside:.3f}; bound {bound[row.bound]}"
            found.append(_at_least(row, f"{what}, of iperf3 {_NAMED[row.bound]}", need, value, note))
        if row.gloo:
            found.append(_ratio(row, what, "gloo", None if informs else row.gloo, cells, "collectives"))
        if row.mpi:
            found.append(_ratio(row, what, "mpi", None if informs else row.mpi, cells, "core"))
    return found


def _ratio(row: Row, what: str, peer: str, need: float | None, cells: list[Any], ours: str) -> Verdict:
    """The peer's time over ours, within each round."""
    pairs = [(cell.get(peer, {}), cell.get(ours, {})) for _, cell in cells]
    missing = [str(each.get("error", "not measured")) for pair in pairs for each in pair if "median_us" not in each]
    if missing:
        needed = "-" if need is None else f">= {need:g}"
        return Verdict(row.name, f"{what}, {peer} / {ours}", needed, None, False, missing[0])
    value = metrics.median_ratio((p["median_us"] for p, _ in pairs), (o["median_us"] for _, o in pairs))
    return _at_least(row, f"{what}, {peer} / {ours}", need, value)


def _at_least(row: Row, what: str, need: float | None, value: float, note: str = "") -> Verdict:
    return Verdict(row.name, what, "-" if need is None else f">= {need:g}", value, need is None or value >= need, note)


def _at_most(row: Row, what: str, need: float | None, value: float, note: str = "") -> Verdict:
    return Verdict(row.name, what, "-" if need is None else f"<= {need:g}", value, need is None or value <= need, note)


def exchange_s(row: Row, model_bytes: int, bound: Bound) -> float:
    """Least seconds of the exchange of a model's gradients, by the bytes of an all_reduce and iperf3."""
    return link_bits(row, "all_reduce", model_bytes) / bound.median


def _ddp(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    found = []
    bound = bounds(samples)["one_way"]
    for peer, need in (("collectives", row.need), ("gloo", None)):
        ratios, exchanges, computes, steps = [], [], [], []
        for sample in samples:
            exchanges.append(exchange_s(row, sample["ddp"]["model_bytes"], bound))
            computes.append(sample["ddp"]["compute_s"])
            steps.append(sample["ddp"][f"{peer}_step_s"])
            ratios.append(steps[-1] / max(exchanges[-1], computes[-1]))
        step, compute, exchange = (statistics.median(each) for each in (steps, computes, exchanges))
        note = f"step {step:.3f} s, compute {compute:.3f} s, exchange {exchange:.3f} s; bound {bound}"
        what = f"step / max(compute, exchange), {peer}"
        found.append(_at_most(row, what, need, statistics.median(ratios), note))
    return found


def _planner(row: Row, samples: list[dict[str, Any]]) -> list[Verdict]:
    """Per size: the chosen algorithm's time over the best one's, and predicted over measured of the chosen."""
    found = []
    for index, first in enumerate(samples[0]["plans"]):
        plans = [sample["plans"][index] for sample in samples]
        size = report.size_text(first["bytes"])
        ratios, predictions, notes = [], [], []
        for plan in plans:
            times, chosen_name = plan["measured_us"], plan["chosen"]
            best = min(times, key=times.__getitem__)
            ratios.append(times[chosen_name] / times[best])
            predictions.append(plan["predicted_us"][chosen_name] / times[chosen_name])
            notes.append(f"{chosen_name.removeprefix('all_reduce_')} (best {best.removeprefix('all_reduce_')})")
        found.append(_at_most(row, f"{size}, chosen / best", 1.1, statistics.median(ratios), ", ".join(notes)))
        value = statistics.median(predictions)
        taken = statistics.median(plan["measured_us"][plan["chosen"]] for plan in plans)
        note = f"chosen took {taken:,.0f} us"
        passed = 0.85 <= value <= 1.15
        found.append(Verdict(row.name, f"{size}, predicted / measured", "0.85 to 1.15", value, passed, note))
    return found
