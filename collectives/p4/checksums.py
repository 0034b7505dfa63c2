"""The hash algorithms of v1model, over a list of fields. Used by the switch; imports nothing of the package."""

from __future__ import annotations

import zlib
from collections.abc import Callable


def join_bits(fields: list[tuple[int, int]]) -> bytes:
    """Return fields, given as (number, bits), one after the other; the last byte is filled with zeros."""
    number = total = 0
    for value, bits in fields:
        number = (number << bits) | value
        total += bits
    padding = -total % 8
    return (number << padding).to_bytes((total + padding) // 8, "big")


def csum16(data: bytes) -> int:
    """Return the Internet checksum: the complement of the ones' complement sum of 16-bit words (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total = sum(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    """Return the exclusive or of 16-bit words."""
    if len(data) % 2:
        data += b"\0"
    total = 0
    for at in range(0, len(data), 2):
        total ^= int.from_bytes(data[at : at + 2], "big")
    return total


def crc16(data: bytes) -> int:
    """Return CRC-16/ARC: the polynomial 0x8005, bits reflected, from 0."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ 0xA001 if value & 1 else value >> 1
    return value


def identity(data: bytes) -> int:
    """Return the data as one number."""
    return int.from_bytes(data, "big")


# By the number of the member of enum HashAlgorithm; None draws a random number.
ALGORITHMS: tuple[Callable[[bytes], int] | None, ...] = (
    zlib.crc32,
    zlib.crc32,
    crc16,
    crc16,
    None,
    identity,
    csum16,
    xor16,
)
