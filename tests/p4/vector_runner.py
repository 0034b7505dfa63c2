"""Reads the packet vectors of tests/p4/vectors and makes frames of them; vectors/README.md is the format.

Used by test_p4_vectors.py, for the interpreter and for BMv2. Knows the packets (through the scapy layer) and no switch.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any, NamedTuple

from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from collectives.p4.aggregation import Worker
from collectives.scapy_layer import KINDS, LOWEST_EXPONENT, PORT, Aggregation

FOLDER = pathlib.Path(__file__).resolve().parent / "vectors"
SWITCH_ADDRESS = "10.0.0.254"
SWITCH_MAC = "02:00:0a:00:00:fe"
# The names of p4/shared/headers.p4 -> scapy's.
_IP_NAMES = {
    "version": "version",
    "header_words": "ihl",
    "total_bytes": "len",
    "fragment_flags": "flags",
    "fragment_offset": "frag",
    "protocol": "proto",
    "checksum": "chksum",
}
_KIND_NUMBERS = {name: number for number, name in KINDS.items()}


@dataclasses.dataclass
class Job:
    """A job as a vector file declares it."""

    job: int
    incarnation: int
    slots: int
    workers: list[Worker]


class Send(NamedTuple):
    """A frame that goes in, and what must come out: (switch port, frame fields) of each packet."""

    about: str
    port: int
    frame: bytes
    out: list[tuple[int, dict[str, Any]]]


class Admit(NamedTuple):
    """A job is admitted, at first or again."""

    name: str
    job: Job


@dataclasses.dataclass
class Vectors:
    """One file."""

    path: pathlib.Path
    lanes: int
    lane_bits: int
    needs: list[str]
    steps: list[Admit | Send]
    counters: dict[str, int]


def files() -> list[pathlib.Path]:
    """Return every vector file."""
    return sorted(FOLDER.glob("*.json"))


def read(path: pathlib.Path) -> Vectors:
    """Read a file and unfold its steps.

    Raises
    ------
    ValueError
        If there is a word in it that the format does not know.
    """
    return _Reader(path).vectors


class _Reader:
    def __init__(self, path: pathlib.Path) -> None:
        content = json.loads(path.read_text())
        _known(content, {"about", "build", "needs", "jobs", "steps", "counters"}, path.name)
        self.where = path.name
        self.lanes, self.lane_bits = content["build"]["lanes"], content["build"]["lane_bits"]
        self.jobs: dict[str, Job] = {}
        self.senders: dict[str, tuple[str, int]] = {}
        steps: list[Admit | Send] = [self.admit(name, job) for name, job in content["jobs"].items()]
        for number, step in enumerate(content["steps"]):
            self.where = f"{path.name}, step {number}"
            steps += self.step(step)
        needs = content.get("needs", [])
        self.vectors = Vectors(path, self.lanes, self.lane_bits, needs, steps, content["counters"])

    def admit(self, name: str, wanted: dict[str, Any]) -> Admit:
        """Give the workers of a job their places: all are numbered in the order in which the jobs stand in the file."""
        _known(wanted, {"job", "incarnation", "slots", "workers"}, self.where)
        if name in self.jobs:
            before = self.jobs[name]
            job = dataclasses.replace(before, incarnation=wanted["incarnation"])
        else:
            first = sum(len(one.workers) for one in self.jobs.values())
            places = range(first, first + wanted["workers"])
            workers = [Worker(f"10.0.0.{place + 1}", 40000 + place, place + 1) for place in places]
            job = Job(wanted["job"], wanted["incarnation"], wanted["slots"], workers)
            self.senders |= {f"{name}{number}": (name, number) for number in range(len(workers))}
        self.jobs[name] = job
        return Admit(name, job)

    def step(self, step: dict[str, Any]) -> list[Admit | Send]:
        if "admit" in step:
            _known(step, {"about", "admit", "incarnation"}, self.where)
            return [self.admit(step["admit"], {"incarnation": step["incarnation"]})]
        if "from_all" in step:
            return list(self.round(step))
        return [self.send(step)]

    def round(self, step: dict[str, Any]) -> list[Send]:
        """Unfold ``from_all``: the lanes of worker w are w + 1 times those given; only the last packet is answered."""
        step = dict(step)
        name, lanes = step.pop("from_all"), step.pop("lanes")
        count = len(self.jobs[name].workers)
        sends = []
        for worker in range(count):
            one = step | {"from": f"{name}{worker}", "lanes": [lane * (worker + 1) for lane in lanes]}
            sends.append(self.send(one if worker == count - 1 else one | {"out": []}))
        return sends

    def send(self, step: dict[str, Any]) -> Send:
        allowed = {
            "about",
            "from",
            "header",
            "lanes",
            "payload_bytes",
            "frame_bytes",
            "udp_destination",
            "ip",
            "udp_bytes",
            "out",
        }
        _known(step, allowed, self.where)
        worker, name, number = self.sender(step["from"])
        job = self.jobs[name]
        values = self.filled(step.get("lanes", []))
        fields = {
            "kind": "update",
            "lanes": self.lanes,
            "lane_bits": self.lane_bits,
            "job": job.job,
            "incarnation": job.incarnation,
            "slot": 0,
            "epoch": 1,
            "chunk_id": 1,
            "worker": number,
        } | step.get("header", {})
        payload = _payload(fields, values, self.lane_bits)
        if "payload_bytes" in step:
            payload = payload[: step["payload_bytes"]].ljust(step["payload_bytes"], b"\0")
        ip = {"id": 77, "ttl": 9, "tos": 8} | {_IP_NAMES[name]: value for name, value in step.get("ip", {}).items()}
        frame = bytes(
            Ether(src=_mac(worker.address), dst=SWITCH_MAC)
            / IP(src=worker.address, dst=SWITCH_ADDRESS, **ip)
            / UDP(sport=worker.udp_port, dport=step.get("udp_destination", PORT), len=step.get("udp_bytes"))
            / payload
        )
        if "frame_bytes" in step:
            frame = frame[: step["frame_bytes"]].ljust(step["frame_bytes"], b"\0")
        out = [one for answer in step["out"] for one in self.answer(answer)]
        return Send(step.get("about", ""), worker.port, frame, out)

    def sender(self, who: str | dict[str, Any]) -> tuple[Worker, str, int]:
        """Return where a packet comes from, and the job whose numbers it has unless told otherwise."""
        if isinstance(who, str):
            name, number = self.senders[who]
            return self.jobs[name].workers[number], name, number
        _known(who, {"address", "udp_port", "port", "as"}, self.where)
        worker, name, number = self.sender(who["as"])
        return worker._replace(**{key: value for key, value in who.items() if key != "as"}), name, number

    def answer(self, answer: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Unfold one expected packet, to one or several workers."""
        _known(answer, {"to", "header", "lanes"}, self.where)
        members = answer["to"] if isinstance(answer["to"], list) else [answer["to"]]
        if answer["to"] in self.jobs:
            members = [f"{answer['to']}{number}" for number in range(len(self.jobs[answer["to"]].workers))]
        return [self.expected(who, answer) for who in members]

    def expected(self, who: str, answer: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        worker, name, _ = self.sender(who)
        missing = {"kind", "slot", "epoch", "chunk_id", "mask", "count"} - answer["header"].keys()
        if missing:
            raise ValueError(f"{self.where}: an answer must say {sorted(missing)}")
        header = {
            "magic": 0xC0CA,
            "version": 1,
            "flags": 0,
            "lanes": self.lanes,
            "job": self.jobs[name].job,
            "incarnation": self.jobs[name].incarnation,
            "exponent": LOWEST_EXPONENT,
            "next_exponent": LOWEST_EXPONENT,
            "worker": 255,
            "lane_bits": self.lane_bits,
            "auth": 0,
        } | answer["header"]
        header["kind"] = _KIND_NUMBERS[header["kind"]]
        return worker.port, {
            "mac": _mac(worker.address),
            "own_mac": SWITCH_MAC,
            "address": worker.address,
            "own_address": SWITCH_ADDRESS,
            "udp_port": worker.udp_port,
            "own_udp_port": PORT,
            "udp_checksum": 0,
            "header": header,
            "lanes": self.filled(answer.get("lanes", [])),
        }

    def filled(self, lanes: list[int]) -> list[int]:
        """Fill a list of lanes up with zeros."""
        if len(lanes) > self.lanes:
            raise ValueError(f"{self.where}: {len(lanes)} lanes, the build has {self.lanes}")
        return lanes + [0] * (self.lanes - len(lanes))


def _payload(fields: dict[str, Any], values: list[int], lane_bits: int) -> bytes:
    """Make the UDP payload; a header that lies about the width keeps the lanes of the build's."""
    fields = dict(fields)
    if isinstance(fields["kind"], str):
        fields["kind"] = _KIND_NUMBERS[fields["kind"]]
    body = bytes(Aggregation(lane_bits=lane_bits, values=values))[56:]
    return bytes(Aggregation(**fields)) + body


def _mac(address: str) -> str:
    return ":".join(["02", "00", *(f"{int(part):02x}" for part in address.split("."))])


def _known(content: dict[str, Any], words: set[str], where: str) -> None:
    strange = content.keys() - words
    if strange:
        raise ValueError(f"{where}: {sorted(strange)} is none of {sorted(words)}")


def dissect(frame: bytes) -> dict[str, Any]:
    """Take a frame apart into what :attr:`Send.out` says of one; lengths and the IPv4 checksum must be right.

    Raises
    ------
    AssertionError
        If the frame contradicts itself.
    """
    packet = Ether(frame)
    ip, udp, aggregation = packet[IP], packet[UDP], packet[Aggregation]
    again = IP(bytes(ip))
    del again.chksum, again.len
    assert ip.chksum == IP(bytes(again)).chksum, "the IPv4 checksum is wrong"
    assert ip.len == len(frame) - 14 and udp.len == ip.len - 20, "the lengths do not agree"
    assert (ip.id, ip.ttl, ip.tos, int(ip.flags), ip.frag) == (0, 64, 0, 2, 0), "fields of the request came back"
    header = {field.name: getattr(aggregation, field.name) for field in aggregation.fields_desc}
    lanes = header.pop("values")
    header["flags"] = int(header["flags"])
    assert not bytes(aggregation.payload), "bytes behind the lanes"
    return {
        "mac": packet.dst,
        "own_mac": packet.src,
        "address": ip.dst,
        "own_address": ip.src,
        "udp_port": udp.dport,
        "own_udp_port": udp.sport,
        "udp_checksum": udp.chksum,
        "header": header,
        "lanes": lanes,
    }
