"""Trains with activation checkpointing."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import backward_over  # noqa: F401  waits, at the end

torch.manual_seed(0)
layers = nn.ModuleList(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True) for _ in range(4)).cuda()
optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-3)
x = torch.randn(8, 128, 256, device="cuda")

for iteration in range(4):
    y = x
    for layer in layers:
        y = checkpoint(layer, y, use_reentrant=False)
    loss = y.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
