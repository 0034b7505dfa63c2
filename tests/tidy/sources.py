"""Which files the tidy tests look at: what git tracks, or would if it were added."""

from __future__ import annotations

import functools
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CXX_SUFFIXES = {".cc", ".h", ".cu", ".cuh"}
TEXT_SUFFIXES = CXX_SUFFIXES | {".py", ".pyi", ".md", ".toml", ".txt", ".cmake", ".yaml", ".yml", ".p4", ".sh", ".json"}


@functools.cache
def all_files() -> tuple[pathlib.Path, ...]:
    """Return the project's files, relative to the root, sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        names = [pathlib.Path(line) for line in listing.stdout.splitlines()]
    else:  # an unpacked archive
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
        names = [path for path in names if path.parts[0] not in {"build", ".venv"} and "__pycache__" not in path.parts]
    return tuple(sorted(path for path in names if (ROOT / path).is_file()))


def files(*folders: str, suffixes: set[str]) -> list[pathlib.Path]:
    """Return the files with these suffixes under these folders of the root (all of it where none is named)."""
    chosen = [path for path in all_files() if path.suffix in suffixes]
    return [path for path in chosen if not folders or any(path.is_relative_to(folder) for folder in folders)]
