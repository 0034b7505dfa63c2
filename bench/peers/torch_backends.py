"""Peers `gloo` and `collectives`: torch.distributed over either backend, each in a group of its own.

Rows of peers/__init__.py. The buffers are torch views of the same NumPy arrays that the other peers use.
"""

from __future__ import annotations

import importlib.util

from bench.cases import Buffers
from bench.peers.base import Call, Peer, PeerUnavailableError
from bench.world import World


class TorchBackend(Peer):
    """dist.* calls on a new_group of one backend."""

    backend: str

    def start(self, world: World) -> str:
        if importlib.util.find_spec("torch") is None:
            raise PeerUnavailableError("torch is not installed")
        import torch
        import torch.distributed as dist

        if not dist.is_available():
            raise PeerUnavailableError("this torch was built without torch.distributed")
        self._load()
        world.ensure_torch()
        self._dist, self._torch = dist, torch
        self._group = dist.new_group(backend=self.backend)
        return f"torch {torch.__version__}"

    def _load(self) -> None:
        """Import what registers the backend."""

    def bind(self, operation: str, buffers: Buffers) -> Call:
        dist, group = self._dist, self._group
        full, part, other = (self._torch.from_numpy(a) for a in (buffers.full, buffers.part, buffers.other))
        # torch 2.13 renames these two, and its old names warn at every call.
        reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        calls: dict[str, Call] = {
            "all_reduce": lambda: dist.all_reduce(full, group=group),
            "reduce_scatter": lambda: reduce_scatter(part, full, group=group),
            "all_gather": lambda: all_gather(full, part, group=group),
            "all_to_all": lambda: dist.all_to_all_single(other, full, group=group),
            "broadcast": lambda: dist.broadcast(full, 0, group=group),
            "barrier": lambda: dist.barrier(group=group),
        }
        if operation not in calls:
            raise PeerUnavailableError(f"{self.name} has no {operation} here")
        return calls[operation]

    def barrier(self) -> None:
        self._dist.barrier(group=self._group)

    def stop(self) -> None:
        self._dist.destroy_process_group(self._group)


class Gloo(TorchBackend):
    """The CPU backend that comes with torch."""

    name = backend = "gloo"


class Collectives(TorchBackend):
    """The project's own backend, through torch.distributed."""

    name = backend = "collectives"

    def _load(self) -> None:
        try:
            import collectives
        except ImportError as error:
            raise PeerUnavailableError(f"import collectives: {error}") from error
        if not hasattr(collectives, "Communicator"):
            raise PeerUnavailableError("this build of collectives registers no backend yet")
