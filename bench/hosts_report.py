"""The document of bench/hosts.py for a person: verdicts by row, and the figures of every round.

Used by hosts.py alone; includes hosts_rows.py, machine.py and report.py. Document (JSON): schema, machine, congestion,
streams, quick, rows (names), samples (one a row and round: {row, round, busy, others, cores, iperf?, cells | ddp |
plans} or {row, round, error}). A row may have more rounds than another.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from bench import hosts_rows, machine, report

SCHEMA = "collectives-hosts/2"
_TOP = {"schema": str, "machine": dict, "congestion": str, "streams": int, "quick": bool, "rows": list, "samples": list}


def validate(document: Any) -> None:
    """Check a document that was read back.

    Raises
    ------
    ValueError
        Naming what is missing or wrong, or the row whose rounds hold different cells.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        schema = document.get("schema") if isinstance(document, dict) else None
        raise ValueError(f"not a document of this bench/hosts.py: schema is {schema!r}, not {SCHEMA!r}")
    problems = [key for key, kind in _TOP.items() if not isinstance(document.get(key), kind)]
    if problems:
        raise ValueError(f"not a document of bench/hosts.py: {', '.join(problems)} missing or of the wrong type")
    hosts_rows.chosen(",".join(document["rows"]))
    for name in document["rows"]:
        if len({_shape(one) for one in samples_of(document, name) if not one.get("error")}) > 1:
            raise ValueError(f"the rounds of row {name} hold different operations or sizes: measure it anew")


def _shape(sample: dict[str, Any]) -> tuple[Any, ...]:
    """What is compared across rounds by its place."""
    cells = [(cell["op"], cell["bytes"]) for cell in sample.get("cells", [])]
    return (*cells, *(plan["bytes"] for plan in sample.get("plans", [])))


