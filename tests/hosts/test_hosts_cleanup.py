"""Nothing is left of a rig, however it ends, and rigs do not disturb each other."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.hosts import Hosts, HostsError, namespaces, wait_until

pytestmark = pytest.mark.usefixtures("possible")
ROOT = pathlib.Path(__file__).resolve().parents[2]
OWNER = """
import subprocess, sys, time
from tests.hosts import Hosts
with Hosts(2, rate="1gbit") as hosts:
    sleeper = hosts.run(1, ["sh", "-c", "sleep 1000 & wait"])
    print(hosts.layout.rig, hosts._keeper.pid, sleeper.pid, flush=True)
    {then}
"""


def left(rig: str) -> list[str]:
    """Name what there is of a rig: namespaces, folders, and processes on its hosts."""
    folders = (namespaces.STATE, namespaces.NAMED, namespaces.CONFIGURATION)
    found = [str(path) for folder in folders for path in folder.glob(f"{rig}*")]
    return found + [str(pid) for pid in namespaces.processes_in(list(namespaces.NAMED.glob(f"{rig}-*")))]


def owner(then: str = "time.sleep(1000)") -> tuple[subprocess.Popen[str], str, int, int]:
    """Start a process with a rig; return it, the rig's name, and the ids of its keeper and of a process on a host."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=then)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    rig, keeper, sleeper = process.stdout.readline().split()
    return process, rig, int(keeper), int(sleeper)


def gone(pid: int) -> bool:
    return namespaces.start_time(pid) is None


def test_after_the_context_nothing_is_left() -> None:
    with Hosts(2) as hosts:
        rig = hosts.layout.rig
        sleeper = hosts.run(1, ["sleep", "1000"])
        assert len(left(rig)) >= 2 * 2 + 1 + 1
    assert left(rig) == []
    assert sleeper.wait(5) == -signal.SIGKILL
    assert list(namespaces.CONFIGURATION.glob(f"{rig}*")) == []


def test_after_an_exception_nothing_is_left() -> None:
    with pytest.raises(LookupError):
        with Hosts(1) as hosts:
            raise LookupError
    assert left(hosts.layout.rig) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_when_the_owner_is_ended_its_keeper_cleans_up(number: signal.Signals) -> None:
    process, rig, keeper, sleeper = owner()
    assert left(rig)
    process.send_signal(number)
    process.wait(10)
    wait_until(lambda: not left(rig), 10, f"the end of {rig}")
    wait_until(lambda: gone(keeper) and gone(sleeper), 10, "the end of the keeper and of what ran on the host")


def test_when_the_keeper_is_killed_too_the_next_rig_cleans_up() -> None:
    process, rig, keeper, sleeper = owner()
    os.kill(keeper, signal.SIGKILL)
    process.kill()
    process.wait()
    assert left(rig)
    assert not gone(sleeper)
    with Hosts(1):
        assert left(rig) == []
        wait_until(lambda: gone(sleeper), 5, "the end of what ran on the host")


def test_when_only_the_keeper_is_killed_the_owner_cleans_up() -> None:
    with Hosts(1) as hosts:
        assert hosts._keeper is not None
        hosts._keeper.kill()
        hosts._keeper.wait()
        assert left(hosts.layout.rig)
    assert left(hosts.layout.rig) == []


def test_a_recycled_process_id_is_not_an_owner() -> None:
    rig = f"{namespaces.PREFIX}{os.getpid()}-stale"
    folder = namespaces.STATE / rig
    folder.mkdir(parents=True)
    (folder / "owner").write_text("1")  # this process id, but begun at another time
    assert rig in namespaces.abandoned()
    with Hosts(1):
        assert not folder.exists()


def test_rigs_at_once_do_not_disturb_each_other() -> None:
    with Hosts(2) as one, Hosts(2, ipv6=True) as other:
        others = [owner() for _ in range(3)]
        try:
            rigs = {one.layout.rig, other.layout.rig, *(rig for _, rig, _, _ in others)}
            assert len(rigs) == 5
            with Hosts(1):
                assert all(left(rig) for rig in rigs)  # the last has not taken the others for abandoned
            assert one.check_output(0, ["getent", "hosts", "host1"]).split() == ["10.77.0.2", "host1"]
            assert other.check_output(0, ["getent", "hosts", "host1"]).split() == ["fd77::2", "host1"]
        finally:
            for process, _, _, _ in others:
                process.terminate()
                process.wait(10)
        assert one.check_output(0, ["hostname"]) == "host0\n"
    for rig in rigs:
        wait_until(lambda rig=rig: not left(rig), 10, f"the end of {rig}")


def test_the_command_line_cleans_up_on_ctrl_c_and_sigterm() -> None:
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hosts", "--", "sh", "-c", "echo $HOSTS_DIRECTORY; exec sleep 1000"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        rig = pathlib.Path(process.stdout.readline().split()[1]).name
        process.send_signal(number)
        assert process.wait(15) == status
        assert left(rig) == []  # by the time it ends, not some time later


def test_a_rig_that_cannot_be_made_says_why_and_leaves_nothing(monkeypatch) -> None:
    from tests.hosts.layout import Layout

    monkeypatch.setattr(Layout, "host_shape", lambda self, host: "qdisc add dev eth0 root nonsense\n")
    hosts = Hosts(2)
    with pytest.raises(HostsError, match=r"(?s)host0: tc -batch - failed: .*nonsense"):
        hosts.__enter__()
    assert left(hosts.layout.rig) == []
