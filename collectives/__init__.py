"""Collectives for torch.distributed, NumPy and CuPy: the public names, and nothing else.

``import collectives`` registers the c10d backend "collectives" for cpu and cuda. Everything else is loaded when it is
first used, so that the import costs no more than torch's own: torch calls the package from inside ``import torch``
(the entry point in :mod:`collectives._torch_entry`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch  # first (libtorch must be loaded before collectives._core, which is linked to it)

from collectives import _loader, _torch_entry

if TYPE_CHECKING:
    from collectives.backend import Options as Options
    from collectives.communicator import Communicator as Communicator
    from collectives.errors import AbortedError as AbortedError
    from collectives.errors import ClosedError as ClosedError
    from collectives.errors import CollectivesError as CollectivesError
    from collectives.errors import CollectiveTimeoutError as CollectiveTimeoutError
    from collectives.errors import MismatchError as MismatchError
    from collectives.errors import PeerFailedError as PeerFailedError
    from collectives.memory import empty as empty
    from collectives.switch.child import Switch as Switch

__version__ = "0.1.0"

# Public name -> the module that defines it.
_LAZY = {
    "AbortedError": "collectives.errors",
    "ClosedError": "collectives.errors",
    "CollectiveTimeoutError": "collectives.errors",
    "CollectivesError": "collectives.errors",
    "Communicator": "collectives.communicator",
    "MismatchError": "collectives.errors",
    "Options": "collectives.backend",
    "PeerFailedError": "collectives.errors",
    "Switch": "collectives.switch.child",
    "empty": "collectives.memory",
}

__all__ = [
    "AbortedError",
    "ClosedError",
    "CollectiveTimeoutError",
    "CollectivesError",
    "Communicator",
    "MismatchError",
    "Options",
    "PeerFailedError",
    "Switch",
    "__version__",
    "empty",
]

# Inside `import torch` an exception would break torch itself: there autoload() registers, and only warns.
if not getattr(torch.__spec__, "_initializing", False):
    _torch_entry.register()


def __getattr__(name: str) -> Any:
    """Load a public name, or the extension, when it is first used."""
    if name == "_core":
        return _loader.load_core()
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'collectives' has no attribute {name!r}")
    if module != "collectives.errors":
        _loader.load_core()  # a broken build is explained here, before a module of ours trips over it
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted(set(globals()) | set(__all__))
