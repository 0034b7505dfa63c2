"""The document of bench/hosts.py for a person: verdicts by row, and the figures of every round.

Used by hosts.py alone; includes hosts_rows.py, machine.py and report.py. Document (JSON): schema, machine, congestion,
streams, quick, rounds, rows (names), samples (one a row and round: {row, round, busy, iperf?, cells} or {.., error}).
"""

from __future__ import annotations

import statistics
from typing import Any

from bench import hosts_rows, machine, report

SCHEMA = "collectives-hosts/1"
_TOP = {"schema": str, "machine": dict, "congestion": str, "streams": int, "rounds": int, "rows": list, "samples": list}


def validate(document: Any) -> None:
    """Check a document that was read back.

    Raises
    ------
    ValueError
        Naming what is missing or wrong.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"not a document of bench/hosts.py: schema is not {SCHEMA!r}")
    problems = [key for key, kind in _TOP.items() if not isinstance(document.get(key), kind)]
    if problems:
        raise ValueError(f"not a document of bench/hosts.py: {', '.join(problems)} missing or of the wrong type")
    hosts_rows.chosen(",".join(document["rows"]))


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
        verdict = "pass" if each.passed else ("not measured" if each.value is None else "fail")
        note = each.note.strip().splitlines()[-1] if each.note.strip() else ""
        lines.append(f"| {each.row} | {each.what} | {each.need} | {value} | {verdict} | {note.replace('|', '/')} |")
    for name in document["rows"]:
        lines += ["", *_figures(name, samples_of(document, name))]
    wrong = broken(document)
    return "\n".join([*lines, *([""] + [f"BROKEN: {line}" for line in wrong] if wrong else []), ""])


def _conditions(document: dict[str, Any]) -> str:
    busy = [one["busy"] for one in document["samples"] if "busy" in one]
    quiet = (
        f"other programs used {100 * statistics.median(busy):.0f} % of the processor before the median row, "
        if busy
        else ""
    )
    quiet += f"{100 * max(busy):.0f} % before the worst" if busy else "how quiet it was is not known"
    not_quiet = "**NOT QUIET**: " if busy and max(busy) >= report.QUIET_BELOW else ""
    return (
        f"{document['rounds']} rounds{', quick' if document.get('quick') else ''}; congestion control of everybody: "
        f"{document['congestion']}; {document['streams']} stream a pair of ranks and of iperf3; OMP_NUM_THREADS=1. "
        f"{not_quiet}{quiet}."
    )


def _figures(name: str, samples: list[dict[str, Any]]) -> list[str]:
    """The medians of a row: iperf3 and each peer's time by cell."""
    good = [one for one in samples if not one.get("error")]
    lines = [f"## {name}", ""]
    iperf = [one["iperf"] for one in good if "iperf" in one]
    if iperf:
        one_way, both = (statistics.median(each[key] for each in iperf) / 1e6 for key in ("one_way", "both"))
        lines += [f"iperf3: {one_way:,.1f} Mbit/s one way, {both:,.1f} Mbit/s each way with both in use.", ""]
    if not good or "cells" not in good[0]:
        return lines
    peers = [key for key, value in good[0]["cells"][0].items() if isinstance(value, dict)]
    lines += [f"| what | {' | '.join(f'{peer} us' for peer in peers)} |", "| --- |" + " --- |" * len(peers)]
    for index, cell in enumerate(good[0]["cells"]):
        times = [_median(good, index, peer) for peer in peers]
        lines.append(f"| {cell['op']} {report.size_text(cell['bytes'])} | {' | '.join(times)} |")
    return lines


def _median(samples: list[dict[str, Any]], index: int, peer: str) -> str:
    times = [one["cells"][index].get(peer, {}).get("median_us") for one in samples]
    known = [time for time in times if time is not None]
    return report.time_text(statistics.median(known)) if known else "-"
