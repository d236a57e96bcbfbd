"""Trains a small model through torch.compile: forward and backward are Triton kernels."""
import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 512)).cuda()
step = torch.compile(lambda x: (model(x) - x).square().mean())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.ones(256, 512, device="cuda")

for iteration in range(4):
    loss = step(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
