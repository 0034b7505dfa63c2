"""A part of torch's own distributed_test with every kind of operation, in a minute; `make test-torch` runs it all."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run_distributed_test


def names(text: str) -> list[str]:
    return text.split()


OURS = names("""
    test_Backend_enum_class test_DistributedDataParallelCPU_grad_is_view test_all_gather test_all_gather_complex
    test_all_gather_coalesced_with_empty test_all_reduce_complex_unsupported_ops test_all_reduce_full_group_max
    test_all_reduce_product test_all_reduce_sum_async test_barrier_full_group test_broadcast test_ddp_create_graph
    test_destroy_group test_gather test_gather_checks test_get_rank_size_group test_irecv test_isend_torch_profiler
    test_reduce_min test_reduce_sum_twice test_scatter_full_group test_send_recv_any_source_torch_profiler
    test_send_recv_with_tag_autograd_profiler test_static_graph_api_cpu
""")
BY_GLOOS_NAME = names("""
    test_accumulate_gradients_no_sync_allreduce_with_then_hook test_all_reduce_coalesced_sum
    test_all_gather_object_subgroup test_barrier_timeout_full_group test_batch_isend_irecv_gloo_tags test_get_future
    test_monitored_barrier_gloo_subgroup test_scatter_object_list test_sparse_all_reduce_sum
""")


def check(backend: str, wanted: list[str], present_as_gloo: bool) -> None:
    with open(os.devnull, "w") as log:
        results = run_distributed_test.run(backend, wanted, log, quiet=True, present_as_gloo=present_as_gloo)
    assert sorted(results) == sorted(wanted)
    problems = "\n".join(f"{n}: {r['result']}: {r['why']}" for n, r in results.items() if r["result"] != "passed")
    assert not problems, problems


@pytest.mark.deadline(240)
def test_a_part_of_torchs_suite():
    check("collectives", OURS, present_as_gloo=False)


@pytest.mark.deadline(240)
def test_a_part_that_torch_has_for_gloo_only():
    check("gloo", BY_GLOOS_NAME, present_as_gloo=True)


def test_the_report_says_what_is_behind():
    passed, failed, skipped = ({"result": r, "why": "line\nreason | more"} for r in ("passed", "failed", "skipped"))
    gloo = {"test_a": passed, "test_b": passed, "test_c": skipped, "test_d": passed}
    ours = {"test_a": passed, "test_b": failed, "test_c": passed, "test_d": skipped}
    assert run_distributed_test.behind(gloo, ours) == ["test_b", "test_d"]
    page = run_distributed_test.report(gloo, ours, {"test_b": failed, "test_d": passed}, "2.13.0")
    assert "of the 3 tests that gloo passes, collectives passes 2; 1 pass on collectives and not on gloo" in page
    assert "- `test_b`: NOT EXPLAINED." in page and "test_d`:" not in page
    assert "| `test_b` | passed | failed | failed | reason \\| more |" in page
