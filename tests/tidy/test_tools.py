"""The linters and the formatters run clean, as configured in pyproject.toml and .clang-format (`make format` fixes)."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest
from sources import CXX_SUFFIXES, ROOT, files


def program(name: str) -> str:
    """Return the path of a tool: beside this Python, or on PATH; skip where it is not installed."""
    beside = pathlib.Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (requirements/dev.txt)")
    return found


def run(*command: str) -> None:
    """Run a tool at the root and fail with what it printed."""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command[:3])} ...\n{(result.stdout + result.stderr)[-8000:]}"


def test_ruff_finds_nothing() -> None:
    run(program("ruff"), "check", "--quiet", ".")


def test_ruff_format_would_change_nothing() -> None:
    run(program("ruff"), "format", "--check", ".")


@pytest.mark.deadline(600)
def test_mypy_finds_nothing() -> None:
    run(program("mypy"))


@pytest.mark.deadline(600)
def test_mypy_finds_nothing_in_the_rig_of_hosts() -> None:
    # Not in keeper.py, a script that imports its sibling by its bare name.
    modules = [path for path in files("tests/hosts", suffixes={".py"}) if not path.name.startswith(("test_", "keeper"))]
    run(program("mypy"), "--explicit-package-bases", *map(str, modules))


def test_clang_format_would_change_nothing() -> None:
    sources = [str(path) for path in files(suffixes=CXX_SUFFIXES)]
    run(program("clang-format"), "--dry-run", "--Werror", *sources)
