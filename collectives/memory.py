"""Tensors in memory that the other ranks can reach, and the settings of that memory.

``collectives.empty`` is for buffers that are communicated again and again: an operation whose arrays all live there
moves no extra copy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch

import collectives._core as _core
from collectives import config


def empty(shape: int | Sequence[int], dtype: torch.dtype | str | None = None) -> torch.Tensor:
    """Make a zeroed CPU tensor in shared registered memory, freed with its storage.

    Collectives on such tensors read the peers' memory directly. ``tensor.numpy()`` gives the same memory to NumPy.

    Parameters
    ----------
    shape : int or sequence of int
        The sizes; each at least 0.
    dtype : torch.dtype or str, optional
        Such as ``torch.float32`` or ``"float32"``; by default torch's default dtype.

    Returns
    -------
    torch.Tensor
        Contiguous, of that shape and dtype.

    Raises
    ------
    ValueError
        If a size is negative or the dtype is unknown.
    torch.OutOfMemoryError
        If the shared heap is full (`COLLECTIVES_HEAP_BYTES`).
    ClosedError
        In a child made by fork(): the memory is the parent's.
    CollectivesError
        If the system refuses the shared memory.
    """
    sizes = [shape] if isinstance(shape, int) else [int(size) for size in shape]
    return _core.empty(sizes, _to_torch_dtype(dtype))


def _to_torch_dtype(dtype: torch.dtype | str | None) -> torch.dtype:
    if dtype is None:
        return torch.get_default_dtype()
    if isinstance(dtype, str):
        named = getattr(torch, dtype.removeprefix("torch."), None)
        if not isinstance(named, torch.dtype):
            raise ValueError(f"dtype: torch has no dtype named {dtype!r}")
        return named
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype: expected a torch dtype or its name, got {dtype!r}")
    return dtype


def node_settings() -> dict[str, int | str]:
    """Read what the environment says about this process's shared memory and waits; the extension calls it once.

    Raises
    ------
    ValueError
        If a variable does not parse; the message names it.
    """
    settings: dict[str, int | str] = {
        "segment_bytes": config.STAGING_BYTES.read(),
        "heap_bytes": config.HEAP_BYTES.read(),
        "streaming_stores": config.STREAMING_STORES.read(),
    }
    spin_us = config.SPIN_US.read()
    if spin_us is not None:
        settings["spin_ns"] = spin_us * 1000
    secret = config.SECRET.read()
    if secret is not None:
        settings["secret"] = secret
    interface = config.INTERFACE.read()
    if interface is not None:
        settings["interface"] = interface
    store = config.STORE.read()
    settings["towards"] = os.environ.get("MASTER_ADDR", store[0] if store is not None else "")
    settings["streams"] = config.STREAMS.read()
    settings["link_profiles"] = config.LINKS.read()
    settings["profile_folder"] = cache_folder()
    return settings


def cache_folder(environ: Mapping[str, str] | None = None) -> str:
    """Return the folder for what this user's jobs measured.

    Parameters
    ----------
    environ : mapping, optional
        Read from here; by default from ``os.environ``.

    Returns
    -------
    str
        It need not exist. Empty where the user has no home.
    """
    values = os.environ if environ is None else environ
    if (chosen := config.CACHE.read(values)) is not None:
        return os.path.abspath(chosen)
    base = values.get("XDG_CACHE_HOME") or (os.path.join(values["HOME"], ".cache") if values.get("HOME") else "")
    return os.path.join(base, "collectives") if os.path.isabs(base) else ""
