"""The peers' table: one file and one row each. A peer that cannot take part is reported with its reason.

Used by run.py; includes the peers' files. `module:Class` names a peer of the user's own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from bench.peers.base import Peer, PeerUnavailableError
from bench.peers.core import Core, CoreZeroCopy
from bench.peers.mpi import Mpi
from bench.peers.torch_backends import Collectives, Gloo

__all__ = ["PEERS", "Peer", "PeerUnavailableError", "chosen"]

PEERS: tuple[type[Peer], ...] = (Core, CoreZeroCopy, Collectives, Gloo, Mpi)


def chosen(names: Sequence[str]) -> list[Peer]:
    """Peers by name, in the order of the names; `all` stands for the whole table.

    Raises
    ------
    ValueError
        For a name that is neither in the table nor an importable module:Class.
    """
    known = {peer.name: peer for peer in PEERS}
    wanted = [each for name in names for each in (known if name == "all" else (name,))]
    peers: list[Peer] = []
    for name in dict.fromkeys(wanted):
        if name in known:
            peers.append(known[name]())
        elif ":" in name:
            peers.append(_load(name))
        else:
            raise ValueError(f"unknown peer {name!r}: choose from all, {', '.join(known)}, or write module:Class")
    return peers


def _load(name: str) -> Peer:
    module_name, _, class_name = name.partition(":")
    try:
        made = getattr(importlib.import_module(module_name), class_name)()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"peer {name!r}: {error}") from error
    if not isinstance(made, Peer):
        raise ValueError(f"peer {name!r} is no bench.peers.Peer")
    return made
