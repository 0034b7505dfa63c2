"""``collectives switch`` and ``collectives.Switch`` as a user starts them: processes, their words and their end."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from switch_helpers import join_all

import collectives
from collectives.errors import CollectivesError, CollectiveTimeoutError
from collectives.switch.command import parse_place
from collectives.switch.join import ask_status

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "COLLECTIVES_SWITCH_SECRET"}
COMMAND = [sys.executable, "-c", "import sys; from collectives.cli import main; sys.exit(main())"]
SECRET = "a secret of the tests, long enough"


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "collectives.switch", *words],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def ends(control: socket.socket) -> bool:
    """Whether the switch has let go of a lease, or does so now."""
    control.settimeout(10)
    try:
        return control.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--listen", "127.0.0.1:0"], "a switch needs a secret"),
        (["--listen", ":5190", "--open"], "is no ADDRESS:PORT"),
        (["--listen", "192.0.2.1:0", "--open"], "cannot listen at 192.0.2.1"),
        (["--listen", "127.0.0.1:0", "--open", "--engine", "p5"], "give native, or p4"),
        (["--listen", "127.0.0.1:0", "--open", "--lanes", "64"], "not an option of the engine native"),
        (["--listen", "127.0.0.1:0", "--open", "--engine", "p4", "none.p4"], "there is no P4 program none.p4"),
        (["--listen", "127.0.0.1:0", "--open", "--pcap", "x.pcap"], "only the engine p4 records packets"),
        (["--open"], "--listen"),
        (["status", "127.0.0.1:1"], "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_says_why(words: list[str], says: str) -> None:
    done = run(*words)
    assert done.returncode in (1, 2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_short_secret_is_refused() -> None:
    done = run("--listen", "127.0.0.1:0", COLLECTIVES_SWITCH_SECRET="short")
    assert done.returncode == 1
    assert "at least 16" in done.stderr


def test_an_error_of_a_p4_program_has_its_place(tmp_path: os.PathLike[str]) -> None:
    program = os.path.join(tmp_path, "wrong.p4")
    with open(program, "w") as file:
        file.write("#include <core.p4>\n\nheader h_t { bit<8 x; }\n")
    done = run("--listen", "127.0.0.1:0", "--open", "--engine", "p4", program)
    assert done.returncode == 1
    assert "wrong.p4:3:" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_it_is_told_to_end(number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "switch", "--listen", "127.0.0.1:0"],
        env=ENVIRONMENT | {"COLLECTIVES_SWITCH_SECRET": SECRET},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("collectives switch ready at 127.0.0.1:")
        assert "engine native, 2048 lanes of 8/16/32 bits, tags on" in ready
        address = ready.split()[4].rstrip(",")
        tickets = join_all(parse_place(address), 2, secret=SECRET.encode())
        shown = run("status", address, COLLECTIVES_SWITCH_SECRET=SECRET)
        assert shown.returncode == 0, shown.stderr
        assert "job" in shown.stdout
        status = json.loads(run("status", address, "--json", COLLECTIVES_SWITCH_SECRET=SECRET).stdout)
        assert len(status["jobs"]) == 1
        refused = run("status", address, COLLECTIVES_SWITCH_SECRET="another secret of that length")
        assert refused.returncode == 1
        assert "another secret" in refused.stderr
        process.send_signal(number)
        assert process.wait(10) == 0
        for ticket in tickets:
            assert ends(ticket.control)
            ticket.leave()


@pytest.mark.parametrize("engine", ["native", "p4"])
def test_a_switch_as_a_child(engine: str) -> None:
    if engine == "p4":
        pytest.importorskip("lark")
    with collectives.Switch(workers=2, engine=engine, metrics="127.0.0.1:0") as switch:
        assert switch.secret is not None
        lanes = 64 if engine == "p4" else 2048
        tickets = join_all(parse_place(switch.address), 2, secret=switch.secret.encode(), lanes=lanes)
        assert len(switch.status()["jobs"]) == 1
        assert switch.metrics is not None
        with urllib.request.urlopen(switch.metrics, timeout=10) as answer:
            assert "collectives_switch" in answer.read().decode()
        with pytest.raises(CollectivesError, match="may have 2 workers"):
            join_all(parse_place(switch.address), 3, secret=switch.secret.encode(), job="other")
        pid = switch.pid
        for ticket in tickets:
            ticket.leave()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_killed_switch_is_known_to_its_workers_at_once() -> None:
    with collectives.Switch(workers=1) as switch:
        assert switch.secret is not None
        (ticket,) = join_all(parse_place(switch.address), 1, secret=switch.secret.encode())
        switch.kill()
        assert ends(ticket.control)
        ticket.leave()
        with pytest.raises((CollectivesError, CollectiveTimeoutError)):
            ask_status(parse_place(switch.address), switch.secret, 2)


def test_a_switch_ends_with_its_parent() -> None:
    code = (
        "import collectives, os\n"
        "switch = collectives.Switch(open=True)\n"
        "print(switch.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    try:
        watched = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 10)[0], "the switch outlived its parent"
    os.close(watched)


def test_what_does_not_start_says_why() -> None:
    with pytest.raises(CollectivesError, match=r"192\.0\.2\.1"):
        collectives.Switch(listen="192.0.2.1:0")
    with pytest.raises(ValueError, match="open switch has no secret"):
        collectives.Switch(open=True, secret="x" * 20)
