"""The result document of a run: its schema, its validation, and its table for a person.

Used by run.py and compare.py; includes cases.py and metrics.py.

Document (JSON), `schema` = SCHEMA: machine, options, ranks, launcher, peers (name to {available, version | reason}),
modes (one a round: round_trip_before_ns, round_trip_after_ns, mode, others_busy), probe (bandwidth, or why there is
none), checks (idle_cpu_fraction, staging_bytes_a_rank), results (one a peer, op and size: see `result`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from bench import cases, metrics

SCHEMA = "collectives-bench/1"
_TOP = {
    "schema": str, "machine": dict, "options": dict, "ranks": int, "launcher": str, "peers": dict, "modes": list,
    "probe": dict, "checks": dict, "results": list,
}  # fmt: skip
# Above this share of the CPU used by other programs the figures are not to be trusted.
QUIET_BELOW = 0.1
_RESULT = {"op": str, "bytes": int, "peer": str, "rounds": list, "correct": bool}


def result(op: str, size_bytes: int, peer: str, ranks: int, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One row from its rounds ({round, median_us, p95_us, back_to_back_us, iterations} or {round, error, wrong}).

    A row with any failed round carries `error` and no figures: a figure beside a wrong result would mislead.
    """
    row: dict[str, Any] = {"op": op, "bytes": size_bytes, "peer": peer, "rounds": list(rounds)}
    errors = [one["error"] for one in rounds if one.get("error")]
    row["correct"] = not any(one.get("wrong") for one in rounds)
    if errors or not rounds:
        row["error"] = errors[0] if errors else "not measured"
        return row
    median = statistics.median(one["median_us"] for one in rounds)
    row["median_us"] = median
    row["p95_us"] = statistics.median(one["p95_us"] for one in rounds)
    loops = [one["back_to_back_us"] for one in rounds if one.get("back_to_back_us") is not None]
    row["back_to_back_us"] = statistics.median(loops) if loops else None
    algbw = metrics.algorithm_bandwidth_gbps(size_bytes, median)
    row["algbw_gbps"] = algbw
    row["busbw_gbps"] = algbw * metrics.bus_factor(cases.operation(op).bus, ranks)
    return row


def bound_us(op: str, size_bytes: int, ranks: int, cores: int, probe: dict[str, Any]) -> float | None:
    """The physical bound: the larger of half a flag's round trip and the least bytes over the measured bandwidth.

    Ranks beyond the cores share them, so their bytes add up. None where the bandwidth of this size was not measured.
    """
    round_trip_ns = probe.get("round_trip_ns")
    latency_us = round_trip_ns / 2e3 if round_trip_ns else 0.0
    if size_bytes == 0:
        return latency_us or None
    gbps = probe.get("copy_gbps_a_core", {}).get(str(size_bytes))
    if not gbps:
        return None
    bytes_a_core = cases.operation(op).moved(size_bytes, ranks) * math.ceil(ranks / cores)
    return max(latency_us, bytes_a_core / gbps / 1e3)


def add_comparisons(document: dict[str, Any]) -> None:
    """Give each row `ratios` ({other peer: its time over this one's, median of paired rounds}) and `bound_us`."""
    rows = document["results"]
    for row in rows:
        row["bound_us"] = bound_us(
            row["op"], row["bytes"], document["ranks"], document["machine"]["cores"], document["probe"]
        )
        row["ratios"] = {}
        if "median_us" not in row:
            continue
        for other in rows:
            same = (other["op"], other["bytes"]) == (row["op"], row["bytes"])
            if same and other is not row and "median_us" in other:
                row["ratios"][other["peer"]] = metrics.median_ratio(
                    (one["median_us"] for one in other["rounds"]), (one["median_us"] for one in row["rounds"])
                )


def validate(document: Any) -> None:
    """Check a document that was read back.

    Raises
    ------
    ValueError
        Naming every key that is missing or of the wrong type.
    """
    if not isinstance(document, dict):
        raise ValueError(f"a result document is an object, not {type(document).__name__}")
    problems = _problems(document, _TOP, "")
    if document.get("schema") != SCHEMA:
        problems.append(f"schema is {document.get('schema')!r}, expected {SCHEMA!r}")
    for index, row in enumerate(document.get("results") or []):
        problems += _problems(row, _RESULT, f"results[{index}].")
        if "error" not in row and not isinstance(row.get("median_us"), (int, float)):
            problems.append(f"results[{index}] has neither median_us nor error")
    for name, peer in (document.get("peers") or {}).items():
        if peer.get("available") is False and not peer.get("reason"):
            problems.append(f"peers.{name} is not available but gives no reason")
    if problems:
        raise ValueError("not a result document: " + "; ".join(problems))


