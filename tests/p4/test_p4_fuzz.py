"""Whatever a source holds, it is loaded or refused with a place; whatever a packet holds, the switch survives it."""

from __future__ import annotations

import pathlib
import random

import pytest

from collectives import p4
from collectives.p4.preprocess import Preprocessor
from tests.p4.harness import PROGRAMS

SOURCES = ["counter.p4", "adder.p4", "l2.p4", "calculator.p4", "tna_adder.p4"]


def words(name: str) -> list[str]:
    """Return the words of a program after its includes."""
    tokens = Preprocessor({}, []).run(PROGRAMS / name)
    return [token.text for token in tokens if not token.position.file.startswith("<")]


@pytest.mark.parametrize("name", SOURCES)
def test_a_damaged_program_is_loaded_or_refused(tmp_path: pathlib.Path, name: str) -> None:
    """Words are removed, doubled, swapped or replaced by others of the program."""
    original = words(name)
    library = "tna" if name.startswith("tna") else "v1model"
    path = tmp_path / "test.p4"
    refused: list[p4.P4Error] = []
    for seed in range(60):
        draw = random.Random(seed)
        text = list(original)
        for _ in range(draw.randint(1, 3)):
            at = draw.randrange(len(text))
            kind = draw.randrange(4)
            if kind == 0:
                del text[at]
            elif kind == 1:
                text.insert(at, text[at])
            elif kind == 2:
                other = draw.randrange(len(text))
                text[at], text[other] = text[other], text[at]
            else:
                text[at] = draw.choice(original)
        path.write_text(f"#include <{library}.p4>\n" + " ".join(text))
        try:
            if p4.check(path) == "v1model":
                p4.V1Switch(p4.load(path))
        except p4.P4Error as error:
            refused.append(error)
    assert len(refused) > 30
    assert all(error.line >= 1 and error.column >= 1 and error.message for error in refused)


@pytest.mark.parametrize("name", SOURCES[:4])
def test_any_packet_is_survived(name: str) -> None:
    switch = p4.V1Switch(p4.load(PROGRAMS / name))
    switch.multicast[1] = [(1, 1), (2, 2)]
    if name == "adder.p4":
        switch.tables["AddIngress.jobs"].add(1, "admit", {"workers": 2, "group": 1})
    draw = random.Random(7)
    kinds = [b"\x88\xb5", b"\x88\xb6", b"\x81\x00", b"\x12\x34P4\x01+"]
    for _ in range(500):
        packet = bytearray(draw.randbytes(draw.randrange(80)))
        if draw.random() < 0.8:
            packet[12:14] = draw.choice(kinds)
        for port, frame in switch.process(bytes(packet), draw.randrange(3), 0):
            assert 0 <= port < 511
            assert isinstance(frame, bytes)
