"""Wrong programs: the table in wrong_programs.txt, what the preprocessor refuses, and errors in included files."""

from __future__ import annotations

import pathlib

import pytest

from collectives import p4
from tests.p4.harness import PROGRAMS, source

TABLE = (pathlib.Path(__file__).parent / "wrong_programs.txt").read_text()
MARK = "^^"


def cases() -> list[tuple[dict[str, str], str]]:
    """Read the table: (parts, message)."""
    out = []
    for block in TABLE.split("\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        if lines:
            parts = dict(line.split(": ", 1) for line in lines[:-1])
            out.append((parts, lines[-1].removeprefix("-> ")))
    return out


def test_the_table_is_read() -> None:
    assert len(cases()) > 150
    assert all(sum(part.count(MARK) for part in parts.values()) == 1 for parts, _ in cases())


@pytest.mark.parametrize(("parts", "message"), cases())
def test_a_wrong_program(tmp_path: pathlib.Path, parts: dict[str, str], message: str) -> None:
    text = source(**parts)
    before = text[: text.index(MARK)].split("\n")
    path = tmp_path / "test.p4"
    path.write_text(text.replace(MARK, ""))
    with pytest.raises(p4.P4Error) as caught:
        p4.load(path)
    error = caught.value
    assert (error.line, error.column) == (len(before), len(before[-1]) + 1)
    assert str(error).replace(str(path), "test.p4") == f"test.p4:{error.line}:{error.column}: {message}"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("#if 1\n", "1:2", "this condition is not closed; add #endif"),
        ("#endif\n", "1:2", "#endif without #if; remove it or add the #if"),
        ("#if 1\n#else\n#else\n#endif\n", "3:2", "#else after #else; close the first condition with #endif"),
        ("#if 1 +\n#endif\n", "1:2", "the condition of #if needs a whole number, not nothing"),
        ("#if 1 / 0\n#endif\n", "1:7", "division by zero in the condition of #if"),
        ("#if (1\n#endif\n", "1:2", "the condition of #if lacks )"),
        ("#if 1 2\n#endif\n", "1:7", "unexpected 2 in the condition of #if"),
        ("\n#error LANES is too large\n", "2:2", "#error LANES is too large"),
        ("#includ <core.p4>\n", "1:2", "#includ is no directive; write #include, #define, #undef, #if or #error"),
        ("#include core.p4\n", "1:2", '#include core.p4 names no file; write #include "file" or #include <file>'),
        ("#define F(x x\n", "1:9", "the parameters of macro F are not closed; add )"),
        ("#define F(x) x\nF(1\n", "2:1", "the arguments of macro F are not closed; add )"),
        ("#define F(x, y) x\nconst bit<8> a = F(1);\n", "2:18", "macro F takes 2 arguments, and this gives 1"),
        ("#define F(x) x ## +\nconst bit<8> a = F(1);\n", "2:18", "1##+ does not make one word; see the macro F"),
        ("#ifdef\n#endif\n", "1:2", "#ifdef takes one name"),
        ("/* open\n", "1:1", "this comment is not closed; end it with */"),
        (
            "const bit<8> a = 1;\n",
            "1:1",
            "the source makes no switch; end it with V1Switch(...) main; or Switch(...) main;",
        ),
    ],
)
def test_what_the_preprocessor_refuses(tmp_path: pathlib.Path, text: str, place: str, message: str) -> None:
    path = tmp_path / "test.p4"
    path.write_text(text)
    with pytest.raises(p4.P4Error) as caught:
        p4.load(path)
    assert str(caught.value) == f"{path}:{place}: {message}"


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "test.p4"
    path.write_text('#include "nothing.p4"\n')
    with pytest.raises(
        p4.P4Error, match=r"test\.p4:1:2: there is no file nothing\.p4 \(looked in .*, parts; built in: "
    ):
        p4.load(path, include=["parts"])


