"""The control connections, over real sockets: joining, refusing, and those who mean no good."""

from __future__ import annotations

import contextlib
import secrets
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from switch_helpers import SECRET, START, Hand, NoPackets, join_all, served

from collectives.errors import CollectivesError, CollectiveTimeoutError, PeerFailedError
from collectives.switch import lines
from collectives.switch.admission import Limits
from collectives.switch.control import Guard, plain_address
from collectives.switch.join import ask_status, join

OTHER_START = "f" * 32


@pytest.mark.parametrize("workers", [1, 2, 8, 64])
def test_workers_join(workers) -> None:
    engine = NoPackets()
    with served(engine) as switch:
        tickets = join_all(switch.address, workers)
        (admitted,) = engine.admitted.values()
        assert admitted[1] == [ticket.udp.getsockname() for ticket in tickets]
        for number, ticket in enumerate(tickets):
            assert (ticket.worker, ticket.workers, ticket.slots, ticket.lanes) == (number, workers, 16, 2048)
            assert ticket.lane_bits == (8, 16, 32) and ticket.tags and ticket.key == admitted[4]
            assert ticket.incarnation == admitted[0]
            assert ticket.udp.getpeername() == ticket.control.getpeername() == switch.address
            assert not ticket.udp.getblocking() and not ticket.control.getblocking()
        # The first that leaves ends the job: the others see their lease end, and nothing else.
        tickets[0].leave()
        for ticket in tickets[1:]:
            ticket.control.settimeout(10)
            assert ticket.control.recv(1) == b""
            ticket.leave()
        switch.until(lambda: not engine.admitted, "the job is released")


def test_join_over_ipv6() -> None:
    engine = NoPackets()
    engine.addresses = [("::1", 0)]
    with served(engine) as switch:
        (ticket,) = join_all(switch.address[:2], 1)
        with ticket:
            assert engine.admitted[ticket.job][1] == [("::1", ticket.udp.getsockname()[1])]


def test_an_ipv4_worker_at_an_ipv6_socket_is_known_by_its_ipv4_address() -> None:
    assert plain_address("::ffff:10.0.0.1") == "10.0.0.1"
    assert plain_address("fd00::1") == "fd00::1"
    assert plain_address("10.0.0.1") == "10.0.0.1"


def test_a_refusal_gives_the_reason() -> None:
    with served(NoPackets(pool=100)) as switch:
        with pytest.raises(CollectivesError, match=r"refused: the pool has 100 slots left; the job asks for 256"):
            join_all(switch.address, 2, slots=256)
        with pytest.raises(ValueError, match=r"start is 'now'"):
            join(switch.address, SECRET, "job", "now", 0, 1, 16, 2048, 5)
        with pytest.raises(ValueError, match=r"worker 2 of 2"):
            join(switch.address, SECRET, "job", START, 2, 2, 16, 2048, 5)
        with pytest.raises(CollectivesError, match=r"refused: lanes must be a whole number from 1 to 2048; it is 4096"):
            join(switch.address, SECRET, "job", START, 0, 1, 16, 4096, 5)


def test_those_who_are_missing_are_named() -> None:
    with served(NoPackets()) as switch:
        with pytest.raises(CollectivesError, match=r"of the 3 workers of job 'job', 0, 2 did not ask within 0\.\d+ s"):
            join(switch.address, SECRET, "job", START, 1, 3, 16, 2048, 0.5)


def test_the_switch_has_a_deadline_of_its_own() -> None:
    with served(NoPackets(), limits=Limits(wait_s=0.1)) as switch:
        with pytest.raises(CollectivesError, match=r"did not ask within 0\.1 s"):
            join(switch.address, SECRET, "job", START, 1, 3, 16, 2048, 20)


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (SECRET, b"another secret", r"refused \(it proved nothing\): the proof is wrong.*COLLECTIVES_SWITCH_SECRET"),
        (SECRET, None, r"refused: this switch has a secret; set COLLECTIVES_SWITCH_SECRET"),
        (None, SECRET, r"did not prove that it holds the secret.*it is open"),
    ],
)
def test_secrets_that_differ(theirs, ours, expected) -> None:
    engine = NoPackets()
    with served(engine, secret=theirs) as switch:
        with pytest.raises(CollectivesError, match=expected):
            join_all(switch.address, 1, secret=ours)
        switch.until(lambda: not engine.admitted, "nobody is admitted")


def test_an_open_switch() -> None:
    with served(NoPackets(), secret=None) as switch:
        (ticket,) = join_all(switch.address, 1, secret=None)
        with ticket:
            assert ticket.key is None and not ticket.tags


