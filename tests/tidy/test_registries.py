"""Adding something is one file and one row: whatever a source file below a registry defines is named in its table.

Extend REGISTRIES with each new registry.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest
from sources import ROOT, all_files


@dataclasses.dataclass(frozen=True)
class Registry:
    """What files define, and the table that must name it.

    Attributes
    ----------
    pattern : str
        The files, as a glob from the root.
    definition : str
        A regular expression of a definition; its group is the name that the table must hold.
    table : str
        The file with the table.
    shared : frozenset of str
        Names of files that define no row: shared parts.
    other : str
        A glob of files that belong to another table.
    """

    pattern: str
    definition: str
    table: str
    shared: frozenset[str] = frozenset()
    other: str = ""


REGISTRIES = [
    Registry(
        "csrc/algorithms/*.cc",
        r"^(?:extern )?const Algorithm (k\w+)\s*[={]",
        "csrc/algorithms/registry.cc",
        shared=frozenset({"program.cc", "program_cost.cc", "program_probe.cc"}),
        other="csrc/algorithms/wire_*.cc",
    ),
    Registry(
        "csrc/algorithms/wire_*.cc",
        r"^(?:extern )?const WireAlgorithm (k\w+)\s*[={]",
        "csrc/algorithms/wire_registry.cc",
    ),
    Registry("csrc/kernels/target_*.cc", r"^#define COLLECTIVES_TARGET (\w+)", "csrc/kernels/dispatch.cc"),
]


def defined_rows(registry: Registry, text: str) -> list[str]:
    """Return the names that a file defines, in order, each once."""
    return list(dict.fromkeys(re.findall(registry.definition, without_comments(text), re.MULTILINE)))


def without_comments(text: str) -> str:
    """Return C++ text without its comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def problems(registry: Registry, sources: dict[str, str], table: str) -> list[str]:
    """Say which file defines no row, and which row the table lacks; `sources` maps a file's name to its text."""
    code = without_comments(table)
    wrong = []
    for name, text in sources.items():
        rows = defined_rows(registry, text)
        if not rows:
            wrong.append(f"{name} defines no row of {registry.table}")
        wrong += [
            f"{registry.table} has no row {row} ({name})"
            for row in rows
            if not re.search(rf"\b{re.escape(row)}\b", code)
        ]
    return wrong


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.table)
def test_every_file_has_its_row(registry: Registry) -> None:
    table = pathlib.Path(registry.table)
    assert (ROOT / table).is_file(), f"{table} is missing"
    sources = {
        str(path): (ROOT / path).read_text()
        for path in all_files()
        if path.match(registry.pattern)
        and path != table
        and path.name not in registry.shared
        and not (registry.other and path.match(registry.other))
    }
    assert sources, f"no file matches {registry.pattern}"
    wrong = problems(registry, sources, (ROOT / table).read_text())
    assert not wrong, "\n".join(wrong)


def test_a_missing_row_is_found() -> None:
    registry = Registry("", r"^const Row (k\w+) =", "table.cc")
    sources = {"a.cc": "const Row kA = {};", "b.cc": "const Row kB = {};", "c.cc": "// const Row kC = {};"}
    assert problems(registry, sources, "rows[] = {&kA /* &kB */};") == [
        "table.cc has no row kB (b.cc)",
        "c.cc defines no row of table.cc",
    ]
