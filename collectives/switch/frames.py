"""Ethernet frames around the datagrams of a UDP socket, for a P4 program that expects what a wire brings; pcap files.

A socket gives the datagram alone; its headers are made up again from where it came from. Used by ``p4_engine``; imports
nothing of the package.
"""

from __future__ import annotations

import ipaddress
import struct
import time
from typing import BinaryIO, NamedTuple

ETHERNET_BYTES = 14
HEADERS_BYTES = ETHERNET_BYTES + 20 + 8
_IPV4 = struct.Struct(">BBHHHBBH4s4s")
_UDP = struct.Struct(">HHHH")
_DO_NOT_FRAGMENT = 0x4000
_ETHERNET_LINKTYPE = 1


class Datagram(NamedTuple):
    """A datagram that a program sent, and to whom."""

    address: str
    udp_port: int
    payload: bytes


def mac_of(address: bytes) -> bytes:
    """Return the Ethernet address that a host is given here: 02:00 and its IPv4 address."""
    return b"\x02\x00" + address


def wrap(source: tuple[str, int], destination: tuple[str, int], payload: bytes) -> bytes:
    """Return the frame that a datagram would have come in.

    Parameters
    ----------
    source, destination : (str, int)
        IPv4 address and UDP port.
    payload : bytes
        The datagram.
    """
    sender = ipaddress.IPv4Address(source[0]).packed
    receiver = ipaddress.IPv4Address(destination[0]).packed
    udp_bytes = 8 + len(payload)
    fields = [0x45, 0, 20 + udp_bytes, 0, _DO_NOT_FRAGMENT, 64, 17, 0, sender, receiver]
    fields[7] = checksum(_IPV4.pack(*fields))
    header = _IPV4.pack(*fields)
    udp = _UDP.pack(source[1], destination[1], udp_bytes, 0)
    return b"".join((mac_of(receiver), mac_of(sender), b"\x08\x00", header, udp, payload))


def unwrap(frame: bytes) -> Datagram | None:
    """Return the datagram in a frame and where it goes; None if the frame is no whole IPv4 UDP packet."""
    if len(frame) < HEADERS_BYTES or frame[12:14] != b"\x08\x00" or frame[14] != 0x45 or frame[23] != 17:
        return None
    total_bytes = int.from_bytes(frame[16:18], "big")
    udp_bytes = int.from_bytes(frame[38:40], "big")
    if total_bytes != 20 + udp_bytes or not 8 <= udp_bytes <= len(frame) - ETHERNET_BYTES - 20:
        return None
    address = ".".join(map(str, frame[30:34]))
    return Datagram(address, int.from_bytes(frame[36:38], "big"), frame[HEADERS_BYTES : HEADERS_BYTES + udp_bytes - 8])


def checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header whose own checksum field is 0 (RFC 1071)."""
    total = sum(struct.unpack(f">{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


class Pcap:
    """A file of frames, in the format of tcpdump (microseconds, Ethernet).

    Raises
    ------
    OSError
        If the file cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._file: BinaryIO = open(path, "wb")  # noqa: SIM115  (closed by close)
        self._file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, _ETHERNET_LINKTYPE))
        self._file.flush()

    def write(self, frame: bytes, now_ns: int | None = None) -> None:
        """Append a frame; ``now_ns`` is since 1970, by default now."""
        us = (time.time_ns() if now_ns is None else now_ns) // 1000
        self._file.write(struct.pack("<IIII", us // 1_000_000, us % 1_000_000, len(frame), len(frame)) + frame)

    def flush(self) -> None:
        """Hand what was written to the system, so that a reader sees it."""
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
