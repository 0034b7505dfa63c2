"""Peers that misbehave in known ways: what the benchmark must catch. Named as `--peers bench_fakes:Wrong`."""

from __future__ import annotations

from bench.cases import Buffers
from bench.peers.base import Call, Peer, PeerUnavailableError
from bench.peers.torch_backends import Gloo
from bench.world import World


class Wrong(Gloo):
    """One element off by one, on the last rank alone, in all_reduce alone."""

    name = "wrong"

    def start(self, world: World) -> str:
        self._last = world.rank == world.size - 1
        return super().start(world)

    def bind(self, operation: str, buffers: Buffers) -> Call:
        call = super().bind(operation, buffers)
        if operation != "all_reduce" or not self._last:
            return call

        def wrong() -> None:
            call()
            buffers.full[-1] += 1

        return wrong


class OneRankAbsent(Gloo):
    """Not available on the last rank alone."""

    name = "one_rank_absent"

    def start(self, world: World) -> str:
        if world.rank == world.size - 1:
            raise PeerUnavailableError("its library is missing")
        return "present"

    def stop(self) -> None:
        """Never started anywhere."""


class Local(Peer):
    """A right peer for a world of one rank: every operation is a copy."""

    name = "local"

    def start(self, world: World) -> str:
        return "1"

    def bind(self, operation: str, buffers: Buffers) -> Call:
        calls: dict[str, Call] = {
            "all_reduce": lambda: None,
            "reduce_scatter": lambda: buffers.part.__setitem__(slice(None), buffers.full),
            "all_gather": lambda: buffers.full.__setitem__(slice(None), buffers.part),
            "all_to_all": lambda: buffers.other.__setitem__(slice(None), buffers.full),
            "broadcast": lambda: None,
            "barrier": lambda: None,
        }
        return calls[operation]

    def barrier(self) -> None:
        """Alone."""

    def stop(self) -> None:
        """Holds nothing."""


class Lazy(Local):
    """Works the first time, then no more: right when verified, idle when timed."""

    name = "lazy"

    def bind(self, operation: str, buffers: Buffers) -> Call:
        call, calls = super().bind(operation, buffers), iter([True])
        return lambda: call() if next(calls, False) else None


class Raising(Local):
    """Raises in the call."""

    name = "raising"

    def bind(self, operation: str, buffers: Buffers) -> Call:
        def call() -> None:
            raise OverflowError("too large for me")

        return call


class Lacking(Local):
    """Lacks every operation."""

    name = "lacking"

    def bind(self, operation: str, buffers: Buffers) -> Call:
        raise PeerUnavailableError(f"no {operation} in this library")
