"""Ranks that disagree: an error on every rank, one that says who called what, and no hang."""

from __future__ import annotations

import re

import numpy as np
import pytest
from fault_helpers import Raised, catch

from collectives.testing import communicator, run_ranks

UNEVEN, OTHER = [1, 2, 3], [2, 1, 3]
LARGE, OTHER_LARGE = [100_000, 200_000, 300_000], [200_000, 100_000, 300_000]


def all_gather(c, counts):
    return c.all_gather(np.ones(sum(counts)), np.ones(counts[c.rank]), counts)


def reduce_scatter(c, counts, op="sum"):
    return c.reduce_scatter(np.ones(counts[c.rank]), np.ones(sum(counts)), op, counts)


# What rank 0 calls, what the others call, and how the message describes each.
DISAGREEMENTS = {
    "operation": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.broadcast(np.ones(4)),
        "all_reduce of float64[4], sum",
        "broadcast of float64[4], root 0",
    ),
    "barrier": (
        lambda c: c.barrier(),
        lambda c: c.all_reduce(np.ones(4)),
        "barrier",
        "all_reduce of float64[4], sum",
    ),
    "splits and blocks": (
        lambda c: c.all_to_all(np.ones(6), np.ones(6)),
        lambda c: c.all_gather(np.ones(6), np.ones(2)),
        "all_to_all of float64",
        "all_gather of float64[2]",
    ),
    "dtype": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.all_reduce(np.ones(4, np.int64)),
        "all_reduce of float64[4], sum",
        "all_reduce of int64[4], sum",
    ),
    "dtype of another size": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.all_reduce(np.ones(4, np.int16)),
        "all_reduce of float64[4], sum",
        "all_reduce of int16[4], sum",
    ),
    "dtype of splits": (
        lambda c: c.all_to_all(np.ones(6), np.ones(6)),
        lambda c: c.all_to_all(np.ones(6, np.float32), np.ones(6, np.float32)),
        "all_to_all of float64",
        "all_to_all of float32",
    ),
    "count": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.all_reduce(np.ones(5)),
        "all_reduce of float64[4], sum",
        "all_reduce of float64[5], sum",
    ),
    "large count": (
        lambda c: c.all_reduce(np.ones(1_000_000)),
        lambda c: c.all_reduce(np.ones(999_999)),
        "all_reduce of float64[1000000], sum",
        "all_reduce of float64[999999], sum",
    ),
    "nothing and something": (
        lambda c: c.all_reduce(np.ones(0)),
        lambda c: c.all_reduce(np.ones(5)),
        "all_reduce of float64[0], sum",
        "all_reduce of float64[5], sum",
    ),
    "root": (
        lambda c: c.broadcast(np.ones(4), root=0),
        lambda c: c.broadcast(np.ones(4), root=1),
        "broadcast of float64[4], root 0",
        "broadcast of float64[4], root 1",
    ),
    "root of reduce": (
        lambda c: c.reduce(np.ones(4), root=0),
        lambda c: c.reduce(np.ones(4), root=1),
        "reduce of float64[4], sum, root 0",
        "reduce of float64[4], sum, root 1",
    ),
    "count of gather": (
        lambda c: c.gather(np.ones(6), np.ones(2)),
        lambda c: c.gather(None, np.ones(3)),
        "gather of float64[2], root 0",
        "gather of float64[3], root 0",
    ),
    "count of scatter": (
        lambda c: c.scatter(np.ones(2), np.ones(6)),
        lambda c: c.scatter(np.ones(3), None),
        "scatter of float64[2], root 0",
        "scatter of float64[3], root 0",
    ),
    "reduce operation": (
        lambda c: c.all_reduce(np.ones(4), "sum"),
        lambda c: c.all_reduce(np.ones(4), "max"),
        "all_reduce of float64[4], sum",
        "all_reduce of float64[4], max",
    ),
    "gathered counts": (
        lambda c: c.all_gather(np.ones(3 * 2), np.ones(2)),
        lambda c: c.all_gather(np.ones(3 * 3), np.ones(3)),
        "all_gather of float64[2]",
        "all_gather of float64[3]",
    ),
    "uneven counts": (
        lambda c: all_gather(c, UNEVEN),
        lambda c: all_gather(c, OTHER),
        "all_gather of float64, counts 1, 2, 3",
        "all_gather of float64, counts 2, 1, 3",
    ),
    "even and uneven counts": (
        lambda c: all_gather(c, [2, 2, 2]),
        lambda c: all_gather(c, OTHER),
        "all_gather of float64[2]",
        "all_gather of float64, counts 2, 1, 3",
    ),
    "scattered counts": (
        lambda c: reduce_scatter(c, UNEVEN),
        lambda c: reduce_scatter(c, OTHER),
        "reduce_scatter of float64, sum, counts 1, 2, 3",
        "reduce_scatter of float64, sum, counts 2, 1, 3",
    ),
    "large scattered counts": (
        lambda c: reduce_scatter(c, LARGE),
        lambda c: reduce_scatter(c, OTHER_LARGE),
        "reduce_scatter of float64, sum, counts 100000, 200000, 300000",
        "reduce_scatter of float64, sum, counts 200000, 100000, 300000",
    ),
    "operation with counts": (
        lambda c: reduce_scatter(c, UNEVEN, "sum"),
        lambda c: reduce_scatter(c, UNEVEN, "max"),
        "reduce_scatter of float64, sum, counts 1, 2, 3",
        "reduce_scatter of float64, max, counts 1, 2, 3",
    ),
}