def test_a_proof_is_good_once() -> None:
    engine = NoPackets()
    with served(engine) as switch:
        one = Hand(switch.address).greet()
        line = one.join_line()
        one.socket.sendall(line)
        answer = one.read()
        assert answer["answer"] == "admitted" and lines.is_proven(SECRET, "ab" * 16, answer)
        one.close()
        switch.until(lambda: not engine.admitted, "it has left")
        again = Hand(switch.address).greet()
        again.socket.sendall(line)
        assert "proof is wrong" in again.read()["why"]
        assert again.is_closed() and not engine.admitted
        assert switch.counts()["wrong_proof"] == 1
        again.close()


@pytest.mark.parametrize("field", ["job", "start", "worker", "workers", "slots", "lanes", "udp_port", "challenge"])
def test_nothing_in_a_proven_line_can_be_changed(field) -> None:
    with served(NoPackets()) as switch:
        one = Hand(switch.address).greet()
        fields = lines.decode(one.join_line())
        fields[field] = fields[field][::-1] if isinstance(fields[field], str) else fields[field] + 1
        one.socket.sendall(lines.encode(fields))
        assert "proof is wrong" in one.read()["why"]
        one.close()


def test_a_switch_that_holds_no_secret_is_found_out() -> None:
    # Somebody who only passes for the switch: it echoes the worker's own proof.
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, server.getsockname(), SECRET, "job", START, 0, 1, 16, 2048, 5)
        one, _ = server.accept()
        one.sendall(lines.encode({"collectives-switch": 1, "version": "0", "challenge": "cd" * 16}))
        with one.makefile("rb") as file:
            asked = lines.decode(file.readline())
        answer = {"answer": "admitted", "job": 1, "incarnation": 1, "slots": 16, "lanes": 2048, "lane_bits": [32]}
        answer |= {"tags": True, "udp_port": 5190, "salt": "00" * 16, "proof": asked["proof"]}
        one.sendall(lines.encode(answer))
        with pytest.raises(CollectivesError, match="did not prove that it holds the secret"):
            joining.result()
        one.close()


@pytest.mark.parametrize(
    ("says", "error", "expected"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", CollectivesError, "it is no switch"),
        (b'{"collectives-switch":2,"version":"9.0.0"}\n', CollectivesError, "does not speak version 1.*9.0.0"),
        (b"", PeerFailedError, "closed the connection while this process waited for its greeting"),
        (b"x" * 70000, CollectivesError, "sent a line of more than 65536 bytes"),
    ],
)
def test_who_is_no_switch_is_told_apart(says, error, expected) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        joining = pool.submit(join, server.getsockname(), SECRET, "job", START, 0, 1, 16, 2048, 5)
        one, _ = server.accept()
        one.sendall(says)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(error, match=expected):
            joining.result()
        one.close()


def test_a_switch_that_says_nothing_is_a_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with pytest.raises(CollectiveTimeoutError, match=r"0\.1 s passed waiting for its greeting"):
            join(server.getsockname(), SECRET, "job", START, 0, 1, 16, 2048, 0.1)


def test_nobody_there() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        with pytest.raises(PeerFailedError, match="cannot be reached: Connection refused; is it running"):
            join(one.getsockname(), SECRET, "job", START, 0, 1, 16, 2048, 5)


def test_a_switch_that_dies_ends_the_wait_at_once() -> None:
    with ThreadPoolExecutor(1) as pool:
        with served(NoPackets()) as switch:
            joining = pool.submit(join, switch.address, SECRET, "job", START, 0, 2, 16, 2048, 60)
            switch.until(lambda: bool(switch.control.admissions.next_expiry_s()), "it has asked")
        with pytest.raises(PeerFailedError, match="while this process waited for the other workers of job 'job'"):
            joining.result(10)


# ---- those who mean no good


@pytest.mark.parametrize(
    ("line", "counted"),
    [
        (b"GET / HTTP/1.1\r\n", "garbage"),
        (b"[]\n", "garbage"),
        (b"[" * 60000 + b"\n", "garbage"),
        (b'{"ask":"join"}\n', "garbage"),
        (b'{"ask":"more","challenge":"' + b"ab" * 16 + b'"}\n', "garbage"),
        (b"x" * (80 << 10), "garbage"),
        (b'{"ask":"join","challenge":"' + b"ab" * 16 + b'"}\n', "wrong_proof"),
    ],
)
def test_garbage_costs_its_connection_and_is_counted(line, counted) -> None:
    with served(NoPackets()) as switch:
        one = Hand(switch.address).greet()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            one.socket.sendall(line)
        assert one.is_closed()
        one.close()
        switch.until(lambda: switch.control.counts[counted] == 1, counted)
        join_all(switch.address, 1)[0].leave()


