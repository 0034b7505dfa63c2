"""What a switch tells of itself: one collection of plain values, shown as Prometheus metrics and by ``status``.

``collect`` is called by ``control``; ``serve_http`` by ``command``. docs/switch.md says what the numbers mean.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from collectives.switch.admission import Admissions
from collectives.switch.engines import Engine, JobState, Waiting

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_MOST_REQUEST_BYTES = 8 << 10
_MOST_REQUESTS = 32  # at a time
_REQUEST_S = 5.0


def collect(
    engine: Engine,
    admissions: Admissions,
    connections: Mapping[str, int],
    version: str,
    up_s: float,
    now_s: float,
) -> dict[str, Any]:
    """Return the state of a switch, as ``collectives switch status --json`` prints it.

    Parameters
    ----------
    engine : Engine
        Asked for its counters.
    admissions : Admissions
        Asked for jobs and their names.
    connections : mapping
        What the control plane counted of its connections.
    version : str
        The library's.
    up_s : float
        How long the switch has run.
    now_s : float
        The time on the clock of ``admissions``.
    """
    states = {one.job: one for one in engine.jobs()}
    waiting = {one.job: one for one in engine.waiting()}
    now_ns = engine.now_ns()
    jobs = []
    for number, job in sorted(admissions.running.items()):
        jobs.append(
            {
                "name": job.name,
                "job": number,
                "incarnation": job.incarnation,
                "slots": job.slots,
                "lanes": job.lanes,
                "up_s": now_s - job.since_s,
                **_of_engine(states.get(number), waiting.get(number), now_ns),
            }
        )
    return {
        "version": version,
        "up_s": up_s,
        "engine": engine.name,
        "listening": [format_address(*place[:2]) for place in engine.addresses],
        "lanes": engine.lanes,
        "lane_bits": list(engine.lane_bits),
        "tags": admissions.tags,
        "packets": engine.counters(),
        "jobs": jobs,
        "gathering": admissions.gathering(now_s),
        "joining": dict(admissions.counts),
        "connections": dict(connections),
    }


def _of_engine(state: JobState | None, waiting: Waiting | None, now_ns: int) -> dict[str, Any]:
    """Return what the engine knows of a job."""
    if state is None:
        return {"packets": {}, "workers": [], "slots_used": {}, "waiting": None}
    workers = [
        {
            "worker": number,
            "address": worker.address,
            "udp_port": worker.udp_port,
            "packets": dict(worker.verdicts),
            "silent_s": None if worker.last_ns is None else max(0, now_ns - worker.last_ns) / 1e9,
        }
        for number, worker in enumerate(state.workers)
    ]
    return {
        "packets": state.verdicts(),
        "workers": workers,
        "slots_used": {str(slot): dict(verdicts) for slot, verdicts in state.slot_verdicts.items()},
        "waiting": None
        if waiting is None
        else {
            "slot": waiting.slot,
            "epoch": waiting.epoch,
            "for_s": max(0, now_ns - waiting.begun_ns) / 1e9,
            "missing": list(waiting.missing),
        },
    }


def format_address(address: str, port: int) -> str:
    """Write ``address:port``, an IPv6 address in brackets."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


# ---- Prometheus

# Metric -> its type and what it says.
_METRICS = {
    "up_seconds": ("gauge", "How long the switch has run."),
    "packets_total": ("counter", "Packets by what became of them."),
    "connections_total": ("counter", "Control connections by what became of them."),
    "connections": ("gauge", "Open control connections."),
    "joining_total": ("counter", "Workers and jobs by how joining or leaving went."),
    "jobs": ("gauge", "Admitted jobs."),
    "gathering_workers_missing": ("gauge", "Of a start that gathers: workers that have not asked."),
    "job_info": ("gauge", "1 for each admitted job."),
    "job_slots": ("gauge", "Slots of a job."),
    "job_packets_total": ("counter", "Packets of a job by what became of them."),
    "worker_packets_total": ("counter", "Packets of a worker by what became of them."),
    "worker_silent_seconds": ("gauge", "Time since a worker's last packet."),
    "slot_packets_total": ("counter", "Packets of a slot by what became of them."),
    "waiting_seconds": ("gauge", "Age of a job's oldest incomplete epoch; 0 where all are complete."),
    "waiting_slot": ("gauge", "The slot of that epoch."),
    "waiting_for": ("gauge", "1 for each worker that it lacks."),
}

_Sample = tuple[str, dict[str, str], float]


def to_prometheus(status: Mapping[str, Any]) -> str:
    """Write a collection in Prometheus' text format."""
    rows: dict[str, list[str]] = {}
    for name, labels, value in _samples(status):
        text = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        rows.setdefault(name, []).append(f"collectives_switch_{name}{{{text}}} {value:.16g}".replace("{}", ""))
    lines = []
    for name, (kind, about) in _METRICS.items():
        if name in rows:
            lines += [f"# HELP collectives_switch_{name} {about}", f"# TYPE collectives_switch_{name} {kind}"]
            lines += rows[name]
    return "\n".join(lines) + "\n"


def _samples(status: Mapping[str, Any]) -> Iterator[_Sample]:
    yield "up_seconds", {}, status["up_s"]
    for verdict, count in status["packets"].items():
        yield "packets_total", {"verdict": verdict}, count
    for outcome, count in status["connections"].items():
        if outcome in ("now", "unproven_now"):
            yield "connections", {"state": "all" if outcome == "now" else "unproven"}, count
        else:
            yield "connections_total", {"outcome": outcome}, count
    for outcome, count in status["joining"].items():
        yield "joining_total", {"outcome": outcome}, count
    yield "jobs", {}, len(status["jobs"])
    for start in status["gathering"]:
        yield "gathering_workers_missing", {"job": start["name"]}, len(start["missing"])
    for job in status["jobs"]:
        yield from _samples_of_job(job)


