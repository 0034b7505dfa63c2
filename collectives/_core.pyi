# Types of the extension module: bindings/module.cc and what it binds. The prose is for `collectives.Communicator`.

import datetime
from collections.abc import Sequence
from typing import Any, Literal, Self, TypeVar, overload

import torch
from numpy.typing import NDArray
from torch._C._distributed_c10d import Backend as _C10dBase
from torch._C._distributed_c10d import ErrorType, Store

_A = TypeVar("_A", bound=Array)
_C = TypeVar("_C", bound=Communicator)

Array = NDArray[Any] | torch.Tensor
ReduceOp = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"] | tuple[Literal["premul_sum"], complex]

class Request:
    """An operation that was started with async_op=True. Keeps its arrays until it has ended, even when dropped."""

    def wait(self, timeout: float | None = None) -> Any:
        """Block until the operation has ended and return its result.

        After `timeout` seconds the operation fails, and with it the communicator. None: at the operation's own
        deadline. 0: at once, unless it has ended or can end without waiting. Negative: ValueError.
        """
    def done(self) -> bool:
        """Whether the operation has ended, well or badly. Never blocks."""
    def exception(self) -> BaseException | None:
        """The error of a failed operation; None while it runs and after success."""
    def abort(self) -> None:
        """Make the operation fail, and with it the communicator."""
    @property
    def result(self) -> Any:
        """The output array, or the source rank of a received message. ValueError while the operation runs."""
    @property
    def duration(self) -> float:
        """Seconds from start to end; 0 while running."""

