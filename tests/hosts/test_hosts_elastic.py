"""torchrun's elastic restart across hosts: a worker is killed, all are started again, and the job trains to its end.

In the first generation one rank is kept alive beyond its worker's end, as a process that a launcher lost sight of would
be. It goes on calling its old group while the second generation runs: none of its calls may succeed, and none may reach
the new group, whose sums are checked at every step.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.hosts import Hosts, torchrun

pytestmark = [pytest.mark.usefixtures("possible"), pytest.mark.deadline(180)]
KILLED, LOST = 3, 1  # ranks of the first generation

WORKER = """
import json, os, pathlib, signal, subprocess, sys, time
folder = pathlib.Path(sys.argv[1])
# Not TORCHELASTIC_RESTART_COUNT: that is of one agent, and does not count when it only follows another's restart.
generation, rank = int((folder / "killed").exists()), int(os.environ["RANK"])
lost = generation == 0 and rank == LOST
if lost and "apart" not in sys.argv:
    # The rank is a process of a session of its own, so that the end of this worker is not its end.
    sys.exit(subprocess.Popen([sys.executable, *sys.argv, "apart"], start_new_session=True).wait())

import torch, torch.distributed as dist
dist.init_process_group("collectives")
size = dist.get_world_size()
describe = dist.group.WORLD._get_backend(torch.device("cpu")).describe()

def step(number):
    for count in (5, 20_000, 400_000):
        tensor = torch.full((count,), float(rank + number + 100 * generation))
        dist.all_reduce(tensor)
        expected = size * (number + 100 * generation) + size * (size - 1) / 2
        assert (tensor == expected).all(), (generation, rank, number, tensor[0], expected)

def say(name, **what):
    (folder / name).write_text(json.dumps({"describe": describe, "pid": os.getpid(), **what}))

if generation == 0:
    try:
        for number in range(100_000):
            if rank == KILLED and number == 30:
                say("killed")
                os.kill(os.getpid(), signal.SIGKILL)
            step(number)
    except Exception as error:
        if not lost:
            raise
        # The old generation's survivor: calls its group until the new generation is done, or for a minute.
        said, succeeded, during, end = [str(error)], 0, 0, time.monotonic() + 60
        while time.monotonic() < end and len(list(folder.glob("trained.*"))) < size:
            during += len(list(folder.glob("begun.*"))) == size
            try:
                dist.all_reduce(torch.full((5,), 1e6))
                succeeded += 1
            except Exception as again:
                said.append(str(again))
            time.sleep(0.02)
        say("lost", first=said[0], others=sorted(set(said[1:])), succeeded=succeeded, during=during)
        os._exit(0)
    raise SystemExit("nobody was killed")
say(f"begun.{rank}")
for number in range(100):
    step(number)
    time.sleep(0.01)
say(f"trained.{rank}", ranks=size)
dist.barrier()
dist.destroy_process_group()
""".replace("KILLED", str(KILLED)).replace("LOST", str(LOST))


def test_a_killed_worker_is_started_again_and_the_generations_stay_apart(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    folder = tmp_path / "said"
    folder.mkdir()
    with Hosts(2) as hosts:
        outputs = torchrun(
            hosts, 2, [str(script), str(folder)],
            options=["--max-restarts=1", "--monitor-interval=0.2"], env={"COLLECTIVES_TIMEOUT_S": "60"}, timeout=150,
        )  # fmt: skip
    heard = {path.name: json.loads(path.read_text()) for path in folder.iterdir()}
    trained = [heard.get(f"trained.{rank}") for rank in range(4)]
    assert all(trained), (sorted(heard), outputs)
    assert [each["ranks"] for each in trained] == [4] * 4
    # Other processes, other listeners: an address of the first generation leads to nobody of the second.
    assert heard["killed"]["pid"] not in [each["pid"] for each in trained]
    lost = heard["lost"]
    assert lost["succeeded"] == 0 and lost["during"] > 10, lost
    assert f"rank {KILLED} (process {heard['killed']['pid']}" in lost["first"] and "died" in lost["first"], lost
    assert lost["others"] == [lost["first"]], lost
    # "listens on eth0 (10.77.0.1), ..., at 10.77.0.1:43221; ..."
    places = [each["describe"].partition(" at ")[2].partition(";")[0] for each in [*trained, lost, heard["killed"]]]
    assert len(set(places)) == 6, places
