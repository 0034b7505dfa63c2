"""The lines of a control connection and their proofs."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.switch import lines

SECRET = b"the secret of this test"
CHALLENGE = "0f" * 16
names = st.text(max_size=8)
values = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.lists(st.integers(), max_size=3)
)
objects = st.dictionaries(names, values, max_size=5)


@given(objects)
def test_a_line_comes_back_as_it_was(fields) -> None:
    line = lines.encode(fields)
    assert line.isascii() and line.count(b"\n") == 1 and line.endswith(b"\n")
    assert lines.decode(line) == fields


@given(objects)
def test_a_proof_holds_however_the_line_was_written(fields) -> None:
    proven = fields | {"proof": lines.prove(SECRET, CHALLENGE, fields)}
    assert lines.is_proven(SECRET, CHALLENGE, dict(reversed(proven.items())))
    assert not lines.is_proven(SECRET + b"x", CHALLENGE, proven)
    assert not lines.is_proven(SECRET, "1f" * 16, proven)


@given(objects, st.text(min_size=1, max_size=8).filter(lambda name: name != "proof"), values)
def test_a_proof_is_of_every_field(fields, name, value) -> None:
    proven = fields | {"proof": lines.prove(SECRET, CHALLENGE, fields)}
    changed = proven | {name: value}
    if lines.canonical(changed) != lines.canonical(proven):
        assert not lines.is_proven(SECRET, CHALLENGE, changed)


@pytest.mark.parametrize("proof", [None, 7, "", "é" * 64, ["a"], "0" * 64])
def test_what_is_no_proof_proves_nothing(proof) -> None:
    assert not lines.is_proven(SECRET, CHALLENGE, {"ask": "join", "proof": proof})


@given(st.binary(max_size=200))
def test_bytes_are_an_object_or_a_value_error(line) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(lines.decode(line), dict)


@pytest.mark.parametrize(
    "line", [b"[" * 65000, b'{"a":' * 12000, b"[]", b"7", b'{"a": NaN}', b'{"a": ' + b"9" * 60000 + b"}"]
)
def test_hostile_lines_are_value_errors(line) -> None:
    with pytest.raises(ValueError):
        lines.decode(line)


def test_the_key_depends_on_everything() -> None:
    salt = "ab" * 16
    one = lines.packet_key(SECRET, 7, 3, CHALLENGE, salt)
    others = [
        lines.packet_key(SECRET + b"x", 7, 3, CHALLENGE, salt),
        lines.packet_key(SECRET, 8, 3, CHALLENGE, salt),
        lines.packet_key(SECRET, 7, 4, CHALLENGE, salt),
        lines.packet_key(SECRET, 7, 3, salt, salt),
        lines.packet_key(SECRET, 7, 3, CHALLENGE, CHALLENGE),
    ]
    assert len(one) == 32
    assert len({one, *others}) == 6


def test_the_secret_comes_from_a_file_or_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("COLLECTIVES_SWITCH_SECRET", raising=False)
    assert lines.read_secret() is None
    monkeypatch.setenv("COLLECTIVES_SWITCH_SECRET", "from the environment")
    assert lines.read_secret() == b"from the environment"
    file = tmp_path / "secret"
    file.write_text("from the file\n")
    assert lines.read_secret(file) == b"from the file"
    file.write_text("\n")
    with pytest.raises(ValueError, match="is empty"):
        lines.read_secret(file)
