"""docs/algorithms.md describes every row of both tables of algorithms, and no other."""

from __future__ import annotations

import re

from sources import ROOT, files

ROW = re.compile(r"\bconst (?:Wire)?Algorithm k\w+\s*(?:=\s*)?\{\s*\"(\w+)\"")
PAGE_ROW = re.compile(r"^\| \[(\w+)\]\(#[\w-]+\) \|", re.MULTILINE)


def test_the_page_has_the_rows_of_the_registry() -> None:
    defined = {
        name: path
        for path in files("csrc/algorithms", suffixes={".cc"})
        for name in ROW.findall((ROOT / path).read_text())
    }
    described = PAGE_ROW.findall((ROOT / "docs" / "algorithms.md").read_text())
    assert defined
    assert sorted(described) == sorted(defined)


def test_a_row_is_found_in_both_spellings() -> None:
    text = 'const Algorithm kA{"a_one",\n  Collective::a};\nconst WireAlgorithm kB{\n    "b_two", Collective::b};\n'
    assert ROW.findall(text) == ["a_one", "b_two"]
    assert PAGE_ROW.findall("| row |\n|---|\n| [a_one](#a_one-b) | n |\n| b_two | n |\n") == ["a_one"]
