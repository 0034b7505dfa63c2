"""The engine in C++: ``_core.SwitchServer`` behind the methods of :class:`collectives.switch.engines.Engine`."""

from __future__ import annotations

from collections.abc import Sequence

from collectives import _core
from collectives.errors import CollectivesError
from collectives.switch.engines import MOST_LANES, Address, JobState, Refused, Waiting, WorkerState, refuse_ports


class NativeEngine:
    """The software switch's own engine: any number of lanes of any width, and tags.

    Parameters
    ----------
    addresses : sequence of (IP address, UDP port)
        Where to take packets; port 0: any.
    pool_bytes : int
        Memory for the slots of all jobs.

    Raises
    ------
    ValueError
        If there is no address, one is no IP address, or it is that of all interfaces.
    OSError
        If an address cannot be bound.
    """

    name = "native"
    lanes = MOST_LANES
    lane_bits: tuple[int, ...] = (8, 16, 32)
    fixed = False
    tags = True

    def __init__(self, addresses: Sequence[Address], pool_bytes: int = 64 << 20) -> None:
        refuse_ports(addresses)
        try:
            self._server = _core.SwitchServer([(place[0], place[1]) for place in addresses], pool_bytes)
        except CollectivesError as error:
            raise OSError(str(error)) from None
        self.addresses: Sequence[Address] = self._server.addresses
        self._closed = False

    def admit(
        self, job: int, incarnation: int, workers: Sequence[Address], slots: int, most_lanes: int, key: bytes | None
    ) -> None:
        """Admit a job; see the protocol of engines."""
        try:
            self._server.admit(job, incarnation, [(place[0], place[1]) for place in workers], slots, most_lanes, key)
        except (ValueError, CollectivesError) as error:
            raise Refused(str(error)) from None

    def release(self, job: int) -> bool:
        """Forget a job; False where there is none."""
        return self._server.release(job)

    def counters(self) -> dict[str, int]:
        """Return how many packets came to each verdict, and replies that could not be sent."""
        return self._server.counters()

    def jobs(self) -> list[JobState]:
        """Return what is kept of each job."""
        return [
            JobState(
                number,
                incarnation,
                slots,
                lanes,
                [WorkerState(address, port, counts, last_ns or None) for address, port, counts, last_ns in workers],
                slot_counts,
            )
            for number, incarnation, slots, lanes, workers, slot_counts in self._server.jobs()
        ]

    def waiting(self) -> list[Waiting]:
        """Return the oldest incomplete epoch of each job that has one, the oldest first."""
        return [Waiting(*each) for each in self._server.waiting()]

    def now_ns(self) -> int:
        """Return the time on the engine's clock."""
        return self._server.now_ns()

    def close(self) -> None:
        """End the thread and close the sockets."""
        if not self._closed:
            self._closed = True
            self._server.close()