def test_any_bytes_leave_the_switch_as_it_was() -> None:
    with served(NoPackets()) as switch:

        @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.binary(max_size=300) | st.text().map(lambda text: lines.encode({"ask": "join", text: text})))
        def say(data) -> None:
            one = Hand(switch.address).greet()
            one.socket.sendall(data + b"\n")
            assert one.is_closed()
            one.close()

        say()
        switch.until(lambda: switch.control.status()["connections"]["now"] == 0, "all are gone")
        join_all(switch.address, 1)[0].leave()


def test_more_after_having_joined_costs_the_lease() -> None:
    engine = NoPackets()
    with served(engine) as switch:
        one = Hand(switch.address).greet()
        one.socket.sendall(one.join_line() + b"and more\n")
        assert one.is_closed()
        one.close()
        switch.until(lambda: not engine.admitted and switch.control.counts["garbage"] == 1, "it is released")


def test_who_takes_too_long_to_prove_is_closed() -> None:
    with served(NoPackets(), guard=Guard(prove_s=0.05)) as switch:
        silent, slow = Hand(switch.address).greet(), Hand(switch.address).greet()
        slow.socket.sendall(slow.join_line()[:-20])
        assert silent.is_closed() and slow.is_closed()
        silent.close()
        slow.close()
        switch.until(lambda: switch.control.counts["too_slow"] == 2, "both were too slow")


def test_a_thousand_connections_do_not_keep_a_worker_out() -> None:
    with served(NoPackets(), guard=Guard(prove_s=60, unproven=100)) as switch:
        with contextlib.ExitStack() as stack:
            for _ in range(1000):
                one = socket.socket()
                stack.callback(one.close)
                one.setblocking(False)
                one.connect_ex(switch.address)
            tickets = join_all(switch.address, 4)
            for ticket in tickets:
                ticket.leave()
            counts = switch.counts()
            assert counts["crowded_out"] >= 900 - 4
            assert switch.call(switch.control.status)["connections"]["unproven_now"] <= 100
        switch.until(lambda: switch.control.status()["connections"]["now"] == 0, "all are gone")


def test_connections_that_are_reset_are_forgotten() -> None:
    engine = NoPackets()
    with served(engine) as switch:
        for line in (b"", b'{"ask"'):
            one = Hand(switch.address).greet()
            one.socket.sendall(line)
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
        (ticket,) = join_all(switch.address, 1)
        ticket.control.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        ticket.leave()
        switch.until(lambda: switch.control.status()["connections"]["now"] == 0, "all are gone")
        assert not engine.admitted
        assert switch.counts()["left"] == 1


def test_a_worker_that_gives_up_can_ask_again() -> None:
    with served(NoPackets()) as switch:
        one = Hand(switch.address).greet()
        one.socket.sendall(one.join_line(worker=0, workers=2))
        switch.until(lambda: bool(switch.control.admissions.next_expiry_s()), "it has asked")
        one.close()
        switch.until(lambda: not switch.control.admissions.next_expiry_s(), "it was forgotten")
        tickets = join_all(switch.address, 2)
        assert [ticket.worker for ticket in tickets] == [0, 1]
        assert switch.counts()["admitted"] == 1
        for ticket in tickets:
            ticket.leave()


def test_a_restart_takes_the_place_of_what_runs() -> None:
    engine = NoPackets()
    with served(engine) as switch:
        old = join_all(switch.address, 2)
        new = join_all(switch.address, 2, start=OTHER_START)
        assert new[0].job == old[0].job and new[0].incarnation != old[0].incarnation
        assert new[0].key != old[0].key
        for ticket in old:
            ticket.control.settimeout(10)
            assert ticket.control.recv(1) == b""
            ticket.leave()
        # That the old ones are gone ends nothing.
        third = join_all(switch.address, 1, job="another")
        assert engine.admitted.keys() == {new[0].job, third[0].job}
        for ticket in new + third:
            ticket.leave()


def test_status_wants_a_proof() -> None:
    with served(NoPackets()) as switch:
        (ticket,) = join_all(switch.address, 1)
        status = ask_status(switch.address, SECRET)
        assert [job["name"] for job in status["jobs"]] == ["job"]
        with pytest.raises(CollectivesError, match="proof is wrong"):
            ask_status(switch.address, secrets.token_bytes(16))
        ticket.leave()