def _samples_of_job(job: Mapping[str, Any]) -> Iterator[_Sample]:
    name = {"job": job["name"]}
    yield "job_info", name | {"number": str(job["job"]), "incarnation": str(job["incarnation"])}, 1
    yield "job_slots", name, job["slots"]
    for verdict, count in job["packets"].items():
        yield "job_packets_total", name | {"verdict": verdict}, count
    for worker in job["workers"]:
        who = name | {"worker": str(worker["worker"])}
        for verdict, count in worker["packets"].items():
            yield "worker_packets_total", who | {"verdict": verdict}, count
        if worker["silent_s"] is not None:
            yield "worker_silent_seconds", who, worker["silent_s"]
    for slot, verdicts in job["slots_used"].items():
        for verdict, count in verdicts.items():
            yield "slot_packets_total", name | {"slot": slot, "verdict": verdict}, count
    waiting = job["waiting"]
    yield "waiting_seconds", name, 0 if waiting is None else waiting["for_s"]
    if waiting is not None:
        yield "waiting_slot", name, waiting["slot"]
        for worker in waiting["missing"]:
            yield "waiting_for", name | {"worker": str(worker)}, 1


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# ---- HTTP


async def serve_http(one: socket.socket, status: Callable[[], Mapping[str, Any]]) -> asyncio.Server:
    """Serve ``GET /metrics`` at a TCP socket that is bound.

    Parameters
    ----------
    one : socket
        Closed with the server.
    status : callable
        Gives the collection.
    """
    now = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now
        now += 1
        try:
            if now <= _MOST_REQUESTS:
                async with asyncio.timeout(_REQUEST_S):
                    request = await reader.readuntil(b"\r\n\r\n")
                    writer.write(_response(request, status))
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # slow, gone or no request: it costs its connection
        finally:
            now -= 1
            with contextlib.suppress(OSError):
                writer.close()

    return await asyncio.start_server(serve, sock=one, limit=_MOST_REQUEST_BYTES)


def _response(request: bytes, status: Callable[[], Mapping[str, Any]]) -> bytes:
    """Return the answer to a request, its head included."""
    words = request.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        code, body = "400 Bad Request", "This is HTTP/1.1; ask for GET /metrics.\n"
    elif words[0] not in (b"GET", b"HEAD"):
        code, body = "405 Method Not Allowed", "Ask for GET /metrics.\n"
    elif words[1].split(b"?")[0] != b"/metrics":
        code, body = "404 Not Found", "The metrics are at /metrics.\n"
    else:
        code, body = "200 OK", to_prometheus(status())
    content = body.encode()
    head = f"HTTP/1.1 {code}\r\nContent-Type: {_CONTENT_TYPE}\r\nContent-Length: {len(content)}\r\n"
    head += "Connection: close\r\n\r\n"
    return head.encode() + (b"" if words[0] == b"HEAD" else content)


# ---- for people


def format_status(status: Mapping[str, Any]) -> str:
    """Lay a collection out for people."""
    widths = ", ".join(map(str, status["lane_bits"]))
    lines = [
        f"switch       {', '.join(status['listening'])}, up {_time(status['up_s'])}, collectives {status['version']}",
        f"engine       {status['engine']}: packets of {status['lanes']} lanes of {widths} bits, "
        f"{'keyed tags' if status['tags'] else 'no tags'}",
        f"packets      {_counts(status['packets'])}",
        f"connections  {_counts(status['connections'])}",
        f"joining      {_counts(status['joining'])}",
    ]
    for start in status["gathering"]:
        missing = ", ".join(map(str, start["missing"]))
        lines.append(
            f"gathering    '{start['name']}' for {_time(start['since_s'])}: of {start['workers']} lacks {missing}"
        )
    if not status["jobs"]:
        lines.append("jobs         none")
    for job in status["jobs"]:
        lines += ["", *_lines_of_job(job)]
    return "\n".join(lines)


def _lines_of_job(job: Mapping[str, Any]) -> list[str]:
    lines = [
        f"job '{job['name']}' (number {job['job']}, incarnation {job['incarnation']}), up {_time(job['up_s'])}: "
        f"{job['slots']} slots of {job['lanes']} lanes, {len(job['slots_used'])} used"
    ]
    if (waiting := job["waiting"]) is not None:
        missing = ", ".join(map(str, waiting["missing"]))
        lines.append(
            f"  waits      slot {waiting['slot']}, epoch {waiting['epoch']}, for {_time(waiting['for_s'])}: lacks "
            f"{'worker' if len(waiting['missing']) == 1 else 'workers'} {missing}"
        )
    verdicts = list(dict.fromkeys(name for worker in job["workers"] for name, n in worker["packets"].items() if n))
    rows = [["worker", "at", "silent", *verdicts]]
    for worker in job["workers"]:
        silent = "-" if worker["silent_s"] is None else _time(worker["silent_s"])
        place = format_address(worker["address"], worker["udp_port"])
        rows.append([str(worker["worker"]), place, silent, *(str(worker["packets"].get(v, 0)) for v in verdicts)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        lines.append("  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    return lines


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
