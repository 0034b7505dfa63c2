"""A part of torch's own distributed_test that shows every kind of operation in a minute; `make test-torch` runs it all."""

import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run_distributed_test

OURS = """
test_Backend_enum_class test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view test_all_gather
test_all_gather_coalesced_complex test_all_gather_group test_all_reduce_complex_unsupported_ops test_all_reduce_full_group_max
test_all_reduce_group_sum test_all_reduce_sum_async test_all_to_all_single_unequal_split test_all_to_all_group
test_barrier_full_group test_broadcast_group test_broadcast_object_list test_ddp_static_graph_nested_types test_gather
test_gather_object test_irecv test_isend test_nccl_backend_bool_allreduce test_new_subgroups_by_enumeration test_reduce_max
test_reduce_scatter_tensor_cuda test_scatter_group test_send_recv_any_source_torch_profiler
test_send_recv_with_tag_autograd_profiler test_undefined_grad_parity_unused_parameters
""".split()
BY_GLOOS_NAME = """
test_accumulate_gradients_no_sync_allreduce_with_then_hook test_all_reduce_coalesced_sum test_all_gather_object_subgroup
test_barrier_timeout_full_group test_batch_isend_irecv_gloo_tags test_get_future test_monitored_barrier_gloo_subgroup
test_scatter_object_list test_sparse_all_reduce_sum
""".split()


def check(backend: str, names: list[str], present_as_gloo: bool) -> None:
    path = pathlib.Path(os.devnull)
    with path.open("w") as log:
        results = run_distributed_test.run(backend, names, log, quiet=True, present_as_gloo=present_as_gloo)
    assert sorted(results) == sorted(names)
    failures = "\n".join(f"{name}: {r['why']}" for name, r in results.items() if r["result"] == "failed")
    assert not failures, failures
    passed = [name for name, r in results.items() if r["result"] == "passed"]
    skipped = {name: r["why"] for name, r in results.items() if r["result"] == "skipped"}
    assert len(passed) >= 0.8 * len(names), skipped


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
