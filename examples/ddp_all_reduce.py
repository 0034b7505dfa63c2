"""A data-parallel model on the collectives backend; copy it and put your own model in.

    torchrun --nproc-per-node 2 examples/ddp_all_reduce.py
    torchrun --nproc-per-node 2 examples/ddp_all_reduce.py gloo      # the same job on gloo: one word differs

With DDP_DISABLE_COMM_MEM=0 in the environment, DDP keeps its gradient buckets in the backend's shared memory, and the
all_reduce moves no extra copy.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend = sys.argv[1] if len(sys.argv) > 1 else "collectives"
if backend == "collectives":
    import collectives  # noqa: F401  registers the backend; an installed package is found without this line too

torch.set_num_threads(1)
dist.init_process_group(backend)  # rank, world size and address come from torchrun
rank, ranks = dist.get_rank(), dist.get_world_size()

# A collective by hand: every rank ends with the sum 0 + 1 + ... + (ranks - 1).
total = torch.tensor([float(rank)])
dist.all_reduce(total)
if total.item() != ranks * (ranks - 1) / 2:
    raise SystemExit(f"rank {rank}: all_reduce gave {total.item()}")

# Data parallel: each rank has its own samples of y = x . (1, 2, 3, 4), and DDP averages the gradients.
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
samples = torch.Generator().manual_seed(rank)
for step in range(60):
    x = torch.randn(64, 4, generator=samples)
    loss = torch.nn.functional.mse_loss(model(x).squeeze(1), x @ torch.tensor([1.0, 2.0, 3.0, 4.0]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0 and step % 20 == 19:
        print(f"{backend}, {ranks} ranks, step {step + 1}: loss {loss.item():.6f}", flush=True)

if rank == 0:
    print("weights:", [round(weight, 3) for weight in model.module.weight[0].tolist()], flush=True)
dist.destroy_process_group()
