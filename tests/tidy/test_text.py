"""What every source file must have, and what none may contain."""

from __future__ import annotations

import ast
import pathlib
import re

import pytest
from sources import CXX_SUFFIXES, ROOT, TEXT_SUFFIXES, all_files, files

# What a stranger who clones the project could not make sense of: places on a developer's machine, and unfinished work.
UNWANTED = {
    r"(?<![\w.:])/(?:home|root|work|Users)/": "a path on somebody's machine",
    r"(?i)\b(?:sub-?agents?|(?:ai|coding) agents?|language model)\b": "how it was written is not part of the project",
    r"\b(?:TODO|FIXME|XXX)\b": "unfinished work: do it, or file an issue",
    r"^(?:<{7}|>{7}) ": "a merge conflict",
}
THIS_FILE = pathlib.Path(__file__).resolve().relative_to(ROOT)


def has_purpose_comment(text: str) -> bool:
    """Tell whether a C++ file begins with a comment of at least one sentence."""
    first = text.lstrip().splitlines()[0] if text.strip() else ""
    return first.startswith(("// ", "/// ", "/*")) and len(first) > 20


def public_without_docstring(source: str) -> list[str]:
    """Name the module, and the public classes, functions and methods in it, that have no docstring."""
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else ["the module"]

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If | ast.Try):
                visit(child, prefix)
            if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            overload = any("overload" in ast.unparse(decorator) for decorator in child.decorator_list)
            if child.name.startswith("_") or overload:
                continue
            if not ast.get_docstring(child):
                missing.append(prefix + child.name)
            if isinstance(child, ast.ClassDef):
                visit(child, f"{prefix}{child.name}.")

    visit(tree, "")
    return missing


def unwanted(text: str) -> list[str]:
    """Say which lines hold something unwanted, and why."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, why in UNWANTED.items():
            if match := re.search(pattern, line):
                found.append(f"{number}: {match.group()!r}: {why}")
    return found


def test_every_cxx_file_says_what_it_is_for() -> None:
    missing = [
        str(path)
        for path in files("csrc", "bindings", "tests/cpp", suffixes=CXX_SUFFIXES)
        if not has_purpose_comment((ROOT / path).read_text())
    ]
    assert not missing, f"no purpose comment at the top of {', '.join(missing)}"


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for path in files("collectives", suffixes={".py"}):
        missing += [f"{path}: {name}" for name in public_without_docstring((ROOT / path).read_text())]
    assert not missing, "no docstring:\n" + "\n".join(missing)


def test_every_python_file_says_what_it_is_for() -> None:
    missing = [
        str(path)
        for path in files(suffixes={".py"})
        if (text := (ROOT / path).read_text()).strip() and not ast.get_docstring(ast.parse(text))
    ]
    assert not missing, f"no docstring at the top of {', '.join(missing)}"


def test_nothing_unwanted_in_any_text() -> None:
    found = []
    for path in all_files():
        is_text = path.suffix in TEXT_SUFFIXES or path.suffix == ""
        if path != THIS_FILE and is_text:
            found += [f"{path}:{line}" for line in unwanted((ROOT / path).read_text(errors="replace"))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["# TODO: later", "see /home/me/x", "cd /root/x", "a subagent said", "<" * 7 + " HEAD"]
)
def test_an_unwanted_line_is_found(line: str) -> None:
    assert unwanted(f"fine\n{line}\n")


def test_a_wanted_line_passes() -> None:
    assert not unwanted("a framework/work/x on http://host/work/ under torchrun's agent; pytest's session scope\n")


def test_missing_comments_are_found() -> None:
    assert not has_purpose_comment("#pragma once\n// Late.\n")
    assert has_purpose_comment("// The table of data types; may be included by everything.\n#pragma once\n")
    source = '"""m"""\nclass A:\n    def f(self): pass\n    def _g(self): pass\ndef h():\n    """h"""\n'
    assert public_without_docstring(source) == ["A", "A.f"]
