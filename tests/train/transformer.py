"""Trains a small transformer encoder in fp32, fp16 (autocast and GradScaler) or bf16."""
import argparse

import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
parser.add_argument("--iterations", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(0)
dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[args.precision]
model = nn.Sequential(
    nn.Embedding(1000, 256),
    nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), num_layers=4),
    nn.Linear(256, 1000),
).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")
tokens = torch.randint(1000, (8, 128), device="cuda")

for iteration in range(args.iterations):
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