class Communicator:
    """A group of ranks.

    Arrays are NumPy arrays or torch CPU tensors (with ml_dtypes installed also its bfloat16 and float8 arrays). The
    array called `out` is written to and returned; `array` is left alone unless it is also the output. Strided arrays
    are copied in and out. Counts and splits are in rows: indices of dimension 0, as in torch.distributed.

    With async_op=True a method returns a Request at once. Collectives end in the order of their start; messages are
    ordered only per (peer, tag).

    `timeout` is in seconds, counted from the call. None: the group's (the property `timeout`). 0: the call fails unless
    it can end at once, with what the peers have done already. math.inf: no deadline; the death of a peer and signals
    still end the wait. Negative or NaN: ValueError. A deadline that passes is a CollectiveTimeoutError, and fails the
    group like every other: a short timeout is no way to try.

    Wrong arguments raise ValueError or TypeError before anything is sent. Everything else is a CollectivesError, after
    which the group has failed: every later call raises the same, and `shrink` goes on with the ranks that are left.
    """

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def sequence(self) -> int:
        """The number of collectives issued so far."""
    timeout: float
    """Seconds that an operation may take when it is given no timeout: at least 0, or math.inf; not None."""

    @overload
    def all_reduce(
        self,
        array: _A,
        op: ReduceOp = "sum",
        out: None = None,
        compressor: None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def all_reduce(
        self,
        array: Array,
        op: ReduceOp,
        out: _A,
        compressor: None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def all_reduce(
        self,
        array: Array,
        op: ReduceOp = "sum",
        *,
        out: _A,
        compressor: None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def all_reduce(
        self,
        array: Array,
        op: ReduceOp = "sum",
        out: Array | None = None,
        compressor: None = None,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Reduce the arrays of all ranks, element by element; every rank gets the same bits.

        In `out`, of the same dtype and number of elements, or in place where out is None or array itself. `op` is
        "sum", "avg", "product", "min", "max", "band", "bor", "bxor" or ("premul_sum", factor), where each rank's array
        is multiplied with its own factor first. `compressor` must be None in this version.
        """
    @overload
    def reduce_scatter(
        self,
        out: _A,
        array: Array,
        op: ReduceOp = "sum",
        counts: Sequence[int] | None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def reduce_scatter(
        self,
        out: Array,
        array: Array,
        op: ReduceOp = "sum",
        counts: Sequence[int] | None = None,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Reduce the arrays of all ranks; rank i gets block i of the result.

        The blocks are even, or have counts[i] rows each; counts must be the same on all ranks.
        """
    @overload
    def all_gather(
        self,
        out: _A,
        array: Array,
        counts: Sequence[int] | None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def all_gather(
        self,
        out: Array,
        array: Array,
        counts: Sequence[int] | None = None,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Put the arrays of all ranks after one another, in rank order, in every rank's out.

        The arrays have one size, or counts[i] rows on rank i; counts must be the same on all ranks.
        """
    @overload
    def all_to_all(
        self,
        out: _A,
        array: Array,
        out_splits: Sequence[int] | None = None,
        in_splits: Sequence[int] | None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def all_to_all(
        self,
        out: Array,
        array: Array,
        out_splits: Sequence[int] | None = None,
        in_splits: Sequence[int] | None = None,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Send block i of array to rank i; block i of out comes from rank i.

        The blocks are even, or have in_splits[i] and out_splits[i] rows; rank i's in_splits[j] must be rank j's
        out_splits[i].
        """
    @overload
    def broadcast(
        self, array: _A, root: int = 0, async_op: Literal[False] = False, timeout: float | None = None
    ) -> _A: ...
    @overload
    def broadcast(
        self, array: Array, root: int = 0, *, async_op: Literal[True], timeout: float | None = None
    ) -> Request:
        """Give the root's array to all ranks, in place."""
    @overload
    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: ReduceOp = "sum",
        out: Array | None = None,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def reduce(
        self,
        array: Array,
        root: int = 0,
        op: ReduceOp = "sum",
        out: Array | None = None,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Reduce the arrays of all ranks; the root gets the result in out, or in place, and returns it.

        Other ranks return None; their `out` is ignored and their array left alone.
        """
    @overload
    def gather(
        self,
        out: Array | None,
        array: Array,
        root: int = 0,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    def gather(
        self, out: Array | None, array: Array, root: int = 0, *, async_op: Literal[True], timeout: float | None = None
    ) -> Request:
        """Put the arrays of all ranks after one another, in rank order, in the root's out; others may pass None."""
    @overload
    def scatter(
        self,
        out: _A,
        array: Array | None = None,
        root: int = 0,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> _A: ...
    @overload
    def scatter(
        self,
        out: Array,
        array: Array | None = None,
        root: int = 0,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Send block i of the root's array to rank i, into out; ranks other than the root may pass None as array."""
    @overload
    def barrier(self, async_op: Literal[False] = False, timeout: float | None = None) -> None: ...
    @overload
    def barrier(self, async_op: Literal[True], timeout: float | None = None) -> Request:
        """Return when all ranks have called it."""
    @overload
    def send(
        self,
        array: Array,
        destination: int,
        tag: int = 0,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def send(
        self, array: Array, destination: int, tag: int = 0, *, async_op: Literal[True], timeout: float | None = None
    ) -> Request:
        """Send an array to one rank. A small one ends at once, a large one when the receiver has taken it."""
    @overload
    def recv(
        self,
        array: Array,
        source: int | None = None,
        tag: int = 0,
        async_op: Literal[False] = False,
        timeout: float | None = None,
    ) -> int: ...
    @overload
    def recv(
        self,
        array: Array,
        source: int | None = None,
        tag: int = 0,
        *,
        async_op: Literal[True],
        timeout: float | None = None,
    ) -> Request:
        """Receive into array, of exactly the sender's size in bytes, from one rank or, with None, from any.

        Returns the rank that it came from.
        """
    def split(self, color: int | None, key: int = 0) -> Self | None:
        """A new group of the ranks with the same color, in the order of (key, rank). Collective.

        A rank with color None (or -1) gets None.
        """
    def shrink(self, exclude: Sequence[int]) -> Self:
        """A new group without some ranks; called by those that stay. This group may have failed."""
    def abort(self, reason: str | None = None) -> None:
        """Fail the group here and, in their next wait, on the peers. Wakes every waiter; from any thread."""
    def close(self, timeout: float | None = None) -> None:
        """End the group and let go of its memory. Idempotent.

        Waits, 10 s by default, for collectives under way and until every message sent has left: a large one leaves when
        its receiver takes it.

        Raises
        ------
        CollectiveTimeoutError
            When they have not ended by then. The group is closed all the same, and the peers are told.
        """
    def exception(self) -> BaseException | None:
        """The first failure of the group; None while it works."""
    def describe(self) -> str:
        """What the group runs on and why, on one line: transport, staging, from where blocks are pulled."""
    def describe_plan(self, collective: str, dtype: str, count: int, op: ReduceOp = "sum", root: int = 0) -> str:
        """What would run for a call, one algorithm a line, those taken with a star.

        `count` is the elements of one block: of the whole array for all_reduce, reduce and broadcast, of one rank's
        share for the others. Nothing is sent.
        """

    def tune(self, max_bytes: int = 16777216) -> str | None:
        """Between hosts: time every algorithm on messages of up to `max_bytes`, and choose by that from now on.

        Collective; seconds to minutes. Returns, on rank 0, the file in which the result is kept for later groups whose
        ranks lie so (see `COLLECTIVES_CACHE`), else None. Raises CollectivesError within a host.
        """

def create_communicator(
    type: type[_C],
    meeting: Any,
    rank: int,
    world_size: int,
    *,
    name: str = "world",
    timeout: float | None = None,
    transports: list[str] = ...,
    algorithm: str = "",
    deterministic: bool = False,
) -> _C: ...
def empty(sizes: list[int], dtype: torch.dtype) -> torch.Tensor: ...
def node_info() -> dict[str, Any]: ...
def library_info() -> dict[str, Any]: ...
def dtype_table() -> list[tuple[str, int, list[str]]]: ...

class Options(_C10dBase.Options):
    """What a process group of this backend may be told (pg_options); see docs/backend.md."""

    def __init__(
        self,
        *,
        timeout: datetime.timedelta | None = None,
        transports: list[str] = ...,
        algorithm: str = "",
        deterministic: bool = False,
        staging_bytes: int = 0,
        interface: str | None = None,
        switch: None = None,
        compressor: None = None,
    ) -> None: ...
    transports: list[str]
    algorithm: str
    deterministic: bool
    staging_bytes: int
    interface: str
    group_desc: str
    def copy(self) -> Options: ...

class SwitchPipeline:
    """The software switch without its sockets: what it keeps, and what a packet does to it (docs/protocol.md).

    ``pool_bytes`` is the memory for slots of all jobs. ``lanes`` and ``lane_bits`` other than 0: only packets of that
    size are served, as by a P4 program that was built for it.
    """

    def __init__(self, pool_bytes: int = 67108864, lanes: int = 0, lane_bits: int = 0) -> None: ...
    def admit(
        self,
        job: int,
        incarnation: int,
        workers: Sequence[tuple[str, int]],
        slots: int,
        most_lanes: int,
        key: bytes | None = None,
    ) -> None:
        """Admit a job of these (IP address, UDP port), or its new start with another incarnation.

        ``key`` has 32 bytes; with it packets that are not tagged with it are dropped, and replies are tagged.

        Raises
        ------
        ValueError
            With the reason: not 1 to 64 different workers, no slots, the incarnation in use, the pool too small.
        """
    def release(self, job: int) -> bool: ...
    def process(self, source: tuple[str, int], datagram: bytes, now_ns: int = 0) -> tuple[str, int | None, bytes]:
        """What became of a packet (a name of `counters`), whom to answer (None: all), and the answer (or nothing)."""
    def counters(self) -> dict[str, int]: ...
    def waiting(self) -> list[tuple[int, int, int, int, list[int]]]:
        """Of each job the oldest incomplete epoch: (job, slot, epoch, begun_ns, workers that are missing)."""

class SwitchServer:
    """The software switch on UDP sockets that are bound to these (IP address, UDP port), with a thread of its own.

    ``admit``, ``release`` and ``waiting`` are those of `SwitchPipeline`. After ``close`` the others raise ValueError.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]], pool_bytes: int = 67108864) -> None: ...
    @property
    def addresses(self) -> list[tuple[str, int]]: ...
    def admit(
        self,
        job: int,
        incarnation: int,
        workers: Sequence[tuple[str, int]],
        slots: int,
        most_lanes: int,
        key: bytes | None = None,
    ) -> None: ...
    def release(self, job: int) -> bool: ...
    def counters(self) -> dict[str, int]: ...
    def jobs(
        self,
    ) -> list[tuple[int, int, int, int, list[tuple[str, int, dict[str, int], int]], dict[int, dict[str, int]]]]:
        """(job, incarnation, slots, most_lanes, workers, counts of slots that were used).

        A worker is (IP address, UDP port, counts, time of its newest packet or 0).
        """
    def waiting(self) -> list[tuple[int, int, int, int, list[int]]]: ...
    def now_ns(self) -> int: ...
    def close(self) -> None: ...

def packet_tag(key: bytes, packet: bytes) -> int:
    """The field ``auth`` that a packet must have under a key of 32 bytes, whatever it has."""

class C10dBackend(_C10dBase):
    """The backend of a process group; what torch's base class binds comes from there."""

    @property
    def options(self) -> Options: ...
    def describe(self) -> str: ...
    def get_error(self) -> ErrorType: ...
    def _set_default_timeout(self, timeout: datetime.timedelta) -> None: ...
    def split(self, store: Store | None, ranks: list[int], opts: Any = None) -> C10dBackend | None: ...
    def merge(self, store: Store, opts: Any, rank: int, size: int) -> C10dBackend: ...
    def shrink(self, ranks_to_exclude: list[int], shrink_flags: int = 0, opts_override: Any = None) -> C10dBackend: ...
    def suspend(self) -> None: ...
    def resume(self) -> None: ...
    def memory_stats(self) -> dict[str, int]: ...

def create_backend(
    store: Store,
    rank: int,
    size: int,
    timeout: datetime.timedelta,
    name: str,
    global_ranks: list[int],
    options: Options | None,
) -> C10dBackend: ...
