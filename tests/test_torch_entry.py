"""Registration: both import orders, the entry point that must never raise, and what the import loads."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest


def python(code: str, **environ: str) -> str:
    """Run code in a new interpreter outside the checkout and return what it printed; its stderr ends up in failures."""
    import os

    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={**os.environ, **environ},
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout + result.stderr


REGISTERED = "import torch.distributed as dist; print(dist.Backend.backend_capability['collectives'])"


@pytest.mark.parametrize(
    "imports", ["import torch", "import collectives", "import torch, collectives", "import collectives, torch"]
)
def test_every_import_order_registers(imports: str) -> None:
    assert python(f"{imports}; {REGISTERED}").strip() == "['cpu', 'cuda']"


def test_import_registers_without_the_entry_point() -> None:
    assert "cuda" in python(f"import collectives; {REGISTERED}", TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_importing_torch_does_not_load_the_extension() -> None:
    code = "import torch, sys; print('collectives._core' in sys.modules)"
    assert python(code).strip() == "False"


def test_the_entry_point_is_installed() -> None:
    (entry,) = (entry for entry in entry_points(group="torch.backends") if entry.name == "collectives")
    assert entry.value == "collectives._torch_entry:autoload"


def test_a_failing_registration_warns_and_leaves_torch_usable() -> None:
    code = """
import importlib.util, sys
import torch
from collectives import _torch_entry

def broken():
    raise RuntimeError("nothing works")

_torch_entry.register = broken
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    _torch_entry.autoload()
print(caught[0].category.__name__, caught[0].message)
"""
    printed = python(code)
    assert "RuntimeWarning" in printed
    assert "nothing works" in printed


def test_registering_twice_does_nothing() -> None:
    import torch.distributed as dist

    from collectives import _torch_entry

    before = dist.Backend._plugins["COLLECTIVES"]
    _torch_entry.register()
    assert dist.Backend._plugins["COLLECTIVES"] is before


def test_an_unknown_name_is_an_attribute_error() -> None:
    import collectives

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        collectives.nothing  # noqa: B018
