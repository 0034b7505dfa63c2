"""Importing: lark is needed for collectives.p4 alone, and its absence says what to install."""

from __future__ import annotations

import subprocess
import sys

WITHOUT_LARK = """
import sys
sys.modules["lark"] = None  # what is not installed
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "lark" else find_spec(name, *rest)
"""


def run(text: str) -> subprocess.CompletedProcess[str]:
    """Run Python text in a process of its own."""
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)


def test_importing_collectives_does_not_import_lark() -> None:
    result = run("import sys, collectives; assert 'lark' not in sys.modules and 'collectives.p4' not in sys.modules")
    assert result.returncode == 0, result.stderr


def test_without_lark_the_error_says_what_to_install() -> None:
    result = run(WITHOUT_LARK + "import collectives; import collectives.p4")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == (
        "ImportError: collectives.p4 needs lark to read P4: pip install collectives[p4]"
    )