def continued(document: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    """A document to which samples may be added that are made as `wanted` (a document without any) says.

    Raises
    ------
    ValueError
        If it is no document, or was made in another way; the message says in what they differ.
    """
    validate(document)
    pairs = [(key, document[key], wanted[key]) for key in ("congestion", "streams", "quick")]
    pairs += [(key, document["machine"].get(key), wanted["machine"].get(key)) for key in ("cpu", "cores")]
    differ = [f"{key} is {there!r} there and {here!r} here" for key, there, here in pairs if there != here]
    if differ:
        raise ValueError(f"--append: the document was made in another way: {'; '.join(differ)}")
    names = {*document["rows"], *wanted["rows"]}
    return document | {"rows": [row.name for row in hosts_rows.ROWS if row.name in names]}


def samples_of(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The samples of a row, in the order of the rounds."""
    return sorted((one for one in document["samples"] if one["row"] == name), key=lambda one: one["round"])


def judged(document: dict[str, Any]) -> list[hosts_rows.Verdict]:
    """Verdicts of all rows, in the document's order."""
    rows = hosts_rows.chosen(",".join(document["rows"]))
    return [each for row in rows for each in hosts_rows.verdicts(row, samples_of(document, row.name))]


def broken(document: dict[str, Any]) -> list[str]:
    """Rows that failed to run, and wrong results."""
    found = [f"{one['row']}: {hosts_rows.in_short(one['error'])}" for one in document["samples"] if one.get("error")]
    for one in document["samples"]:
        for cell in one.get("cells", []):
            for peer, figures in cell.items():
                if isinstance(figures, dict) and figures.get("wrong"):
                    found.append(f"{one['row']}: {cell['op']} {cell['bytes']} B, {peer}: {figures['error']}")
    return found


def markdown(document: dict[str, Any]) -> str:
    """The whole report."""
    lines = [machine.heading(document["machine"]) + ".", "", _conditions(document), ""]
    lines += ["| row | what | needed | median | verdict | |", "| --- | --- | --- | --- | --- | --- |"]
    for each in judged(document):
        value = "-" if each.value is None else f"{each.value:.3f}"
        verdict = _word(each)
        note = each.note.strip().splitlines()[-1] if each.note.strip() else ""
        lines.append(f"| {each.row} | {each.what} | {each.need} | {value} | {verdict} | {note.replace('|', '/')} |")
    for name in document["rows"]:
        lines += ["", *_figures(name, samples_of(document, name))]
    wrong = broken(document)
    return "\n".join([*lines, *([""] + [f"BROKEN: {line}" for line in wrong] if wrong else []), ""])


def _word(verdict: hosts_rows.Verdict) -> str:
    if verdict.value is None:
        return "not measured"
    if verdict.need == "-":
        return "information"
    return "pass" if verdict.passed else "fail"


def _conditions(document: dict[str, Any]) -> str:
    rounds = {name: len(samples_of(document, name)) for name in document["rows"]}
    counts = sorted(set(rounds.values()))
    text = f"{_rounds(counts[0])} of every row" if len(counts) == 1 else "Rounds by row: "
    text += "" if len(counts) == 1 else ", ".join(f"{name} {count}" for name, count in rounds.items())
    return (
        f"{text}{', quick' if document['quick'] else ''}; congestion control of everybody: "
        f"{document['congestion']}; {document['streams']} stream a pair of ranks and of iperf3; OMP_NUM_THREADS=1. "
        f"{_quiet(document['samples'], 'row')}."
    )


def _rounds(count: int) -> str:
    return f"{count} round{'' if count == 1 else 's'}"


def _during(sample: dict[str, Any]) -> float:
    """What others used in the part of a row in which they used most: the cells, or the bound before or after them."""
    return max(sample["others"].values())


def _quiet(samples: Sequence[dict[str, Any]], unit: str) -> str:
    """What others used of the processor before and during each `unit`, the median one and the worst."""
    good = [one for one in samples if not one.get("error")]
    if not good:
        return "How quiet it was is not known"
    before, during = [one["busy"] for one in good], [_during(one) for one in good]
    (usual, worst), (usually, worst_during) = ((statistics.median(each), max(each)) for each in (before, during))
    return (
        f"{'**NOT QUIET**: other' if max(worst, worst_during) >= report.QUIET_BELOW else 'Other'} programs used "
        f"{100 * usual:.0f} % of the processor before the median {unit} and {100 * worst:.0f} % before the worst, "
        f"{100 * usually:.0f} % during the median {unit} and {100 * worst_during:.0f} % during the worst"
    )


def _mode(sample: dict[str, Any]) -> str:
    """The cores' mode in a round, and the round trips that it was read from."""
    trips = ["?" if each is None else f"{each:.0f}" for each in sample["cores"]["round_trip_ns"]]
    return f"{sample['cores']['mode']} ({' and '.join(trips)} ns)"


def _figures(name: str, samples: list[dict[str, Any]]) -> list[str]:
    """The medians of a row: the conditions of its rounds, iperf3 with all its readings, each peer's time by cell."""
    good = [one for one in samples if not one.get("error")]
    lines = [f"## {name}", "", f"{len(good)} of {_rounds(len(samples))} ran to the end."]
    if good:
        lines[-1] += f" Cores before and after each: {', '.join(_mode(one) for one in good)}. {_quiet(good, 'round')}."
    unknown = sorted({one["no_mode"] for one in good if "no_mode" in one})
    lines += [f"The mode of the cores is not known: {reason}." for reason in unknown]
    bounds = hosts_rows.bounds(good)
    if bounds:
        lines += ["", "| iperf3, Mbit/s | median | spread | | readings before and after each round |"]
        lines += ["| --- | --- | --- | --- | --- |"]
    for key, what in (("one_way", "one way"), ("both", "mean direction, both in use")):
        if key in bounds:
            lines.append(_bound_line(what, bounds[key], [one["iperf"] for one in good], key))
    lines.append("")
    if not good or "cells" not in good[0]:
        return lines
    peers = [key for key, value in good[0]["cells"][0].items() if isinstance(value, dict)]
    lines += [f"| what | {' | '.join(f'{peer} us' for peer in peers)} |", "| --- |" + " --- |" * len(peers)]
    for index, cell in enumerate(good[0]["cells"]):
        times = [_median(good, index, peer) for peer in peers]
        lines.append(f"| {cell['op']} {report.size_text(cell['bytes'])} | {' | '.join(times)} |")
    return lines


def _bound_line(what: str, bound: hosts_rows.Bound, rounds: Sequence[dict[str, Any]], key: str) -> str:
    told = [" and ".join(" ".join(f"{bits / 1e6:,.1f}" for bits in one[when][key]) for when in ("before", "after"))
            for one in rounds]  # fmt: skip
    least, most = min(bound.readings) / 1e6, max(bound.readings) / 1e6
    steady = "steady" if bound.steady else "**bound unsteady**"
    return f"| {what} | {bound.median / 1e6:,.1f} | {least:,.1f}..{most:,.1f} | {steady} | {'; '.join(told)} |"


def _median(samples: list[dict[str, Any]], index: int, peer: str) -> str:
    times = [one["cells"][index].get(peer, {}).get("median_us") for one in samples]
    known = [time for time in times if time is not None]
    return report.time_text(statistics.median(known)) if known else "-"
