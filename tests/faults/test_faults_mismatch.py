"""Ranks that disagree: an error on every rank, one that says who called what, and no hang."""

from __future__ import annotations

import numpy as np
import pytest
from fault_helpers import Raised, catch

from collectives.testing import communicator, run_ranks

# What rank 0 calls, what the others call, and what the message must name.
DISAGREEMENTS = {
    "operation": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.broadcast(np.ones(4)),
        ("all_reduce", "broadcast"),
    ),
    "barrier": (lambda c: c.barrier(), lambda c: c.all_reduce(np.ones(4)), ("barrier", "all_reduce")),
    "dtype": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.all_reduce(np.ones(4, np.int64)),
        ("float64", "int64"),
    ),
    "dtype of another size": (
        lambda c: c.all_reduce(np.ones(4)),
        lambda c: c.all_reduce(np.ones(4, np.int16)),
        ("float64", "int16"),
    ),
    "count": (lambda c: c.all_reduce(np.ones(4)), lambda c: c.all_reduce(np.ones(5)), ("4", "5")),
    "large count": (
        lambda c: c.all_reduce(np.ones(1_000_000)),
        lambda c: c.all_reduce(np.ones(999_999)),
        ("1000000", "999999"),
    ),
    "nothing and something": (lambda c: c.all_reduce(np.ones(0)), lambda c: c.all_reduce(np.ones(5)), ("0", "5")),
    "root": (lambda c: c.broadcast(np.ones(4), root=0), lambda c: c.broadcast(np.ones(4), root=1), ("root",)),
    "reduce operation": (
        lambda c: c.all_reduce(np.ones(4), "sum"),
        lambda c: c.all_reduce(np.ones(4), "max"),
        ("sum", "max"),
    ),
    "gathered counts": (
        lambda c: c.all_gather(np.ones(3 * 2), np.ones(2)),
        lambda c: c.all_gather(np.ones(3 * 3), np.ones(3)),
        ("all_gather",),
    ),
    "counts": (
        lambda c: c.all_gather(np.ones(6), np.ones([1, 2, 3][c.rank]), [1, 2, 3]),
        lambda c: c.all_gather(np.ones(6), np.ones([2, 1, 3][c.rank]), [2, 1, 3]),
        ("counts",),
    ),
}


def disagree(rank: int, world_size: int, name: str) -> tuple[Raised, Raised]:
    comm = communicator(timeout=5.0)
    mine, theirs, _ = DISAGREEMENTS[name]
    first = catch(lambda: (mine if rank == 0 else theirs)(comm))
    return first, catch(lambda: comm.barrier())


@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_every_rank_gets_an_error(name: str) -> None:
    results = run_ranks(disagree, 3, name, backend=None, timeout=40)
    texts = ""
    for rank, (first, second) in enumerate(results):
        assert first.kind == "MismatchError" or second.kind != "nothing", f"rank {rank}: {first}, {second}"
        assert first.took_s + second.took_s < 11
        assert "Error" in first.kind or first.kind == "nothing"
        texts += first.text + second.text
    kinds = {raised.kind for pair in results for raised in pair}
    assert "MismatchError" in kinds, results
    for word in DISAGREEMENTS[name][2]:
        assert word in texts, texts


def splits_disagree(rank: int, world_size: int) -> Raised:
    comm = communicator(timeout=5.0)
    in_splits = [2, 2, 2]
    out_splits = [2, 2, 2] if rank != 2 else [3, 1, 2]  # rank 0 sends 2 where rank 2 expects 3
    return catch(lambda: comm.all_to_all(np.ones((6, 3)), np.ones((6, 3)), out_splits, in_splits))


def test_splits_are_checked_pairwise() -> None:
    results = run_ranks(splits_disagree, 3, backend=None, timeout=40)
    assert "MismatchError" in {raised.kind for raised in results}, results
    assert any("rank 2" in raised.text or "rank 0" in raised.text for raised in results)
    assert all(raised.took_s < 6 for raised in results)
    assert results[2].kind != "nothing"


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
