"""The merged document of compare.py: samples out of run.py's documents, and the tables for a person and the README.

Used by compare.py and the tests; includes report.py, machine.py and targets.py. Pure: launches and reads nothing.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from bench import machine, report, targets

SCHEMA = "collectives-bench-compare/1"


def samples_of(document: dict[str, Any], launch: str, round_index: int) -> list[dict[str, Any]]:
    """One sample an (op, bytes) of one run.py document, which must hold one round.

    Raises
    ------
    ValueError
        When the document is not valid, or holds more rounds than one.
    """
    report.validate(document)
    if len(document["modes"]) != 1:
        raise ValueError(f"a compared launch holds one round, not {len(document['modes'])}")
    mode = document["modes"][0]
    absent = {name: peer["reason"] for name, peer in document["peers"].items() if not peer["available"]}
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in document["results"]:
        sample = found.setdefault(
            (row["op"], row["bytes"]),
            {
                "round": round_index,
                "launch": launch,
                "ranks": document["ranks"],
                "mode": mode["mode"],
                "round_trip_ns": [mode["round_trip_before_ns"], mode["round_trip_after_ns"]],
                "others_busy": mode.get("others_busy"),
                "op": row["op"],
                "bytes": row["bytes"],
                "times": {},
                "p95": {},
                "back_to_back": {},
                "errors": dict(absent),
                "bound_us": row.get("bound_us"),
                "zero_copy_bound_us": document["probe"].get("zero_copy_all_reduce_us", {}).get(str(row["bytes"]))
                if row["op"] == "all_reduce"
                else None,
            },
        )
        if "error" in row:
            sample["errors"][row["peer"]] = row["error"]
        else:
            sample["times"][row["peer"]] = row["median_us"]
            sample["p95"][row["peer"]] = row["p95_us"]
            if row.get("back_to_back_us") is not None:
                sample["back_to_back"][row["peer"]] = row["back_to_back_us"]
    return list(found.values())


def validate(document: Any) -> None:
    """Check a merged document that was read back.

    Raises
    ------
    ValueError
        When it is of another schema or lacks a part.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ValueError(f"no document of schema {SCHEMA}")
    missing = [
        key for key in ("machine", "launches", "mpi", "rounds", "samples", "checks", "failures") if key not in document
    ]
    if missing:
        raise ValueError(f"the comparison lacks {', '.join(missing)}")


def merge(samples: Sequence[dict[str, Any]], mpi: Sequence[str], subject: str = "core") -> list[dict[str, Any]]:
    """One row a (ranks, op, bytes, mode): the subject against the best MPI, each paired within its own processes."""
    grouped: dict[tuple[int, str, int, str], list[dict[str, Any]]] = defaultdict(list)
    for sample in samples:
        grouped[sample["ranks"], sample["op"], sample["bytes"], sample["mode"]].append(sample)
    order = {name: index for index, name in enumerate(dict.fromkeys(sample["op"] for sample in samples))}
    rows = []
    for key in sorted(grouped, key=lambda k: (k[0], order[k[1]], k[2], k[3])):
        ranks, op, size_bytes, mode = key
        group = grouped[key]
        ratio, best, best_us = targets.best_mpi(group, subject, mpi)
        every = {name: _median([s["times"].get("mpi") for s in group if s["launch"] == name]) for name in mpi}
        rows.append(
            {
                "ranks": ranks, "op": op, "bytes": size_bytes, "mode": mode, "subject": subject,
                "rounds": len({s["round"] for s in group}),
                "subject_us": _median([s["times"].get(subject) for s in group if s["launch"] in mpi]),
                "mpi_us": every,
                "ratio": ratio,
                "best": best if ratio is not None else _least(every),
                "best_us": best_us if ratio is not None else min((v for v in every.values() if v), default=None),
                "reason": None if ratio is not None else best,
                "bound_us": _median([s.get("bound_us") for s in group]),
                "verdict": _row_verdict(ranks, op, size_bytes, mode, ratio),
            }
        )  # fmt: skip
    return rows


def _median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _least(times: dict[str, float | None]) -> str:
    measured = {name: value for name, value in times.items() if value is not None}
    return min(measured, key=lambda name: measured[name]) if measured else "-"


def _row_verdict(ranks: int, op: str, size_bytes: int, mode: str, ratio: float | None) -> str:
    """`pass` or `fail` against the hardest target of this row; `-` where none speaks of it."""
    needed = [
        target.needed
        for target in targets.TARGETS
        if target.rival == "best_mpi" and target.covers({"ranks": ranks, "op": op, "bytes": size_bytes, "mode": mode})
    ]
    if not needed or mode == "changed":
        return "-"
    if ratio is None:
        return "not measured"
    return f"{'pass' if ratio >= max(needed) else 'fail'} ({max(needed):g})"


def markdown(document: dict[str, Any]) -> str:
    """The README's tables: the promises, then every figure."""
    validate(document)
    samples, mpi = document["samples"], document["mpi"]
    rows = [*_verdict_rows(targets.verdicts(samples, mpi)), *_limit_rows(document["checks"])]
    parts = [_preface(document), _grid(["what", "needed", "worst reached", "verdict"], rows)]
    for ranks in sorted({sample["ranks"] for sample in samples}):
        here = [s for s in samples if s["ranks"] == ranks]
        parts.append(f"**{ranks} ranks: core against the best MPI**\n\n" + _mpi_table(merge(here, mpi), mpi))
    torch_samples = [s for s in samples if s["launch"] == "torch"]
    if torch_samples:
        parts.append("**Through torch.distributed, against gloo**\n\n" + _torch_table(torch_samples))
    return "\n\n".join(part for part in parts if part) + "\n"


