"""Trains a network with deterministic algorithms, once in each precision; says how long an iteration takes and what came out of it, as one line of JSON."""
import argparse
import hashlib
import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from torch import nn

PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def transformer(scale):
    width = 128 * scale
    layer = nn.TransformerEncoderLayer(width, 2 * scale, 4 * width, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 8, enable_nested_tensor=False), nn.Linear(width, width))
    return model, torch.randn(8, 256, width)


def mlp(scale):
    width = 512 * scale
    layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(512, width)


def convnet(scale):
    layers, channels = [], 3
    for width in (8 * scale, 16 * scale, 32 * scale):
        for _ in range(3):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))
    return model, torch.randn(64, 3, 64, 64)


MODELS = {f.__name__: f for f in (transformer, mlp, convnet)}

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model", choices=MODELS, default="transformer")
parser.add_argument("--precisions", default="fp32", help="of fp32 and bf16, with commas (default: %(default)s)")
parser.add_argument("--scale", type=int, default=8, help="eighths of the usual width (default: %(default)s)")
parser.add_argument("--iterations", type=int, default=8)
parser.add_argument("--warm-up", type=int, default=3)
args = parser.parse_args()

torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
losses, weights, seconds = [], hashlib.sha256(), []
# By the GPU's clock, which on an emulated one is virtual.
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
for precision in args.precisions.split(","):
    torch.manual_seed(0)
    model, x = MODELS[args.model](args.scale)
    model, x = model.to("cuda", PRECISIONS[precision]), x.to("cuda", PRECISIONS[precision])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for iteration in range(args.warm_up + args.iterations):
        torch.cuda.synchronize()
        start.record()
        loss = model(x).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1000)
    for parameter in model.parameters():
        weights.update(parameter.detach().float().cpu().numpy().tobytes())
    del model, x, optimizer, loss, parameter

print(json.dumps({
    "losses": losses,
    "weights_sha256": weights.hexdigest(),
    "all_seconds": seconds,
    # Of the last precision: what was learned of the others is no use to it.
    "seconds_per_iteration": sorted(seconds[-args.iterations:])[args.iterations // 2],
    "reserved_bytes": torch.cuda.max_memory_reserved(),
    "device": torch.cuda.get_device_name(),
    "torch": torch.__version__,
}), flush=True)
