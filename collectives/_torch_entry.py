"""The entry point that torch calls from inside ``import torch`` (group ``torch.backends``).

A leaf module: it imports nothing of the package, and torch only inside its functions, since both import orders must
work (``import torch`` first, which calls :func:`autoload`, and ``import collectives`` first, which imports torch, which
calls :func:`autoload` while ``collectives`` is half loaded). The C++ extension is loaded when the first process group
is made.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

BACKEND = "collectives"
DEVICES = ("cpu", "cuda")


def autoload() -> None:
    """Register the backend from inside ``import torch``; never raises, since that would break ``import torch``."""
    try:
        register()
    except Exception as error:
        warnings.warn(
            f"the torch.distributed backend {BACKEND!r} could not be registered: {type(error).__name__}: {error}. "
            "Run `import collectives` to see the whole error.",
            RuntimeWarning,
            stacklevel=2,
        )


def register() -> None:
    """Register the c10d backend "collectives" for cpu and cuda; a second call does nothing.

    Raises
    ------
    ImportError
        If this torch was built without torch.distributed.
    """
    import torch.distributed as dist

    if not dist.is_available():
        raise ImportError("this build of torch has no torch.distributed: collectives needs it")
    if BACKEND in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=list(DEVICES))


def _create(options: Any, backend_options: Any) -> Any:
    """Make the backend of one process group; c10d calls it with (DistributedBackendOptions, pg_options)."""
    importlib.import_module("collectives._loader").load_core()
    return importlib.import_module("collectives.backend").create_backend(options, backend_options)
