"""Loading the extension: what a missing build, or one for another torch, is told."""

from __future__ import annotations

import sys
import types

import pytest

from collectives import _loader


def pretend_build(monkeypatch: pytest.MonkeyPatch, torch_version: str) -> None:
    """Let the package believe that it was built for this torch."""
    info = types.ModuleType("collectives._build_info")
    info.TORCH_VERSION = torch_version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "collectives._build_info", info)


def test_the_extension_loads() -> None:
    from collectives import _core

    assert _loader.load_core() is _core


def test_another_torch_is_refused_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_build(monkeypatch, "2.11.0+cu126")
    with pytest.raises(ImportError, match=r"compiled for torch 2\.11\.0\+cu126, and this is torch .*--no-build-isol"):
        _loader.load_core()


def test_another_build_of_the_same_torch_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    pretend_build(monkeypatch, _loader.public_version(torch.__version__) + "+other")
    assert _loader.load_core().__name__ == "collectives._core"


def test_a_missing_build_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "collectives._build_info", None)
    with pytest.raises(ImportError, match="not built here: run pip install"):
        _loader.load_core()
