"""Trains a multi-layer perceptron on random data, first with SGD, then with AdamW."""
import argparse

import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--iterations", type=int, default=5)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--batch", type=int, default=256)
args = parser.parse_args()

torch.manual_seed(0)
inputs = torch.randn(args.batch, 256, device="cuda")
targets = torch.randint(10, (args.batch,), device="cuda")

for make_optimizer in (
    lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
):
    model = nn.Sequential(
        nn.Linear(256, args.width), nn.ReLU(),
        nn.Linear(args.width, args.width), nn.ReLU(), nn.Dropout(0.1),
        nn.Linear(args.width, 10),
    ).cuda()
    optimizer = make_optimizer(model.parameters())
    for iteration in range(args.iterations):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{type(optimizer).__name__} iteration {iteration}: loss {loss.item():.4f}", flush=True)

torch.cuda.synchronize()
print(f"{torch.cuda.max_memory_allocated() / 2**20:.1f} MiB at most")
