"""Loads the C++ extension, or says why it cannot be loaded and what to do.

Called by ``collectives.__getattr__`` when a module of the package imports ``_core`` for the first time. Imports nothing
of the package but what the build wrote.
"""

from __future__ import annotations

import importlib
from types import ModuleType

import torch

_REBUILD = (
    "pip install --no-build-isolation --no-deps --force-reinstall . (in the checkout; `make build` when developing)"
)


def load_core() -> ModuleType:
    """Import ``collectives._core``.

    Raises
    ------
    ImportError
        If the extension was not built, was built for another torch (C++ classes change between torch's versions), or
        does not load; the message says which, and how to build it.
    """
    try:
        built_for = importlib.import_module("collectives._build_info").TORCH_VERSION
    except ModuleNotFoundError:
        raise ImportError(f"collectives is not built here: run {_REBUILD}") from None
    if public_version(built_for) != public_version(torch.__version__):
        raise ImportError(
            f"collectives was compiled for torch {built_for}, and this is torch {torch.__version__}: run {_REBUILD}"
        )
    try:
        return importlib.import_module("collectives._core")
    except ImportError as error:
        raise ImportError(
            f"collectives._core, compiled for torch {built_for}, does not load next to torch {torch.__version__}: "
            f"{error}. To build it again run {_REBUILD}"
        ) from error


def public_version(version: str) -> str:
    """Return a version without its local part: ``2.13.0`` of ``2.13.0+cpu``."""
    return str(version).partition("+")[0]