def _preface(document: dict[str, Any]) -> str:
    modes: dict[str, int] = defaultdict(int)
    for launch in {(s["round"], s["launch"], s["ranks"], s["mode"]) for s in document["samples"]}:
        modes[launch[3]] += 1
    counted = ", ".join(f"{count} {mode}" for mode, count in sorted(modes.items()))
    unseen = " and ".join(mode for mode in ("near", "far") if not modes[mode])
    lines = [
        f"{machine.heading(document['machine'])}. {document['rounds']} rounds, launches in turn, by the cores' "
        f"mode before and after: {counted or 'none'}. Median microseconds of the slowest rank; a ratio is the "
        "peer's time over ours in the same processes, median of the rounds."
    ]
    busy = [s["others_busy"] for s in document["samples"] if s.get("others_busy") is not None]
    if busy and max(busy) >= report.QUIET_BELOW:
        lines.append(
            f"NOT QUIET: other programs used {100 * statistics.median(busy):.0f} % of the CPU in the median launch, "
            f"{100 * max(busy):.0f} % in the worst: do not trust these figures."
        )
    if unseen:
        lines.append(f"The cores were never {unseen} in this run: nothing is claimed for that mode.")
    reasons = sorted({f"{name}: {text}" for s in document["samples"] for name, text in s["errors"].items()})
    if reasons:
        lines.append("Without a figure (-), somewhere:")
        lines += [f"- {reason}" for reason in reasons]
    if document["failures"]:
        lines.append("Launches that failed:")
        lines += [
            f"- round {f['round']}, {f['launch']}, {f['ranks']} ranks: {f['error']}" for f in document["failures"]
        ]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join([_line(columns), _line(["---"] * len(columns)), *(_line(row) for row in rows)])


def _limit_rows(checks: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for limit in targets.LIMITS:
        worst = limit.worst(checks)
        status = "not measured" if worst is None else "pass" if worst <= limit.most else "fail"
        reached = "-" if worst is None else f"{worst / limit.unit:.2f}"
        rows.append([limit.what, f"at most {limit.most / limit.unit:g}", reached, status])
    return rows


def _verdict_rows(all_verdicts: Sequence[targets.Verdict]) -> list[list[str]]:
    rows = []
    for verdict in all_verdicts:
        target, worst = verdict.target, verdict.worst
        reached = "-"
        if worst is not None and worst.value is not None:
            against = f", against {worst.rival_name}" if target.rival == "best_mpi" else ""
            reached = f"{worst.value:.2f} ({worst.place}{against})"
        missing = [cell for cell in verdict.cells if cell.value is None]
        passed = sum(cell.passed for cell in verdict.cells)
        status = f"{verdict.status}, {passed} of {len(verdict.cells)} cells"
        if missing:
            status += f"; {missing[0].place}: {missing[0].reason}"
        sign = "at most" if target.rival == "added_us" else "at least"
        rows.append([target.what, f"{sign} {target.needed:g}", reached, status])
    return rows


def _mpi_table(rows: Sequence[dict[str, Any]], mpi: Sequence[str]) -> str:
    body = []
    for row in rows:
        cells = [row["op"], report.size_text(row["bytes"]) if row["bytes"] else "-", row["mode"], str(row["rounds"])]
        cells += [report.time_text(row["subject_us"])]
        cells += [report.time_text(row["mpi_us"][name]) for name in mpi]
        cells += [row["best"], f"{row['ratio']:.2f}" if row["ratio"] is not None else "-"]
        cells += [row["verdict"], report.time_text(row["bound_us"])]
        body.append(cells)
    columns = ["op", "bytes", "mode", "rounds", "core us", *(f"{name} us" for name in mpi)]
    return _grid([*columns, "best MPI", "ratio", "verdict", "bound us"], body)


def _torch_table(samples: Sequence[dict[str, Any]]) -> str:
    grouped: dict[tuple[int, str, int, str], list[dict[str, Any]]] = defaultdict(list)
    order = {name: index for index, name in enumerate(dict.fromkeys(sample["op"] for sample in samples))}
    for sample in samples:
        grouped[sample["ranks"], sample["op"], sample["bytes"], sample["mode"]].append(sample)
    body = []
    for key in sorted(grouped, key=lambda k: (k[0], order[k[1]], k[2], k[3])):
        group = grouped[key]
        cells = [str(key[0]), key[1], report.size_text(key[2]) if key[2] else "-", key[3]]
        for peer in ("collectives", "gloo", "core", "core_zero_copy"):
            cells.append(report.time_text(_median([s["times"].get(peer) for s in group])))
        ratio = targets.rounds_ratio(group, "collectives", "gloo")
        cells.append(f"{ratio:.1f}" if ratio is not None else "-")
        body.append(cells)
    columns = ["ranks", "op", "bytes", "mode", "dist us", "gloo us", "core us", "zero-copy us", "gloo / dist"]
    return _grid(columns, body)
