"""What a peer of the benchmark is: something that can run the operations on the ranks of a World.

Used by every peer, by measure.py and run.py; includes cases.py (buffers) and world.py (types).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from bench.cases import Buffers
from bench.world import World

Call = Callable[[], object]


class PeerUnavailableError(RuntimeError):
    """The peer cannot take part; the message is the reason that the report shows."""


class Peer(ABC):
    """One library under test.

    `start` is called on every rank, in the same order of peers. It must not leave a rank waiting for one that raised:
    check what may be missing (imports, libraries) before the first communication.
    """

    name: str
    # True when the peer's buffers come from `allocate` (memory of its own kind); else all share NumPy arrays.
    own_memory = False

    @abstractmethod
    def start(self, world: World) -> str:
        """Join the ranks; returns the version to report.

        Raises
        ------
        PeerUnavailableError
            With the reason, when the library is not here or does not fit this launch.
        """

    @abstractmethod
    def bind(self, operation: str, buffers: Buffers) -> Call:
        """The call to time: `operation` on these buffers, blocking until the result is there.

        Raises
        ------
        PeerUnavailableError
            When this peer lacks the operation or the dtype.
        """

    @abstractmethod
    def barrier(self) -> None:
        """The peer's own barrier: what aligns the ranks before each timed iteration."""

    def allocate(self, count: int, dtype: np.dtype) -> np.ndarray:
        """An array in the peer's own memory (only where own_memory)."""
        raise PeerUnavailableError(f"{self.name} has no memory of its own to allocate {count} {dtype} in")

    @abstractmethod
    def stop(self) -> None:
        """Leave the ranks; called on every rank in the same order."""
