"""Hosts have their own names, addresses and memory, reach each other and nothing else, and run commands."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import pytest

from tests.hosts import CommandFailed, Hosts, HostsError

pytestmark = pytest.mark.usefixtures("possible")
PYTHON = [sys.executable, "-S", "-E", "-c"]
# Every host serves one connection a peer, and calls every peer by name; the greeting tells who answered.
GREET = """
import socket, sys, threading, time
me, count, suffix = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
names = [f"host{i}{suffix}" for i in range(count)]
found = socket.getaddrinfo(names[me], 7000, type=socket.SOCK_STREAM)
assert len(found) == 1, found
family, _, _, _, address = found[0]
listener = socket.create_server(address, family=family, backlog=count)
def serve():
    for _ in range(count):
        connection, _ = listener.accept()
        connection.sendall(socket.gethostname().encode())
        connection.close()
server = threading.Thread(target=serve)
server.start()
for name in names:
    deadline = time.monotonic() + 10
    while True:
        try:
            with socket.create_connection((name, 7000), 5) as connection:
                print(connection.getsockname()[0], connection.recv(100).decode())
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline: raise
            time.sleep(0.01)
server.join()
"""


def test_all_reach_all_by_name_over_both_protocols() -> None:
    with Hosts(3) as hosts:
        for suffix, version in (("", 4), ("-v6", 6)):
            for host, ended in enumerate(hosts.run_all([*PYTHON, GREET, "{host}", "{hosts}", suffix])):
                mine = hosts.address(host, version)
                assert ended.output.splitlines() == [f"{mine} host{other}" for other in range(3)]


def test_an_ipv6_rig_has_no_ipv4() -> None:
    with Hosts(2, ipv6=True) as hosts:
        assert hosts.address(1) == "fd77::2"
        ended = hosts.run_all([*PYTHON, GREET, "{host}", "{hosts}", ""])
        assert ended[0].output.splitlines() == ["fd77::1 host0", "fd77::1 host1"]
        assert "inet " not in hosts.check_output(0, ["ip", "addr", "show", "dev", "eth0"])


def test_four_hosts_are_up_in_a_second() -> None:
    took_s = []
    for _ in range(3):  # the machine may be busy for a moment
        began_s = time.monotonic()
        with Hosts(4, rate="1gbit", loss=0.001):
            took_s.append(time.monotonic() - began_s)
    assert min(took_s) < 1, took_s


def test_each_host_is_a_network_and_a_name_of_its_own() -> None:
    with Hosts(2) as hosts:
        script = "hostname; cat /etc/hostname; ls /sys/class/net; stat --format=%d /dev/shm; readlink /proc/self/ns/net"
        own = [ended.output.splitlines() for ended in hosts.run_all(["sh", "-c", script])]
        assert [lines[0] for lines in own] == ["host0", "host1"]
        assert [lines[1] for lines in own] == ["host0", "host1"]
        assert all(lines[2:4] == ["eth0", "lo"] for lines in own)
        assert len({*(lines[4] for lines in own), str(os.stat("/dev/shm").st_dev)}) == 3
        assert len({*(lines[5] for lines in own), os.readlink("/proc/self/ns/net")}) == 3
        # The machine itself is out of reach.
        assert "default" not in hosts.check_output(0, ["ip", "route"])
        assert "fd77" not in subprocess.run(["ip", "addr"], capture_output=True, text=True, check=True).stdout


def test_names_that_no_host_has_are_unknown_at_once() -> None:
    with Hosts(1) as hosts:
        script = "import socket; socket.getaddrinfo('example.org', 80)"
        with pytest.raises(CommandFailed, match="Name or service not known"):
            hosts.check_output(0, [*PYTHON, script], timeout=5)


def test_the_named_namespaces_resolve_names_too() -> None:
    with Hosts(2) as hosts:
        command = ["ip", "netns", "exec", hosts.namespace(0), "getent", "hosts", "host1"]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert answer.split() == ["10.77.0.2", "host1"]


def test_settings_of_the_kernel() -> None:
    settings = ["ipv4/ip_forward", "ipv4/conf/eth0/rp_filter", "ipv6/conf/eth0/accept_dad", "ipv6/conf/eth0/accept_ra",
                "ipv4/tcp_rmem"]  # fmt: skip
    with Hosts(1) as hosts:
        values = hosts.check_output(0, ["cat", *(f"/proc/sys/net/{name}" for name in settings)]).splitlines()
        assert values[:4] == ["0"] * 4
        assert values[4].split() == ["4096", "131072", "6291456"]
        filters = pathlib.Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        if filters.exists():
            switch = (hosts.directory / "switch").read_text().strip()
            command = ["nsenter", f"--target={switch}", "--net", "--", "cat", str(filters)]
            assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


def test_commands_know_where_they_are(tmp_path) -> None:
    with Hosts(2) as hosts:
        script = 'echo "$HOST_INDEX $HOST_COUNT $HOST_ADDRESS $HOST0_ADDRESS $MORE {host} {hosts} {address1} {other}"'
        ended = hosts.run_all(["sh", "-c", script], env={"MORE": "more"})
        assert ended[1].output == "1 2 10.77.0.2 10.77.0.1 more 1 2 10.77.0.2 {other}\n"
        assert hosts.check_output(0, ["pwd"], cwd=tmp_path).strip() == str(tmp_path)
        process = hosts.run(0, [*PYTHON, "import os; print(os.getpid())"], stdout=subprocess.PIPE, text=True)
        said, _ = process.communicate(timeout=10)
        assert int(said) == process.pid


def test_a_failure_ends_the_others() -> None:
    with Hosts(3) as hosts:
        began_s = time.monotonic()
        script = "if [ {host} = 1 ]; then echo cannot; exit 3; fi; exec sleep 60"
        with pytest.raises(CommandFailed, match=r"---- host1: status 3\ncannot"):
            hosts.run_all(["sh", "-c", script])
        assert [ended.status for ended in hosts.run_all(["sh", "-c", script], check=False)] == [-15, 3, -15]
        assert time.monotonic() - began_s < 20


def test_what_is_not_done_in_time_is_ended() -> None:
    with Hosts(2) as hosts:
        with pytest.raises(CommandFailed, match=r"---- host0: status 0\nfine\n\n---- host1: not done after 1 s"):
            hosts.run_all(["sh", "-c", "if [ {host} = 1 ]; then exec sleep 60; fi; echo fine"], timeout=1)


def test_outside_the_context_there_are_no_hosts() -> None:
    hosts = Hosts(2)
    with pytest.raises(HostsError, match="made on entering"):
        hosts.run(0, ["true"])


def test_the_congestion_control_can_be_chosen() -> None:
    with Hosts(1, congestion="reno") as hosts:  # every kernel has it and lets namespaces use it
        assert hosts.check_output(0, ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]) == "reno\n"
    with pytest.raises(HostsError, match="host0: cannot set net/ipv4/tcp_congestion_control to 'nonsense'"):
        Hosts(1, congestion="nonsense").__enter__()