SAID = re.compile(
    r"ranks (of group 'world' )?called different operations: call #2 is (?P<one>.+?) on rank (?P<one_rank>\d) "
    r"\(process \d+ on host \S+\) but (?P<other>.+?) on rank (?P<other_rank>\d) \(process \d+ on host \S+\); "
    r"every rank must make the same calls in the same order"
)


def disagree(rank: int, world_size: int, name: str, asynchronous: bool) -> tuple[Raised, Raised]:
    comm = communicator(timeout=5.0)
    comm.barrier()
    mine, theirs, _, _ = DISAGREEMENTS[name]
    if asynchronous:
        comm = Asynchronous(comm)
    first = catch(lambda: (mine if rank == 0 else theirs)(comm))
    return first, catch(lambda: comm.barrier())


class Asynchronous:
    """A communicator whose collectives all go through the queue."""

    def __init__(self, comm) -> None:
        self.comm = comm
        self.rank = comm.rank

    def __getattr__(self, name):
        return lambda *arguments, **named: getattr(self.comm, name)(*arguments, **named, async_op=True).wait()


def check_disagreement(name: str, asynchronous: bool) -> None:
    mine, theirs = DISAGREEMENTS[name][2:]
    for rank, (first, second) in enumerate(run_ranks(disagree, 3, name, asynchronous, backend=None, timeout=40)):
        # A rank that waits for nobody, such as the root of a broadcast, hears of it in its next call.
        raised = first if first.kind != "nothing" else second
        assert raised.kind == "MismatchError", f"rank {rank}: {first}, {second}"
        assert first.took_s + second.took_s < 11
        said = SAID.search(raised.text)
        assert said is not None, raised.text
        for which in ("one", "other"):
            assert said[which] == (mine if said[which + "_rank"] == "0" else theirs), raised.text
        assert said["one_rank"] != said["other_rank"]
        assert (
            rank in (int(said["one_rank"]), int(said["other_rank"])) or " failed: ranks called different" in raised.text
        )
        assert raised.text.count("of group 'world'") == 1, raised.text  # also where it was heard from a peer


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_every_rank_hears_who_called_what(name: str) -> None:
    check_disagreement(name, asynchronous=False)


@pytest.mark.parametrize("name", ["operation", "count", "uneven counts", "scattered counts"])
def test_every_rank_hears_who_called_what_asynchronously(name: str) -> None:
    check_disagreement(name, asynchronous=True)


def differ_for_a_later_rank(rank: int, world_size: int) -> Raised:
    comm = communicator(timeout=5.0)
    counts = [1, 2, 3, 4, 5, 6] if rank == 0 else [1, 2, 3, 4, 6, 5]
    return catch(lambda: all_gather(comm, counts))


def test_counts_that_differ_beyond_those_on_record() -> None:
    texts = [raised.text for raised in run_ranks(differ_for_a_later_rank, 6, backend=None, timeout=40)]
    said = [text for text in texts if "call #1 is all_gather of float64, counts 1, 2, 3, 4, ... on rank" in text]
    assert len(said) == 6, texts
    assert all("with other counts for later ranks" in text for text in said)


def splits_disagree(rank: int, world_size: int) -> Raised:
    comm = communicator(timeout=5.0)
    in_splits = [2, 2, 2]
    out_splits = [2, 2, 2] if rank != 2 else [3, 1, 2]  # rank 2 expects 3 of rank 0, and 1 of rank 1
    return catch(lambda: comm.all_to_all(np.ones((6, 3)), np.ones((6, 3)), out_splits, in_splits))


def test_splits_are_checked_pairwise() -> None:
    results = run_ranks(splits_disagree, 3, backend=None, timeout=40)
    assert all(raised.took_s < 6 for raised in results)
    assert results[2].kind == "MismatchError"
    said = (
        r"all_to_all of float64 #1 of group 'world': rank 0 \(process \d+ on host \S+\) sends 6 elements to rank 2, "
        r"which expects 9; the splits of sender and receiver must agree"
    )
    for rank, raised in enumerate(results):
        assert raised.kind in ("MismatchError", "nothing"), results  # the others may have had all of their blocks
        assert raised.kind == "nothing" or re.search(said, raised.text), f"rank {rank}: {raised.text}"


def one_rank_has_wrong_arguments(rank: int, world_size: int) -> Raised:
    def work() -> None:
        with communicator(timeout=20.0) as comm:
            splits = [2, 2] if rank == 0 else [2, 3]
            comm.all_to_all(np.ones(4), np.ones(4), splits, splits)

    return catch(work)


def test_wrong_arguments_of_one_rank_reach_the_others_through_the_context_manager() -> None:
    good, bad = run_ranks(one_rank_has_wrong_arguments, 2, backend=None, timeout=40)
    assert bad.kind == "ValueError"
    assert "out_splits: the entries add up to 5, but there are 4 rows of out" in bad.text
    assert good.kind in ("AbortedError", "PeerFailedError"), good
    assert "rank 1" in good.text
    assert good.took_s < 10


def agree_again(rank: int, world_size: int) -> float:
    comm = communicator(timeout=5.0)
    other = comm.split(0)
    catch(lambda: comm.all_reduce(np.ones(4 + rank)))
    catch(lambda: comm.barrier())
    result = float(other.all_reduce(np.ones(1))[0])
    other.close()
    comm.close()
    return result


def test_other_groups_of_the_process_are_unharmed() -> None:
    assert run_ranks(agree_again, 2, backend=None, timeout=40) == [2.0, 2.0]
