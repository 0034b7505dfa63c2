"""Links carry what they are shaped to and lose what they should; cables are pulled, and peers are left half open."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.hosts import Hosts, goodput, round_trip, wait_until
from tests.hosts.launch import listens

pytestmark = pytest.mark.usefixtures("possible")
PYTHON = [sys.executable, "-S", "-E", "-u", "-c"]
PAYLOAD = {4: 1448 / 1514, 6: 1428 / 1514}  # of a full frame, by IP version
# The receiver prints each message as it comes; the sender sends a line of its input at a time and says what it got.
RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], 7100)) as listener:
    connection, _ = listener.accept()
    for line in connection.makefile():
        print("got", line, end="")
    print("end")
"""
SEND = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 7100), 10)
connection.settimeout(None)
print("connected")
for line in sys.stdin:
    connection.sendall(line.encode())
    print("sent", line, end="")
"""


def at_its_rate(hosts: Hosts, sender: int, receiver: int, rate: float, streams: int = 1, version: int = 4) -> None:
    """Check that TCP gets within 3 % of what headers leave of a rate; a busy machine gets some chances."""
    bound = rate * PAYLOAD[version]
    measured = []
    for _ in range(5):
        measured.append(goodput(hosts, sender, receiver, streams=streams, seconds=1) / bound)
        assert measured[-1] < 1.03, f"above the rate: {measured}"
        if measured[-1] > 0.97:
            return
    raise AssertionError(f"of the bound, in five tries: {measured}")


@pytest.mark.needs_command("iperf3")
def test_a_gigabit() -> None:
    with Hosts(2, rate="1gbit") as hosts:
        at_its_rate(hosts, 0, 1, 1e9)
        at_its_rate(hosts, 1, 0, 1e9, streams=4)


@pytest.mark.needs_command("iperf3")
def test_a_slow_link_is_slow_in_both_directions() -> None:
    with Hosts(3, rate=["100mbit", "20mbit", None], ipv6=True) as hosts:
        at_its_rate(hosts, 2, 1, 20e6, version=6)
        at_its_rate(hosts, 1, 2, 20e6, version=6)
        at_its_rate(hosts, 2, 0, 100e6, version=6)


@pytest.mark.needs_command("iperf3")
def test_a_link_that_is_not_shaped_is_fast() -> None:
    with Hosts(2) as hosts:
        assert goodput(hosts, 0, 1, seconds=1) > 2e9
        trip = round_trip(hosts, 0, 1, rounds=500)
        assert 1e-6 < trip.best <= trip.median <= trip.p99 < 0.1


COUNT_DATAGRAMS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.bind((sys.argv[1], 7200))
    print("ready")
    got = 0
    while receiver.recv(100) != b"last":
        got += 1
    print(got)
"""
SEND_DATAGRAMS = """
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    for number in range(int(sys.argv[2])):
        sender.sendto(b"x", (sys.argv[1], 7200))
        if number % 50 == 0:
            time.sleep(0.001)  # leave the receiver's buffer its time
    for _ in range(50):
        time.sleep(0.01)
        sender.sendto(b"last", (sys.argv[1], 7200))
"""


def test_packets_are_lost_as_often_as_asked() -> None:
    sent, loss = 4000, 0.1
    with Hosts(2, loss=loss) as hosts:
        receiver = hosts.run(1, [*PYTHON, COUNT_DATAGRAMS, "{address}"], stdout=subprocess.PIPE, text=True)
        assert receiver.stdout is not None and receiver.stdout.readline() == "ready\n"
        hosts.check_output(0, [*PYTHON, SEND_DATAGRAMS, "{address1}", str(sent)])
        got = int(receiver.communicate(timeout=10)[0])
        # Six standard deviations.
        assert abs((sent - got) / sent - loss) < 6 * (loss * (1 - loss) / sent) ** 0.5
        assert hosts.dropped_packets(1) >= sent - got
        assert hosts.dropped_packets(0) <= 20  # nothing much comes back


@pytest.mark.needs_command("iperf3")
def test_tcp_gets_through_losses() -> None:
    with Hosts(2, loss=0.01, rate="100mbit") as hosts:
        assert 1e6 < goodput(hosts, 0, 1, seconds=1) < 100e6
        assert hosts.dropped_packets(1) > 0


class Conversation:
    """A TCP connection from host 0 to host 1 that sends a line when told to."""

    def __init__(self, hosts: Hosts) -> None:
        pipes = {"stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self.receiver = hosts.run(1, [*PYTHON, RECEIVE, "{address}"], **pipes)
        wait_until(lambda: listens(hosts, 1, 7100))
        self.sender = hosts.run(0, [*PYTHON, SEND, "{address1}"], stdin=subprocess.PIPE, **pipes)
        assert self.sender.stdout.readline() == "connected\n"

    def say(self, text: str) -> None:
        self.sender.stdin.write(text + "\n")
        assert self.sender.stdout.readline() == f"sent {text}\n"

    def heard(self) -> str:
        return self.receiver.stdout.readline()


def pings(hosts: Hosts, one: int, other: int) -> bool:
    """Tell whether a TCP connection can be made within a second (refused is an answer, too)."""
    script = (
        "import socket, sys\n"
        "try: socket.create_connection((sys.argv[1], 9), 1)\n"
        "except ConnectionRefusedError: print('yes')\n"
        "except OSError: print('no')\n"
    )
    return hosts.check_output(one, [*PYTHON, script, hosts.address(other)]) == "yes\n"


def carrier(hosts: Hosts, host: int) -> str:
    return hosts.check_output(host, ["cat", "/sys/class/net/eth0/carrier"]).strip()


@pytest.mark.parametrize("fault", ["link_down", "blackhole"])
def test_a_connection_outlasts_a_fault_and_nothing_passes_meanwhile(fault: str) -> None:
    with Hosts(3) as hosts:
        talk = Conversation(hosts)
        talk.say("before")
        assert talk.heard() == "got before\n"

        getattr(hosts, fault)(1)
        assert carrier(hosts, 1) == ("0" if fault == "link_down" else "1")
        assert carrier(hosts, 0) == "1"
        talk.say("meanwhile")  # into the sender's buffer, without an error
        assert not pings(hosts, 0, 1)
        assert not pings(hosts, 1, 0)
        assert pings(hosts, 0, 2)  # the others talk
        assert talk.sender.poll() is None
        assert talk.receiver.poll() is None  # neither FIN nor RST

        hosts.link_up(1)
        assert talk.heard() == "got meanwhile\n"  # TCP sends it again
        assert pings(hosts, 1, 0)
        assert hosts.address(1, 6) in hosts.check_output(1, ["ip", "-6", "addr"])
        talk.sender.stdin.close()
        assert talk.heard() == "end\n"


def test_faults_of_hosts_that_are_not_there_are_refused() -> None:
    with Hosts(2) as hosts:
        for fault in (hosts.link_down, hosts.link_up, hosts.blackhole):
            with pytest.raises(ValueError, match="host 2: there are hosts 0 to 1"):
                fault(2)