def _problems(found: dict[str, Any], wanted: dict[str, type], where: str) -> list[str]:
    return [
        f"{where}{key} is {'missing' if key not in found else f'no {kind.__name__}'}"
        for key, kind in wanted.items()
        if not isinstance(found.get(key), kind)
    ]


def size_text(size_bytes: int) -> str:
    """`8 B`, `32 KiB`, `64 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} B"


def time_text(time_us: float | None) -> str:
    """Microseconds with about three significant digits; `-` for None."""
    if time_us is None:
        return "-"
    return f"{time_us:.2f}" if time_us < 100 else f"{time_us:,.0f}"


def table(document: dict[str, Any]) -> str:
    """The table for a person: one line an operation, size and peer; ratios above 1 mean that the line is faster."""
    present = [name for name, peer in document["peers"].items() if peer["available"]]
    columns = ["op", "bytes", "peer", "median us", "p95 us", "x100 us", "algbw", "busbw", "bound us"]
    columns += [f"vs {name}" for name in present] if len(present) > 1 else []
    lines = []
    for row in document["results"]:
        line = [row["op"], size_text(row["bytes"]) if row["bytes"] else "-", row["peer"]]
        if "median_us" in row:
            line += [time_text(row[key]) for key in ("median_us", "p95_us", "back_to_back_us")]
            line += [f"{row[key]:.2f}" if row["bytes"] else "-" for key in ("algbw_gbps", "busbw_gbps")]
            line.append(time_text(row["bound_us"]))
            if len(present) > 1:
                line += [f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "-" for name in present]
        else:
            line.append(f"{'WRONG' if not row['correct'] else 'not available'}: {row['error']}")
        lines.append(line)
    whole = [columns, *(line for line in lines if len(line) == len(columns))]
    widths = [max(len(line[i]) for line in whole) for i in range(len(columns))]
    text = [_heading(document), "", "  ".join(name.rjust(w) for name, w in zip(columns, widths, strict=True))]
    text += ["  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=False)) for line in lines]
    return "\n".join([*text, "", *_notes(document)])


def _heading(document: dict[str, Any]) -> str:
    from bench import machine

    modes = [one["mode"] for one in document["modes"]]
    return (
        f"{document['ranks']} ranks by {document['launcher']}, {document['options']['dtype']}, "
        f"{len(modes)} rounds (cores {', '.join(modes) or 'not probed'})\n{machine.heading(document['machine'])}"
    )


def _notes(document: dict[str, Any]) -> list[str]:
    peers = document["peers"].items()
    notes = [f"{name}: not available: {peer['reason']}" for name, peer in peers if not peer["available"]]
    notes += [f"{name}: {peer['version']}" for name, peer in peers if peer["available"]]
    if document["probe"].get("reason"):
        notes.append(f"probe: not available: {document['probe']['reason']}")
    busiest = max((one.get("others_busy", 0.0) for one in document["modes"]), default=0.0)
    if busiest >= QUIET_BELOW:
        notes.append(
            f"NOT QUIET: other programs used up to {100 * busiest:.0f} % of the CPU: do not trust these figures"
        )
    checks = document["checks"]
    if "idle_cpu_fraction" in checks:
        percent = 100 * checks["idle_cpu_fraction"]
        notes.append(f"idle between operations: {percent:.1f} % of a core in the busiest rank")
    if checks.get("staging_bytes_a_rank") is not None:
        notes.append(f"shared staging memory of core: {checks['staging_bytes_a_rank'] / 2**20:.2f} MiB a rank")
    notes.append("Times are of the slowest rank; x100: in loops of 100 calls with no barrier; algbw, busbw in GB/s;")
    notes.append("vs: the other peer's time over this one's, median of the rounds, above 1 where this one is faster.")
    return notes


def wrong_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows whose result was wrong."""
    return [row for row in document["results"] if not row["correct"]]
