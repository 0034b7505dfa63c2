"""What the two ends of a control connection say to each other: one JSON object a line, proven by the switch's secret.

Used by both ends (``control``, ``join``, ``status``). Imports nothing of the package but the configuration, and does no
I/O but reading a file with a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import pathlib
import re
import socket
from collections.abc import Mapping
from typing import Any

from collectives import config

PROTOCOL = 1
"""The value of ``collectives-switch`` in the greeting."""
MOST_LINE_BYTES = 64 << 10
"""The longest line that a switch reads."""
MOST_ANSWER_BYTES = 64 << 20
"""The longest line that who asks for a status reads."""
LEAST_SECRET_BYTES = 16
"""Whoever records a proof can try secrets at leisure; so a switch takes no shorter one."""

SOCKET_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 3),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""Of a control connection, at both ends: that the other's host is gone is noticed within some 15 s."""

_HEX_16 = re.compile(r"[0-9a-f]{32}")


def is_hex_16(value: object) -> bool:
    """Whether this is how 16 bytes are written in a line: a challenge, a start or a salt."""
    return isinstance(value, str) and _HEX_16.fullmatch(value) is not None


def encode(fields: Mapping[str, Any]) -> bytes:
    """Return a line, its newline included: ASCII, keys sorted, no spaces."""
    return canonical(fields) + b"\n"


def canonical(fields: Mapping[str, Any]) -> bytes:
    """Return the text that a proof is made over, whatever way the fields were written when they came."""
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def decode(line: bytes) -> dict[str, Any]:
    """Take a line apart.

    Raises
    ------
    ValueError
        If it is no JSON object, or one that is nested too deep.
    """
    try:
        fields = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a line must be a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a line must be a JSON object, not {type(fields).__name__}")
    return fields


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def prove(secret: bytes, challenge: str, fields: Mapping[str, Any]) -> str:
    """Return the proof of a line: HMAC-SHA256 over the other side's challenge and the line without its proof."""
    unproven = {key: value for key, value in fields.items() if key != "proof"}
    return hmac.new(secret, challenge.encode() + canonical(unproven), hashlib.sha256).hexdigest()


def is_proven(secret: bytes, challenge: str, fields: Mapping[str, Any]) -> bool:
    """Whether a line's proof is right; compared in constant time."""
    proof = fields.get("proof")
    if not isinstance(proof, str) or not proof.isascii():
        return False
    return hmac.compare_digest(proof, prove(secret, challenge, fields))


def packet_key(secret: bytes, job: int, incarnation: int, start: str, salt: str) -> bytes:
    """Return the key of a job's packets, 32 bytes. It never travels: both ends make it of what they know.

    Parameters
    ----------
    secret : bytes
        The switch's.
    job, incarnation : int
        32-bit numbers that the switch gave.
    start, salt : str
        16 bytes each, as hexadecimal digits: drawn by the job's rank 0, and by the switch.
    """
    numbers = job.to_bytes(4, "big") + incarnation.to_bytes(4, "big")
    text = b"collectives switch packets" + numbers + bytes.fromhex(start) + bytes.fromhex(salt)
    return hmac.new(secret, text, hashlib.sha256).digest()


def read_secret(file: str | pathlib.Path | None = None) -> bytes | None:
    """Return the switch's secret: from a file, else from ``COLLECTIVES_SWITCH_SECRET``; None where neither is given.

    Raises
    ------
    ValueError
        If the file holds nothing.
    OSError
        If it cannot be read.
    """
    if file is None:
        text = config.SWITCH_SECRET.read()
        return text.encode() if text is not None else None
    secret = pathlib.Path(file).read_bytes().strip()
    if not secret:
        raise ValueError(f"{file} is empty; put the switch's secret there, such as `openssl rand -hex 32` prints")
    return secret


def as_secret(secret: str | bytes | None) -> bytes | None:
    """Return a secret as bytes, as given by a caller who may have text; an empty one is none."""
    if not secret:
        return None
    return secret.encode() if isinstance(secret, str) else secret