def test_an_error_in_an_included_file_names_that_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "types.p4").write_text("\nheader x_t { bit<8> a; bit<3> b; }\n")
    path = tmp_path / "test.p4"
    path.write_text('#include "parts/types.p4"\n' + source())
    with pytest.raises(p4.P4Error, match="header x_t has 11 bits") as caught:
        p4.load(path)
    assert (caught.value.file, caught.value.line, caught.value.column) == (str(tmp_path / "parts/types.p4"), 2, 8)


def test_an_error_in_a_macro_is_where_the_macro_is_used(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "test.p4"
    path.write_text("#define SET(x) \\\n    hdr.h.a = \\\n    x;\n" + source(apply="  SET(256)"))
    with pytest.raises(p4.P4Error, match="256 does not fit") as caught:
        p4.load(path)
    line = path.read_text().splitlines()[caught.value.line - 1]
    assert line[caught.value.column - 1 :].startswith("SET(256)")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "apply { packet.emit(hdr); }",
            "apply { if (hdr.h.isValid()) { packet.emit(hdr); } }",
            "a deparser only emits",
        ),
        ("struct headers_t {", "struct headers_t { bit<8> n;", "headers_t is the struct of headers, and n is bit<8>"),
        ("TestCompute(), ", "", "V1Switch takes 6 arguments, and this gives 5"),
        ("TestEgress(), TestCompute()", "TestCompute(), TestEgress()", "control TestCompute has the parameters"),
        ("TestParser(), ", "TestVerify(), ", "control|TestVerify does not fit as parser_; pass a parser"),
        (") main;", ") other;", "the source makes no switch"),
        ("inout meta_t meta) { apply {  } }", "inout bit<8> meta) { apply {  } }", "has the parameters"),
        ("struct meta_t {  }", "typedef bit<8> meta_t;", "are structs, and bit<8> is none"),
    ],
)
def test_a_switch_that_does_not_fit_together(tmp_path: pathlib.Path, old: str, new: str, message: str) -> None:
    text = (
        source().replace("packet.emit(hdr)", "packet.emit(hdr.h)").replace(old.replace("emit(hdr)", "emit(hdr.h)"), new)
    )
    path = tmp_path / "test.p4"
    path.write_text(text.replace("packet.emit(hdr)", "packet.emit(hdr.h)"))
    with pytest.raises(p4.P4Error, match=message):
        p4.load(path)


def test_an_expression_that_is_nested_too_deeply(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "test.p4"
    path.write_text(source(apply="hdr.h.a = " + "~" * 20000 + "hdr.h.a;"))
    with pytest.raises(p4.P4Error, match="nested too deeply"):
        p4.load(path)


def test_long_sums_and_conditions(tmp_path: pathlib.Path) -> None:
    fields = "".join(f"bit<16> v{n}; " for n in range(500)) + "bit<16> total; bit<16> way;"
    names = [f"hdr.h.v{n}" for n in range(500)]
    apply = f"""
        hdr.h.total = {" + ".join(names)};
        if (hdr.h.v0 == 9) {{ hdr.h.way = 1; }}
        else if ({" && ".join(f"{name} < 600" for name in names)}) {{ hdr.h.way = 2; }}
    """
    path = tmp_path / "test.p4"
    path.write_text(source(fields=fields, apply=apply))
    ((_, frame),) = p4.V1Switch(p4.load(path)).process(b"".join(n.to_bytes(2, "big") for n in range(502)), 0, 0)
    assert (int.from_bytes(frame[-4:-2], "big"), frame[-1]) == (sum(range(500)) % 65536, 2)


def test_lanes_that_the_template_does_not_know(tmp_path: pathlib.Path) -> None:
    with pytest.raises(p4.P4Error, match=r"repeat\.p4:\d+:2: #error LANES is 4 or 64"):
        p4.load(PROGRAMS / "adder.p4", defines={"LANES": 5})


def test_a_missing_source_is_an_os_error() -> None:
    with pytest.raises(FileNotFoundError):
        p4.load("no/such/file.p4")
