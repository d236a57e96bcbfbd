"""Trains a transformer with deterministic algorithms; says how long an iteration takes and what came out of it, as one line of JSON."""
import argparse
import hashlib
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=8)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--iterations", type=int, default=8)
parser.add_argument("--warm-up", type=int, default=3)
args = parser.parse_args()

torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
layer = nn.TransformerEncoderLayer(args.width, args.width // 64, 4 * args.width, batch_first=True)
model = nn.Sequential(nn.TransformerEncoder(layer, args.layers), nn.Linear(args.width, args.width)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
x = torch.randn(args.batch, 256, args.width).cuda()

losses, seconds = [], []
for iteration in range(args.warm_up + args.iterations):
    torch.cuda.synchronize()
    start = time.perf_counter()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    torch.cuda.synchronize()
    seconds.append(time.perf_counter() - start)

weights = hashlib.sha256()
for parameter in model.parameters():
    weights.update(parameter.detach().cpu().numpy().tobytes())
print(json.dumps({
    "losses": losses,
    "weights_sha256": weights.hexdigest(),
    "seconds_per_iteration": sorted(seconds[args.warm_up:])[args.iterations // 2],
    "reserved_bytes": torch.cuda.max_memory_reserved(),
    "device": torch.cuda.get_device_name(),
    "torch": torch.__version__,
}), flush=True)
