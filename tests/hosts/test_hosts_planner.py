"""The choice of the algorithm between hosts: measured, kept, shown; and that all ranks choose alike."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

import tests.hosts
from tests.hosts import Hosts, run_ranks_on_hosts, torchrun
from tests.hosts.rig import CommandFailed, search_path

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(200)]


def command(hosts: Hosts, folder: Path, *arguments: str) -> list[str]:
    """Run the ``collectives`` command as a user does, under torchrun on all hosts; the outputs."""
    script = shutil.which("collectives", path=search_path())
    assert script is not None
    return torchrun(hosts, 1, [script, *arguments], options=["--no-python"], env={"COLLECTIVES_CACHE": str(folder)})


def test_what_was_tuned_is_kept_for_the_next_job(tmp_path: Path) -> None:
    with Hosts(2) as hosts:
        text = "\n".join(command(hosts, tmp_path, "info", "--plan", "all_reduce", "64KiB"))
        assert "links measured: " in text, text
        assert re.search(r"\* all_reduce_\w+: .*; [\d.]+ (us|ms) predicted", text), text
        assert not list(tmp_path.iterdir())

        text = "\n".join(command(hosts, tmp_path, "tune", "--max-size", "64KiB"))
        files = list(tmp_path.iterdir())
        assert [file.name for file in files] == ["host0-eth0-2x1.links"], files
        assert f"kept in {files[0]}" in text and "  all_reduce from 8 B: all_reduce_" in text, text
        kept = files[0].read_text()
        assert kept.startswith("collectives-links 1\norigin tuned\n")
        for row in ("all_reduce_exchange", "all_reduce_direct", "all_to_all_pairwise", "barrier_direct"):
            assert re.search(rf"^flat factor {row} \d+ [\d.e+-]+$", kept, re.MULTILINE), kept

        text = "\n".join(command(hosts, tmp_path, "info", "--plan", "all_reduce", "64KiB"))
        assert "links tuned: " in text, text

        files[0].write_text("collectives-links 1\nflat costs what\n")
        text = "\n".join(command(hosts, tmp_path, "info", "--plan", "all_reduce", "64KiB"))
        assert f"{files[0]} is not understood" in text and "links measured: " in text, text


def plans(rank: int, world_size: int, links: str) -> tuple[str, str, list[str]]:
    import numpy as np

    os.environ["COLLECTIVES_LINKS"] = links if rank == 0 else "measure"  # rank 0's counts
    os.environ["COLLECTIVES_CACHE"] = "/nonexistent/cache"
    comm = tests.hosts.communicator()
    sizes = [2**power for power in range(1, 22)]
    shown = [comm.describe_plan("all_reduce", "float32", count) for count in sizes]
    for count in sizes:
        array = np.ones(count, np.float32)
        comm.all_reduce(array)
        assert (array == world_size).all()
    part = comm.split(0 if rank < 2 else 1, rank)
    assert part is not None
    array = np.ones(1000, np.float32)
    part.all_reduce(array)
    assert (array == part.world_size).all()
    return comm.describe(), part.describe(), shown


@pytest.mark.parametrize("links", ["measure", "assume"])
@pytest.mark.parametrize("ranks", [[1, 1, 1], [2, 2]], ids=str)
def test_all_ranks_predict_alike(links: str, ranks: list[int]) -> None:
    with Hosts(len(ranks)) as hosts:
        found = run_ranks_on_hosts(plans, hosts, ranks, links, backend=None)
    for group, part, shown in found:
        assert f"links {links}d: " in group
        assert shown == found[0][2]
        if ranks == [1, 1, 1] and "transport tcp" in part:
            assert f"links {links}d: " in part  # taken over, not measured again
    assert "predicted" in found[0][2][0]
    assert ("two levels" in found[0][2][0]) == (ranks == [2, 2])


def test_tune_wants_a_launcher_and_several_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    from collectives import cli

    with pytest.raises(SystemExit):
        cli.main(["tune"])
    assert "torchrun" in capsys.readouterr().err
    with Hosts(1) as hosts:
        with pytest.raises(CommandFailed, match="all ranks of group 'world' are on one host"):
            torchrun(hosts, 2, ["-m", "collectives.cli", "tune"])
