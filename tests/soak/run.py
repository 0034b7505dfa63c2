"""Random operations on random groups, with ranks killed now and then, for as long as asked.

``python tests/soak/run.py --minutes 60``; a failure prints the command that repeats its round. Each round starts ranks,
runs operations (tests/soak/operations.py) on the world and on sub-groups, and checks results, descriptors, and that the
survivors of a killed rank name it within a second.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import sys
import tempfile
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import operations

from collectives import testing

WORLD_SIZES = (1, 2, 2, 3, 4, 5, 8)
KILL_SHARE = 0.25
DETECTION_S = 1.0
ROUND_TIMEOUT_S = 300.0


def healthy_round(rank: int, world_size: int, seed: int, count: int) -> int:
    """Run operations on the world and on groups split from it; return the number of descriptors leaked."""
    world = testing.communicator()
    world.barrier()
    before = len(os.listdir("/proc/self/fd"))
    rng = np.random.default_rng(seed)
    index = 0
    while index < count:
        colors = [int(color) for color in rng.integers(0, 2, world_size)] if rng.random() < 0.2 else None
        group = world if colors is None else world.split(colors[rank])
        assert group is not None
        pending = []
        for _ in range(int(rng.integers(1, 9))):
            # Sub-groups of one split draw the same numbers: what differs is their size.
            pending.append(operations.start(group, operations.Draw(seed, index, group.rank, group.world_size)))
            index += 1
        for finish in pending:
            finish()
        if group is not world:
            group.close()
    world.barrier()
    leaked = len(os.listdir("/proc/self/fd")) - before
    world.close()
    return leaked


def killed_round(rank: int, world_size: int, seed: int, count: int, victim: int, note: str) -> str:
    """Run operations until one rank kills itself; return the survivor's complaint about what it got to see, or ''."""
    from collectives import PeerFailedError

    world = testing.communicator()
    moment = int(np.random.default_rng([seed, 99]).integers(count))
    try:
        for index in range(10**6):
            if rank == victim and index == moment:
                pathlib.Path(note).write_text(str(time.monotonic_ns()))
                os.kill(os.getpid(), signal.SIGKILL)
            operations.start(world, operations.Draw(seed, index, rank, world_size))()
    except PeerFailedError as error:
        seconds = (time.monotonic_ns() - int(pathlib.Path(note).read_text())) / 1e9
        if seconds > DETECTION_S:
            return f"rank {rank} noticed after {seconds:.2f} s: {error}"
        if f"rank {victim}" not in str(error) and f"ranks {victim}" not in str(error):
            return f"rank {rank} was not told who died (rank {victim}): {error}"
    return ""


def run_round(seed: int, count: int) -> str:
    """Run the round of one seed; return what it was. Raises AssertionError with what went wrong."""
    rng = np.random.default_rng(seed)
    world_size = int(rng.choice(WORLD_SIZES))
    if world_size > 1 and rng.random() < KILL_SHARE:
        victim = int(rng.integers(world_size))
        with tempfile.TemporaryDirectory(prefix="collectives-soak-") as directory:
            note = os.path.join(directory, "killed_at")
            complaints = testing.run_ranks(
                killed_round,
                world_size,
                seed,
                count,
                victim,
                note,
                backend=None,
                timeout=ROUND_TIMEOUT_S,
                expect_killed=[victim],
            )
        wrong = [complaint for complaint in complaints if complaint]
        assert not wrong, "\n".join(wrong)
        return f"{world_size} ranks, rank {victim} killed"
    leaked = testing.run_ranks(healthy_round, world_size, seed, count, backend=None, timeout=ROUND_TIMEOUT_S)
    assert not any(leaked), f"descriptors leaked, by rank: {leaked}"
    return f"{world_size} ranks, {count} operations"


def main() -> int:
    """Run rounds until the time is up or one fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after this long (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=10**9, help="stop after this many rounds")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first round; the next ones follow (default: drawn)"
    )
    parser.add_argument("--operations", type=int, default=200, help="a round (default %(default)s)")
    args = parser.parse_args()

    seed = time.time_ns() % 10**9 if args.seed is None else args.seed
    end = time.monotonic() + 60 * args.minutes
    done = 0
    while done < args.rounds and time.monotonic() < end:
        try:
            what = run_round(seed + done, args.operations)
        except AssertionError as error:
            print(
                f"{error}\n\nTo repeat it: python tests/soak/run.py --seed {seed + done} --rounds 1 "
                f"--operations {args.operations}"
            )
            print(f"{done} passed, 1 failed")
            return 1
        done += 1
        print(f"round {done}, seed {seed + done - 1}: {what}", flush=True)
    print(f"{done} passed, 0 failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
