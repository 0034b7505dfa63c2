"""Requests and messages: order, overlap, life of the arrays, any-source, and what a small message may overtake."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from collectives.testing import communicator, run_ranks


def many_collectives_in_flight(rank: int, world_size: int) -> bool:
    comm = communicator()
    requests, arrays, wanted = [], [], []
    for number in range(200):
        length = (1, 1000, 200_000)[number % 3]
        array = np.full(length, float(rank + number))
        if number % 4 == 3:
            requests.append(comm.broadcast(array, root=number % world_size, async_op=True))
            wanted.append(float(number % world_size + number))
        else:
            requests.append(comm.all_reduce(array, async_op=True))
            wanted.append(world_size * number + sum(range(world_size)))
        arrays.append(array)
    assert requests[-1].wait() is arrays[-1]
    assert all(request.done() for request in requests), "collectives of a communicator end in the order of issue"
    assert requests[0].result is arrays[0]
    assert requests[0].exception() is None
    assert requests[2].duration > 0
    assert comm.sequence == 200
    comm.close()
    return all((array == value).all() for array, value in zip(arrays, wanted, strict=True))


@pytest.mark.parametrize("world_size", [2, 3])
def test_collectives_end_in_the_order_of_issue(world_size: int) -> None:
    assert run_ranks(many_collectives_in_flight, world_size, backend=None) == [True] * world_size


def sync_after_async(rank: int, world_size: int) -> tuple[bool, bool]:
    comm = communicator()
    large = np.ones(4_000_000, np.float32)
    request = comm.all_reduce(large, async_op=True)
    small = comm.all_reduce(np.ones(1))  # must wait for its turn
    ended = request.done()
    comm.close()
    return ended, bool(small[0] == world_size and (large == world_size).all())


def test_a_synchronous_call_waits_for_those_before_it() -> None:
    assert run_ranks(sync_after_async, 2, backend=None) == [(True, True)] * 2


def dropped_requests(rank: int, world_size: int) -> int:
    comm = communicator()
    probe = np.zeros(8, np.float32)
    alive = []
    for _ in range(30):
        array = np.ones(300_000, np.float32)
        alive.append(weakref.ref(array))
        comm.all_reduce(array, async_op=True)  # nobody keeps the request nor the array
        del array
    comm.all_reduce(probe)  # everything before it has ended
    comm.all_reduce(probe)
    gc.collect()
    comm.close()
    return sum(reference() is not None for reference in alive)


def test_a_dropped_request_keeps_its_arrays_until_it_has_ended_and_no_longer() -> None:
    assert run_ranks(dropped_requests, 2, backend=None) == [0, 0]


def cost_of_dropping(rank: int, world_size: int) -> list[float]:
    comm = communicator()
    costs = []
    for count in (1000, 10_000, 1000, 10_000):
        arrays = np.full((count, 1), -1.0)
        comm.barrier()
        if rank == 1:
            comm.barrier()
        began_s = time.thread_time()
        for number in range(count):
            if rank == 0:
                comm.recv(arrays[number], 1, tag=5, async_op=True)
            else:
                comm.send(np.full(1, float(number)), 0, tag=5, async_op=True)
        costs.append((time.thread_time() - began_s) / count)
        if rank == 0:
            comm.barrier()
        comm.barrier()
        while rank == 0 and arrays[-1] < 0:  # of one channel: the last one comes last
            time.sleep(0.001)
        assert rank == 1 or (arrays[:, 0] == np.arange(count)).all()
    comm.barrier()  # closing gives up messages that have not gone yet, and rank 1 has waited for none of its sends
    comm.close()
    return costs


def test_a_dropped_request_costs_the_same_however_many_there_are() -> None:
    few, many, few_again, many_again = run_ranks(cost_of_dropping, 2, backend=None)[0]
    assert min(many, many_again) < 4 * min(few, few_again)  # looking at all of them in every call made it eight times


def strided_async(rank: int, world_size: int) -> str:
    comm = communicator()
    out = np.zeros(3)
    comm.all_reduce(np.arange(6.0)[::2], out=out, async_op=True).wait()  # a strided input is packed
    assert out.tolist() == [0, 2 * world_size, 4 * world_size]
    try:
        comm.all_reduce(np.arange(6.0)[::2], async_op=True)
    except ValueError as error:
        comm.close()
        return str(error)
    return "nothing was raised"


def test_a_strided_output_is_refused_when_asynchronous() -> None:
    assert all("strided output" in text for text in run_ranks(strided_async, 2, backend=None))


def gil_is_released(rank: int, world_size: int) -> float:
    comm = communicator()
    comm.barrier()
    if rank == 1:
        time.sleep(0.6)
        comm.barrier()
        comm.close()
        return 0.0
    beats: list[float] = []
    stop = threading.Event()

    def beat() -> None:
        while not stop.is_set():
            beats.append(time.monotonic())
            time.sleep(0.01)

    thread = threading.Thread(target=beat)
    thread.start()
    comm.barrier()
    stop.set()
    thread.join()
    comm.close()
    return max(b - a for a, b in zip(beats, beats[1:], strict=False))


def test_other_threads_run_while_a_call_waits() -> None:
    longest_gap_s = run_ranks(gil_is_released, 2, backend=None)[0]
    assert longest_gap_s < 0.3, "the waiting call kept the GIL"


def two_threads(rank: int, world_size: int) -> bool:
    comms = [communicator(), None]
    comms[1] = comms[0].split(0)
    sums = [0.0, 0.0]

    def work(index: int) -> None:
        for _ in range(300):
            sums[index] += float(comms[index].all_reduce(np.ones(10))[0])

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for comm in comms:
        comm.close()
    return sums == [300.0 * world_size] * 2


def test_two_communicators_on_two_threads() -> None:
    assert run_ranks(two_threads, 2, backend=None) == [True, True]


# ---- messages --------------------------------------------------------------------------------------------------------


def random_messages(rank: int, world_size: int, count: int) -> int:
    """Every rank sends to every other; receives are posted in an order of their own."""
    comm = communicator()
    generator = np.random.default_rng(5)  # the same on all ranks
    plan = [
        (int(source), int((source + shift) % world_size), int(tag), int(size))
        for source, shift, tag, size in zip(
            generator.integers(0, world_size, count),
            generator.integers(1, world_size, count),
            generator.integers(0, 50, count),
            generator.choice([1, 8, 100, 3000, 20_000], count, p=[0.3, 0.3, 0.2, 0.15, 0.05]),
            strict=True,
        )
    ]
    sends = [(number, row) for number, row in enumerate(plan) if row[0] == rank]
    receives = [(number, row) for number, row in enumerate(plan) if row[1] == rank]
    keys = np.random.default_rng(rank).random(200)  # shuffles (peer, tag) pairs, keeps the order within each
    receives.sort(key=lambda item: keys[(item[1][0] * 50 + item[1][2]) % 200])
    arrays = {number: np.zeros(row[3], np.int32) for number, row in receives}
    requests = [comm.recv(arrays[number], row[0], tag=row[2], async_op=True) for number, row in receives]
    for number, (_, destination, tag, size) in sends:
        requests.append(comm.send(np.full(size, number, np.int32), destination, tag=tag, async_op=True))
    for request in requests:
        request.wait()
    comm.barrier()
    comm.close()
    return sum(int((arrays[number] != number).any()) for number in arrays)


def test_ten_thousand_messages_in_random_order() -> None:
    assert run_ranks(random_messages, 4, 10_000, backend=None, timeout=100) == [0] * 4


def overtaking(rank: int, world_size: int) -> bool:
    comm = communicator()
    large, small = np.zeros(1_000_000), np.zeros(1)
    ok = True
    if rank == 0:
        pending = comm.send(large + 1, 1, tag=1, async_op=True)
        comm.send(small + 2, 1, tag=2)  # must not wait until somebody takes the 8 MB
        pending.wait()
    else:
        comm.recv(small, 0, tag=2)  # the large one is not even asked for yet
        ok = small[0] == 2
        comm.recv(large, 0, tag=1)
        ok = bool(ok and (large == 1).all())
    comm.close()
    return ok


def test_a_small_message_overtakes_a_large_one() -> None:
    assert run_ranks(overtaking, 2, backend=None, timeout=30) == [True, True]


def any_source(rank: int, world_size: int) -> list[int]:
    comm = communicator()
    seen = []
    if rank == 0:
        array = np.zeros(1, np.int64)
        for number in range(2 * (world_size - 1)):
            if number % 2:
                source = comm.recv(array)
            else:
                request = comm.recv(array, None, async_op=True)
                source = request.wait()
                assert request.result == source
            assert array[0] == source * 10
            seen.append(source)
    else:
        for _ in range(2):
            comm.send(np.array([rank * 10]), 0)
    comm.close()
    return sorted(seen)


def test_receive_from_any_source() -> None:
    assert run_ranks(any_source, 4, backend=None)[0] == [1, 1, 2, 2, 3, 3]


def both_send_first(rank: int, world_size: int) -> bool:
    comm = communicator()
    out, into = np.full(2_000_000, float(rank)), np.zeros(2_000_000)
    send = comm.send(out, 1 - rank, async_op=True)
    comm.recv(into, 1 - rank)
    send.wait()
    comm.send(np.zeros(4), rank)  # to oneself, small
    comm.recv(np.zeros(4), rank)
    comm.close()
    return bool((into == 1 - rank).all())


def test_ranks_that_send_to_each_other_do_not_block() -> None:
    assert run_ranks(both_send_first, 2, backend=None) == [True, True]


def wrong_size(rank: int, world_size: int) -> str:
    comm = communicator(timeout=20)
    try:
        if rank == 0:
            comm.send(np.zeros(10), 1)
            comm.barrier()
        else:
            comm.recv(np.zeros(11), 0)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def test_a_receive_of_another_size_is_an_error() -> None:
    text = run_ranks(wrong_size, 2, backend=None)[1]
    assert "80" in text
    assert "88" in text
