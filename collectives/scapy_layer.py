"""A scapy layer for the packets of in-network aggregation: to make, take apart and print them in tests and tools.

::

    from scapy.layers.inet import IP, UDP
    from collectives.scapy_layer import Aggregation

    packet = IP(dst="10.0.0.254") / UDP(sport=40000) / Aggregation(job=7, slot=3, epoch=1, values=[1, -2, 3])

The layout is that of p4/shared/packet.json, to which a test holds it; docs/protocol.md says what a field means. This is
the only module that imports scapy (extra ``p4``); nothing else of the package imports it.
"""

from __future__ import annotations

import struct
from typing import Any

from scapy.fields import (
    ByteEnumField,
    ByteField,
    Field,
    FieldLenField,
    FlagsField,
    IntField,
    LongField,
    ShortField,
    SignedShortField,
    XLongField,
    XShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

PORT = 5190
MAGIC = 0xC0CA
VERSION = 1
HEADER_BYTES = 56
LOWEST_EXPONENT = -32768
KINDS = {
    1: "update",
    2: "result",
    3: "mismatch",
    20: "probe",
    21: "probed",
}
# From the lowest bit.
FLAGS = ["retransmission", "overflow", "not_a_number", "plus_infinity", "minus_infinity", "congestion"]
_LETTERS = {8: "b", 16: "h", 32: "i"}


class LanesField(Field[list[int], list[int]]):
    """The lanes: as many two's complement numbers as ``lanes`` says, each of ``lane_bits``, big-endian.

    What is no whole lane, or more than ``lanes`` says, is left to the payload: a wrong packet is shown as it is.
    """

    islist = 1

    def __init__(self, name: str) -> None:
        super().__init__(name, [], fmt="H")

    def addfield(self, pkt: Any, s: bytes, val: list[int] | None) -> bytes:
        """Append the lanes to ``s``.

        Raises
        ------
        ValueError
            If ``lane_bits`` is none of 8, 16 and 32, or a number does not fit into it.
        """
        if not val:
            return s
        letter = _LETTERS.get(pkt.lane_bits)
        if letter is None:
            raise ValueError(f"lanes have 8, 16 or 32 bits, not {pkt.lane_bits}; set lane_bits, or give no values")
        half = 1 << (pkt.lane_bits - 1)
        wrong = [value for value in val if not -half <= value < half]
        if wrong:
            raise ValueError(f"lane {wrong[0]} does not fit into {pkt.lane_bits} bits; widen lane_bits")
        return s + struct.pack(f">{len(val)}{letter}", *val)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[int]]:
        """Take the lanes from the front of ``s``."""
        letter = _LETTERS.get(pkt.lane_bits)
        if letter is None:
            return s, []
        width = pkt.lane_bits // 8
        count = min(pkt.lanes, len(s) // width)
        return s[count * width :], list(struct.unpack(f">{count}{letter}", s[: count * width]))

    def i2repr(self, pkt: Any, x: list[int]) -> str:
        """Return the lanes as text, long ones cut."""
        return repr(x) if len(x) <= 8 else f"[{', '.join(map(str, x[:8]))}, ... {len(x)} in all]"

    def i2len(self, pkt: Any, x: list[int]) -> int:
        """Return how many bytes the lanes take."""
        return len(x) * int(pkt.lane_bits) // 8

    def i2count(self, pkt: Any, x: list[int]) -> int:
        """Return how many lanes there are."""
        return len(x)


class Aggregation(Packet):
    """A packet between a worker and the switch; ``values`` are its lanes, which ``lanes`` counts if not given."""

    name = "Aggregation"
    fields_desc = [  # noqa: RUF012  (scapy's own way)
        XShortField("magic", MAGIC),
        ByteField("version", VERSION),
        ByteEnumField("kind", 1, KINDS),
        FlagsField("flags", 0, 16, FLAGS),
        FieldLenField("lanes", None, count_of="values", fmt="H"),
        IntField("job", 0),
        IntField("incarnation", 0),
        IntField("slot", 0),
        IntField("epoch", 0),
        LongField("chunk_id", 0),
        XLongField("mask", 0),
        SignedShortField("exponent", LOWEST_EXPONENT),
        SignedShortField("next_exponent", LOWEST_EXPONENT),
        ByteField("worker", 0),
        ByteField("lane_bits", 32),
        ShortField("count", 0),
        XLongField("auth", 0),
        LanesField("values"),
    ]


# Replies come from the port, updates go to it: both are taken apart, and what is made goes to it unless told otherwise.
bind_bottom_up(UDP, Aggregation, sport=PORT)
bind_layers(UDP, Aggregation, dport=PORT)

__all__ = ["FLAGS", "HEADER_BYTES", "KINDS", "LOWEST_EXPONENT", "MAGIC", "PORT", "VERSION", "Aggregation", "LanesField"]
