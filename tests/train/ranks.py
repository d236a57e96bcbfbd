"""Trains on two GPUs, a rank on each, with DDP or FSDP over gloo. Usage: ranks.py ddp|fsdp [--iterations N]"""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=["ddp", "fsdp"])
parser.add_argument("--iterations", type=int, default=4)
args = parser.parse_args()

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("gloo")
model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(2048, 2048), nn.ReLU())]).cuda()
if args.how == "ddp":
    model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
else:
    from torch.distributed.fsdp import fully_shard
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(64, 2048, device="cuda")
for _ in range(args.iterations):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"rank {rank} on GPU {torch.cuda.current_device()}: loss {loss.item()}", flush=True)
dist.destroy_process_group()
