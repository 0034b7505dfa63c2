"""p4/shared/packet.json, the P4 headers and constants, and the scapy layer agree on every field and number."""

from __future__ import annotations

import json
import pathlib
import random
import struct

import pytest

pytest.importorskip("lark")
pytest.importorskip("scapy")

from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP

from collectives import scapy_layer
from collectives.p4 import types as t
from collectives.p4.aggregation import MOST_WORKERS, VERDICTS
from collectives.p4.check import Checker
from collectives.p4.parse import parse
from collectives.p4.preprocess import Preprocessor
from collectives.p4.scope import Symbol
from collectives.scapy_layer import Aggregation

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = json.loads((ROOT / "p4" / "shared" / "packet.json").read_text())
FIELDS = TABLE["fields"]
LETTERS = {8: "B", 16: "H", 32: "I", 64: "Q"}


def declared(lanes: int = 32, lane_bits: int = 32) -> dict[str, Symbol]:
    """Return the names that the P4 program declares at its top."""
    path = str(ROOT / "p4" / "aggregate.p4")
    checker = Checker("v1model")
    checker.check(parse(Preprocessor({"LANES": lanes, "LANE_BITS": lane_bits}, []).run(path), path))
    return checker.globals.names


def number(names: dict[str, Symbol], name: str) -> int:
    """Return a constant of the P4 program."""
    value = names[name].value
    assert isinstance(value, int), name
    return value


def test_the_table_agrees_with_itself() -> None:
    offset = 0
    for field in FIELDS:
        assert field["offset"] == offset, field["name"]
        assert offset % (field["bits"] // 8) == 0, f"{field['name']} is not aligned"
        offset += field["bits"] // 8
    assert offset == TABLE["header_bytes"]


def test_the_p4_header_has_the_fields() -> None:
    header = declared()["aggregation_t"].type
    assert isinstance(header, t.Composite) and header.kind == "header"
    found = [(name, kind.width) for name, kind in header.fields.items()]
    assert found == [(field["name"], field["bits"]) for field in FIELDS]


@pytest.mark.parametrize(("lanes", "lane_bits"), [(32, 32), (64, 8), (128, 16), (256, 32)])
def test_the_p4_lanes_are_those_of_the_build(lanes: int, lane_bits: int) -> None:
    names = declared(lanes, lane_bits)
    fields = names["lanes_t"].type.fields
    assert [(name, kind.width) for name, kind in fields.items()] == [(f"lane_{i}", lane_bits) for i in range(lanes)]
    assert number(names, "UDP_BYTES") == 8 + TABLE["header_bytes"] + lanes * lane_bits // 8


def test_the_p4_constants_are_the_tables() -> None:
    names = declared()
    assert number(names, "UDP_PORT") == TABLE["port"]
    assert number(names, "MAGIC") == TABLE["magic"]
    assert number(names, "VERSION") == TABLE["version"]
    for kind in ("update", "result", "mismatch"):
        assert number(names, f"KIND_{kind.upper()}") == TABLE["kinds"][kind]
    for flag in ("retransmission", "overflow"):
        assert number(names, f"FLAG_{flag.upper()}") == TABLE["flags"][flag]


def test_the_verdicts_are_numbered_as_in_p4() -> None:
    names = declared()
    assert [number(names, name.upper()) for name in VERDICTS] == list(range(len(VERDICTS)))
    assert TABLE["most_workers"] == MOST_WORKERS


def test_the_scapy_layer_has_the_numbers() -> None:
    assert TABLE["port"] == scapy_layer.PORT
    assert TABLE["magic"] == scapy_layer.MAGIC
    assert TABLE["version"] == scapy_layer.VERSION
    assert TABLE["header_bytes"] == scapy_layer.HEADER_BYTES
    assert {name: kind for kind, name in scapy_layer.KINDS.items()} == TABLE["kinds"]
    assert {name: 1 << bit for bit, name in enumerate(scapy_layer.FLAGS)} == TABLE["flags"]


def values_of_fields(seed: int) -> dict[str, int]:
    """Return a number for each field that no other field has, negative ones among them."""
    draw = random.Random(seed)
    found = {}
    for field in FIELDS:
        value = draw.getrandbits(field["bits"])
        found[field["name"]] = value - (1 << field["bits"]) * (field["signed"] and value >> (field["bits"] - 1))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_scapy_layer_packs_as_the_table_says(seed: int) -> None:
    wanted = values_of_fields(seed)
    letters = "".join(LETTERS[field["bits"]].lower() if field["signed"] else LETTERS[field["bits"]] for field in FIELDS)
    packed = struct.pack(f">{letters}", *wanted.values())
    assert bytes(Aggregation(**wanted)) == packed
    assert [field.name for field in Aggregation.fields_desc] == [*wanted, "values"]
    again = Aggregation(packed)
    assert {name: int(getattr(again, name)) for name in wanted} == wanted


@settings(deadline=None)
@given(st.data())
def test_a_packet_makes_the_round_trip(data: st.DataObject) -> None:
    bits = data.draw(st.sampled_from(TABLE["lane_bits"]))
    lane = st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    lanes = data.draw(st.lists(lane, max_size=40))
    packet = IP(src="10.0.0.1", dst="10.0.0.254") / UDP(sport=40000) / Aggregation(lane_bits=bits, values=lanes)
    again = IP(bytes(packet))
    assert again[UDP].dport == TABLE["port"]
    assert again[Aggregation].lanes == len(lanes)
    assert again[Aggregation].values == lanes
    assert bytes(again) == bytes(packet)


@settings(deadline=None)
@given(st.binary(max_size=120), st.sampled_from([0, 1, 8, 16, 32]), st.integers(0, 70))
def test_any_bytes_are_taken_apart_and_put_together_again(tail: bytes, lane_bits: int, lanes: int) -> None:
    raw = bytes(Aggregation(lanes=lanes, lane_bits=lane_bits)) + tail
    assert bytes(Aggregation(raw)) == raw


def test_a_reply_is_recognised_by_its_source_port() -> None:
    reply = IP() / UDP(sport=TABLE["port"], dport=40000, chksum=0) / Aggregation(kind=2, lane_bits=16, values=[-5])
    again = IP(bytes(reply))
    assert again[UDP].dport == 40000
    assert again[Aggregation].values == [-5]


@pytest.mark.parametrize(("lane_bits", "value"), [(8, 128), (16, -32769), (32, 1 << 31), (24, 0)])
def test_what_does_not_fit_is_refused(lane_bits: int, value: int) -> None:
    with pytest.raises(ValueError, match=r"does not fit|8, 16 or 32 bits"):
        bytes(Aggregation(lane_bits=lane_bits, values=[value]))
