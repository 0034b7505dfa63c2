"""Adding something is one file and one row: each source file below a registry is named in its table.

A row of REGISTRIES is a folder, the table's file, and the files that are no entries (shared parts). Extend it with each
new registry.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest
from sources import ROOT, all_files


@dataclasses.dataclass(frozen=True)
class Registry:
    """Files `folder`/`pattern` that each must be named, by their stem, in `table`, except for the `shared` ones."""

    folder: str
    pattern: str
    table: str
    shared: frozenset[str] = frozenset()


REGISTRIES = [
    Registry("csrc/algorithms", "*.cc", "csrc/algorithms/registry.cc"),
]


def missing_rows(stems: list[str], table: str) -> list[str]:
    """Return the stems that occur in no identifier or string of the table, comments left out."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", table, flags=re.DOTALL)
    return [stem for stem in stems if not re.search(rf"(?<![A-Za-z0-9]){re.escape(stem)}(?![a-z0-9])", code)]


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.table)
def test_every_file_has_its_row(registry: Registry) -> None:
    table = ROOT / registry.table
    assert table.is_file(), f"{registry.table} is missing"
    entries = [
        path.stem
        for path in all_files()
        if path.parent == pathlib.Path(registry.folder)
        and path.match(registry.pattern)
        and path.name not in registry.shared
        and path != pathlib.Path(registry.table)
    ]
    missing = missing_rows(entries, table.read_text())
    assert not missing, f"no row in {registry.table} for {', '.join(missing)}"


def test_a_missing_row_is_found() -> None:
    table = "const Row rows[] = {ring_row(), // two_shot\n tree_row()};"
    assert missing_rows(["ring", "tree", "two_shot"], table) == ["two_shot"]
