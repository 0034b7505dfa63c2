"""The preprocessor: what comes out of macros, conditions and includes."""

from __future__ import annotations

import pathlib

import pytest

from collectives.p4.preprocess import Preprocessor


def expand(folder: pathlib.Path, text: str, include: list[str] | None = None, **defines: object) -> str:
    """Return what a source becomes, its words joined by blanks."""
    path = folder / "test.p4"
    path.write_text(text)
    return " ".join(token.text for token in Preprocessor(defines, include or []).run(path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#define A 1 + 2\nA * A", "1 + 2 * 1 + 2"),
        ("#define A B\n#define B A\nA B", "A B"),  # no macro within itself
        ("#define F(x) [x]\nF(F(1)) F (2) F", "[ [ 1 ] ] [ 2 ] F"),
        ("#define CAT(a, b) a##b\n#define XY 7\nCAT(X, Y) CAT(v_, 3)_x", "7 v_3 _x"),
        ("#define CAT(a, b) a##b\n#define CAT2(a, b) CAT(a, b)\n#define N 3\nCAT(v, N) CAT2(v, N)", "vN v3"),
        ("#define CAT(a, b) a##b\n#define LANE_2(m) m(0) m(1)\nCAT(LANE_, 2)(f)", "f ( 0 ) f ( 1 )"),
        ("#define STR(x) #x\nSTR(a + b)", '"a + b"'),
        ("#define E\n#define F(x) x\nF() E x", "x"),
        ("#define P(a, b) a|b\nP((1, 2), {3, 4})", "( 1 , 2 ) | { 3 , 4 }"),
        ("#define LONG 1 + \\\n  2\nLONG", "1 + 2"),
        ("#define F(x) x;\nF(\n1\n)", "1 ;"),
        ('a // b\n/* c\n d */ e "f // g"', 'a e "f // g"'),
        ("#define A 1\n#undef A\nA", "A"),
        ("@pragma stage 3\nx", "x"),
        ("8w0xFF 4s-1 0b1_0 a->b 1..2 x&&&y a|+|b", "8w0xFF 4 s - 1 0b1_0 a - > b 1 .. 2 x &&& y a |+| b"),
    ],
)
def test_macros(tmp_path: pathlib.Path, text: str, expected: str) -> None:
    assert expand(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("1", True),
        ("LANES == 64", True),
        ("LANES > 64 || LANES == 32 + 32", True),
        ("defined(LANES) && !defined NOPE", True),
        ("UNKNOWN", False),
        ("LANES & 1 == 0", False),  # as in C: 1 == 0 comes first
        ("(LANES & 1) == 0", True),
        ("LANES / 10 == 6 && LANES % 10 == 4", True),
        ("-7 / 2 == -3 && ~0 == -1", True),
        ("LANES == 64 ? 0 : 1", False),
        ("1 << 3 == 8 && 0x10 >> 1 == 8", True),
    ],
)
def test_conditions(tmp_path: pathlib.Path, condition: str, holds: bool) -> None:
    assert expand(tmp_path, f"#if {condition}\nyes\n#else\nno\n#endif", LANES=64) == ("yes" if holds else "no")


def test_branches(tmp_path: pathlib.Path) -> None:
    text = "#if N == 1\none\n#elif N == 2\ntwo\n#ifdef M\nmore\n#endif\n#elif N > 0\nmany\n#else\nnone\n#endif"
    assert [expand(tmp_path, text, N=n) for n in (1, 2, 3, 0)] == ["one", "two", "many", "none"]
    assert expand(tmp_path, text, N=2, M=True) == "two more"
    skipped = "#if 0\n#include <nothing>\n#error no\n#if 1\nx\n#else\ny\n#endif\n#else\nz\n#endif"
    assert expand(tmp_path, skipped) == "z"


def test_includes(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "one.p4").write_text('#include "two.p4"\n1 N')
    (tmp_path / "a" / "two.p4").write_text("2")
    (tmp_path / "b" / "three.p4").write_text("3")
    text = '#define N x\n#include "a/one.p4"\n#undef N\n#define N y\n#include "a/one.p4"\n#include <three.p4>\n'
    assert expand(tmp_path, text, include=[str(tmp_path / "b")]) == "2 1 x 2 1 y 3"


def test_built_in_files_come_once_and_can_be_replaced(tmp_path: pathlib.Path) -> None:
    words = expand(tmp_path, "#include <core.p4>\n#include <core.p4>\n#include <v1model.p4>\n")
    assert words.count("extern packet_in") == 1
    (tmp_path / "core.p4").write_text("mine")
    assert expand(tmp_path, "#include <core.p4>", include=[str(tmp_path)]) == "mine"
