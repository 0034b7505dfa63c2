"""Who gets in: gathering, quotas, incarnations; without sockets, and with the time as an argument."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from switch_helpers import START, NoPackets

from collectives.switch.admission import Admissions, Ask, Limits, read_ask
from collectives.switch.engines import Refused

OTHER_START = "f" * 32


def ask(worker: int = 0, workers: int = 1, job: str = "job", start: str = START, slots: int = 16, **rest) -> Ask:
    values = {"lanes": 2048, "udp_port": 40000 + worker, "address": "10.0.0.1", "wait_s": 10.0} | rest
    return Ask(job, start, worker, workers, slots, **values)


def admissions(engine: NoPackets | None = None, secret: bytes | None = b"s" * 16, **limits) -> Admissions:
    numbers = itertools.count(1)
    return Admissions(engine or NoPackets(), Limits(**limits), secret, lambda n: next(numbers).to_bytes(n, "big"))


def refusals(answers) -> dict[str, str]:
    assert not any(answer.admitted for answer in answers)
    return {answer.member: answer.fields["why"] for answer in answers}


def test_the_workers_of_a_start_are_admitted_together() -> None:
    one = admissions()
    assert one.ask("a", ask(0, 3), 0) == []
    assert one.ask("c", ask(2, 3), 0) == []
    assert one.engine.admitted == {}
    assert one.gathering(4) == [{"name": "job", "workers": 3, "missing": [1], "since_s": 4}]
    answers = one.ask("b", ask(1, 3), 0)
    assert [answer.member for answer in answers] == ["a", "b", "c"]
    assert all(answer.admitted for answer in answers)
    assert len({str(answer.fields) for answer in answers}) == 1
    assert answers[0].fields["tags"] and answers[0].fields["lane_bits"] == [8, 16, 32]
    (job,) = one.engine.admitted.values()
    assert job[1] == [("10.0.0.1", 40000), ("10.0.0.1", 40001), ("10.0.0.1", 40002)]  # in the order of their numbers
    assert len(job[4]) == 32


def test_an_open_switch_gives_no_key() -> None:
    one = admissions(secret=None)
    (answer,) = one.ask("a", ask(), 0)
    assert answer.fields["tags"] is False
    assert one.engine.admitted[1][4] is None


def test_a_new_start_takes_the_place_of_the_old_when_all_have_asked() -> None:
    one = admissions()
    first = one.ask("a", ask(0, 2), 0) + one.ask("b", ask(1, 2), 0)
    assert one.ask("c", ask(0, 2, start=OTHER_START), 0) == []
    assert one.running[1].start == START  # the first to come wiped nothing
    answers = one.ask("d", ask(1, 2, start=OTHER_START), 0)
    assert [(answer.member, answer.fields is None) for answer in answers[:2]] == [("a", True), ("b", True)]
    assert answers[2].fields["job"] == first[0].fields["job"]
    assert answers[2].fields["incarnation"] == first[0].fields["incarnation"] + 1
    assert one.leave("a") == []  # its connection ends, and the new start goes on
    assert one.engine.admitted.keys() == {1}


def test_those_who_gathered_before_a_start_that_was_admitted_are_told() -> None:
    one = admissions()
    one.ask("old", ask(0, 2, start=OTHER_START), 0)
    answers = one.ask("new", ask(0, 1), 0)
    assert answers[0].fields == {"answer": "refused", "why": "job 'job' was started anew"}
    assert answers[1].admitted
    one.ask("newer", ask(0, 2, start=OTHER_START), 1)
    assert one.gathering(1)[0]["missing"] == [1]


def test_a_start_that_has_begun_takes_no_more() -> None:
    one = admissions()
    one.ask("a", ask(), 0)
    assert "has begun" in refusals(one.ask("b", ask(), 0))["b"]


def test_a_worker_asks_once() -> None:
    one = admissions()
    one.ask("a", ask(0, 2), 0)
    assert "worker 0 of job 'job' has asked already, from 10.0.0.1" in refusals(one.ask("b", ask(0, 2), 0))["b"]
    one.leave("a")  # ... unless it gave up
    assert one.ask("b", ask(0, 2), 0) == []


@pytest.mark.parametrize("name", ["workers", "slots", "lanes"])
def test_workers_that_disagree_are_all_refused(name) -> None:
    one = admissions()
    one.ask("a", ask(0, 3), 0)
    odd = ask(1, **({"workers": 3} | {name: 5}))
    answers = refusals(one.ask("b", odd, 0))
    assert answers.keys() == {"a", "b"}
    assert f"disagree: {name} is" in answers["a"] and answers["a"] == answers["b"]
    assert one.gathering(0) == []


def test_one_who_waits_too_long_is_told_who_is_missing() -> None:
    one = admissions()
    one.ask("a", ask(1, 4, wait_s=5), 0)
    one.ask("b", ask(2, 4, wait_s=9), 0)
    assert one.next_expiry_s() == 5
    assert one.expire(4.9) == []
    answers = refusals(one.expire(5))
    assert answers.keys() == {"a"}
    assert "of the 4 workers of job 'job', 0, 3 did not ask within 5 s" in answers["a"]
    assert one.next_expiry_s() == 9
    assert refusals(one.expire(20)).keys() == {"b"}
    assert one.next_expiry_s() is None and one.gathering(20) == []


def test_a_worker_that_leaves_ends_the_job() -> None:
    one = admissions()
    one.ask("a", ask(0, 2), 0)
    one.ask("b", ask(1, 2), 0)
    (answer,) = one.leave("a")
    assert answer == ("b", None, False)
    assert one.engine.admitted == {} and one.running == {}
    assert one.leave("b") == []


def test_quotas() -> None:
    one = admissions(NoPackets(pool=100), jobs=2)
    one.ask("a", ask(job="a", slots=60), 0)
    why = refusals(one.ask("b", ask(job="b", slots=41), 0))["b"]
    assert why == "the pool has 40 slots left; the job asks for 41"
    one.ask("c", ask(job="c", slots=40), 0)
    assert "2 jobs are admitted" in refusals(one.ask("d", ask(job="d", slots=1), 0))["d"]
    # A new start of a job counts for the old one: it is admitted.
    assert one.ask("e", ask(job="c", slots=40, start=OTHER_START), 0)[-1].admitted
    one.ask("f", ask(0, 2, job="f"), 0)
    one.ask("g", ask(0, 2, job="g"), 0)
    assert "wait for their workers already" in refusals(one.ask("h", ask(0, 2, job="h"), 0))["h"]


def test_a_program_of_one_size() -> None:
    engine = NoPackets(fixed=True)
    engine.lanes = 64
    one = admissions(engine)
    assert "64 lanes only; the job has at most 32" in refusals(one.ask("a", ask(lanes=32), 0))["a"]
    assert one.ask("b", ask(lanes=2048), 0)[0].fields["lanes"] == 64


def test_a_forgotten_name_comes_back_with_another_incarnation(monkeypatch) -> None:
    monkeypatch.setattr("collectives.switch.admission._REMEMBERED", 2)
    one = admissions()
    seen = set()
    for name in ["a", "b", "c", "a", "b", "c"]:
        (answer,) = one.ask(name, ask(job=name), 0)
        seen.add((answer.fields["job"], answer.fields["incarnation"]))
        one.leave(name)
    assert len(seen) == 6


GOOD = {"job": "j", "start": START, "worker": 0, "workers": 2, "slots": 1, "lanes": 32, "udp_port": 9}


def test_a_good_wish_is_read() -> None:
    assert read_ask(GOOD, "10.0.0.1", Limits(wait_s=30)) == ask(0, 2, "j", slots=1, lanes=32, udp_port=9, wait_s=30)
    assert read_ask(GOOD | {"wait_ms": 500}, "10.0.0.1", Limits()).wait_s == 0.5
    assert read_ask(GOOD | {"wait_ms": 10**9}, "10.0.0.1", Limits(wait_s=30)).wait_s == 30


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *itertools.product(GOOD, [None, 1.5, True, [], "x" * 201]),
        ("job", ""),
        ("job", "a\nb"),
        ("job", "\ud800"),
        ("start", START.upper()),
        ("start", START[1:]),
        ("worker", 2),
        ("worker", -1),
        ("workers", 65),
        ("workers", 0),
        ("slots", 0),
        ("slots", 2**32),
        ("lanes", 2049),
        ("udp_port", 0),
        ("udp_port", 65536),
        ("wait_ms", 0),
        ("wait_ms", "soon"),
    ],
)
def test_a_bad_wish_is_refused(field, value) -> None:
    with pytest.raises(Refused, match=field.replace("wait_ms", "wait_ms must")):
        read_ask(GOOD | {field: value}, "10.0.0.1", Limits())


def test_quotas_of_a_wish() -> None:
    with pytest.raises(Refused, match="may have 4 workers at this switch, and this one has 5"):
        read_ask(GOOD | {"workers": 5}, "10.0.0.1", Limits(workers=4))
    with pytest.raises(Refused, match="may have 8 slots at this switch; the job asks for 9"):
        read_ask(GOOD | {"slots": 9}, "10.0.0.1", Limits(slots=8))


class AnyOrder(RuleBasedStateMachine):
    """Workers come and go in any order; what is told to them and to the engine must agree."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = NoPackets(pool=40)
        self.one = admissions(self.engine, jobs=3)
        self.now_s = 0.0
        self.waiting: set[int] = set()
        self.joined: set[int] = set()
        self.members = itertools.count()
        self.incarnations: set[tuple[int, int]] = set()

    def tell(self, answers) -> None:
        fresh = set()
        for answer in answers:
            assert answer.member in self.waiting | self.joined, "nobody is told twice, or after the end"
            self.waiting.discard(answer.member)
            self.joined.discard(answer.member)
            if answer.admitted:
                self.joined.add(answer.member)
                fresh.add((answer.fields["job"], answer.fields["incarnation"]))
        assert not fresh & self.incarnations, "an incarnation was had before"
        self.incarnations |= fresh

    @rule(
        name=st.sampled_from("abc"),
        start=st.sampled_from("0123"),
        workers=st.integers(1, 3),
        worker=st.integers(0, 2),
        slots=st.sampled_from([8, 8, 8, 30]),
    )
    def ask(self, name, start, workers, worker, slots) -> None:
        member = next(self.members)
        self.waiting.add(member)
        wish = ask(worker % workers, workers, name, start * 32, slots)
        self.tell(self.one.ask(member, wish, self.now_s))

    @rule(choice=st.integers(0, 100))
    def leave(self, choice) -> None:
        here = sorted(self.waiting | self.joined)
        if here:
            member = here[choice % len(here)]
            self.waiting.discard(member)
            self.joined.discard(member)
            self.tell(self.one.leave(member))

    @rule(seconds=st.sampled_from([1, 5, 20]))
    def wait(self, seconds) -> None:
        self.now_s += seconds
        self.tell(self.one.expire(self.now_s))

    @invariant()
    def all_agree(self) -> None:
        running = self.one.running
        assert self.engine.admitted.keys() == running.keys()
        assert all(self.engine.admitted[number][0] == job.incarnation for number, job in running.items())
        assert {member for job in running.values() for member in job.members.values()} == self.joined
        assert len({job.name for job in running.values()}) == len(running) <= 3
        assert sum(job.slots for job in running.values()) <= 40
        gathering = self.one.gathering(self.now_s)
        assert sum(one["workers"] - len(one["missing"]) for one in gathering) == len(self.waiting)
        assert all(one["missing"] for one in gathering)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
