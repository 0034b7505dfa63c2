"""What a switch tells of itself: Prometheus' text, HTTP, and the table for people."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from switch_helpers import NoPackets, join_all, served

from collectives.switch import metrics
from collectives.switch.command import bind_tcp

SAMPLE = re.compile(
    r'collectives_switch_[a-z_]+(\{[a-z]+="(?:[^"\\\n]|\\.)*"(,[a-z]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+'
)


@pytest.fixture
def status():
    """What a switch with two jobs tells, as it comes out of JSON."""
    with served(NoPackets()) as switch:
        tickets = join_all(switch.address, 2, job='a "job"\\') + join_all(switch.address, 1, job="b")
        yield json.loads(json.dumps(switch.call(switch.control.status)))
        for ticket in tickets:
            ticket.leave()


def test_what_is_collected(status) -> None:
    assert status["engine"] == "none" and status["tags"] is True and status["lanes"] == 2048
    assert status["packets"] == {"added": 7, "stranger": 0}
    assert status["joining"]["admitted"] == 2
    assert status["connections"]["proven"] == 3 and status["connections"]["now"] == 3
    job = status["jobs"][0]
    assert job["name"] == 'a "job"\\' and job["slots"] == 16 and job["packets"] == {"added": 6}
    assert job["waiting"] == {"slot": 5, "epoch": 2, "for_s": 3.0, "missing": [0]}
    assert [worker["worker"] for worker in job["workers"]] == [0, 1]
    assert job["workers"][0]["silent_s"] == 4.0 and job["slots_used"] == {"0": {"added": 6}}


def test_prometheus_text(status) -> None:
    text = metrics.to_prometheus(status)
    assert text.endswith("\n")
    named = None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            named = line.split()[2]
        elif line.startswith("# TYPE "):
            assert line.split()[2] == named and line.split()[3] in ("gauge", "counter")
        else:
            assert SAMPLE.fullmatch(line), line
            assert re.match(r"[a-z_]+", line).group() == named, "samples of one metric stand together"
    for line in (
        'collectives_switch_packets_total{verdict="added"} 7',
        r'collectives_switch_job_packets_total{job="a \"job\"\\",verdict="added"} 6',
        'collectives_switch_worker_packets_total{job="b",worker="0",verdict="added"} 3',
        'collectives_switch_slot_packets_total{job="b",slot="0",verdict="added"} 6',
        'collectives_switch_waiting_seconds{job="b"} 3',
        'collectives_switch_waiting_slot{job="b"} 5',
        'collectives_switch_waiting_for{job="b",worker="0"} 1',
        "collectives_switch_jobs 2",
    ):
        assert line in text.splitlines()


def test_for_people(status) -> None:
    text = metrics.format_status(status)
    assert "engine       none: packets of 2048 lanes of 8, 16, 32 bits, keyed tags" in text
    assert "packets      7 added\n" in text
    assert "  waits      slot 5, epoch 2, for 3 s: lacks worker 0" in text
    assert re.search(r"worker +at +silent +added\n +0 +127\.0\.0\.1:\d+ +4 s +3\n +1 ", text)


def test_for_people_of_an_idle_switch() -> None:
    with served(NoPackets()) as switch:
        text = metrics.format_status(switch.call(switch.control.status))
    assert "jobs         none" in text and "joining      none" in text


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK\r\n"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found\r\n"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed\r\n"),
        (b"what\r\n\r\n", b"HTTP/1.1 400 Bad Request\r\n"),
        (b"x" * 100000, b""),
        (b"GET", b""),
    ],
)
def test_http(status, request_text, expected) -> None:
    async def ask() -> bytes:
        one = bind_tcp(("127.0.0.1", 0))
        server = await metrics.serve_http(one, lambda: status)
        reader, writer = await asyncio.open_connection(*one.getsockname())
        writer.write(request_text)
        writer.write_eof()
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()
            server.close()

    answer = asyncio.run(ask())
    assert answer.startswith(expected) and bool(answer) == bool(expected)
    if b"200" in expected:
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
        assert length == len(metrics.to_prometheus(status)) and len(body) == (0 if b"HEAD" in request_text else length)
