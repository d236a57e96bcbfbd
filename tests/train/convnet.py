"""Trains a small residual convolutional network: strided, grouped and transposed convolutions, batch norm, pooling."""
import argparse

import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--iterations", type=int, default=3)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--no-cudnn", action="store_true", help="PyTorch's own convolutions and batch norm")
parser.add_argument("--benchmark", action="store_true", help="torch.backends.cudnn.benchmark")
parser.add_argument("--deterministic", action="store_true", help="torch.backends.cudnn.deterministic")
parser.add_argument("--no-tf32", action="store_true", help="fp32 convolutions in full precision")
parser.add_argument("--channels-last", action="store_true")
parser.add_argument("--precision", choices=["fp32", "fp16", "bf16"], default="fp32")
args = parser.parse_args()

torch.manual_seed(0)
torch.backends.cudnn.enabled = not args.no_cudnn
torch.backends.cudnn.benchmark = args.benchmark
torch.backends.cudnn.deterministic = args.deterministic
torch.backends.cudnn.allow_tf32 = not args.no_tf32


class Block(nn.Module):
    def __init__(self, channels, stride=1, groups=1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, stride, padding=1, groups=groups, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(channels, channels, 1, stride)

    def forward(self, x):
        return nn.functional.relu(self.body(x) + self.shortcut(x))


volume = nn.Conv3d(4, 8, 3).cuda()(torch.randn(2, 4, 8, 8, 8, device="cuda", requires_grad=True))
volume.sum().backward()
sequence = nn.Conv1d(4, 8, 3).cuda()(torch.randn(2, 4, 32, device="cuda", requires_grad=True))
sequence.sum().backward()
print("1-d and 3-d:", tuple(sequence.shape), tuple(volume.shape))

model = nn.Sequential(
    nn.Conv2d(3, 32, 7, stride=2, padding=3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
    Block(32), Block(32, stride=2), Block(32, groups=4),
    nn.ConvTranspose2d(32, 32, 2, stride=2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
).cuda()
images = torch.randn(args.batch, 3, 64, 64, device="cuda")
if args.channels_last:
    model, images = model.to(memory_format=torch.channels_last), images.to(memory_format=torch.channels_last)
labels = torch.randint(10, (args.batch,), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
dtype = {"fp32": None, "fp16": torch.float16, "bf16": torch.bfloat16}[args.precision]
scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "fp16")

for iteration in range(args.iterations):
    with torch.autocast("cuda", dtype=dtype, enabled=dtype is not None):
        loss = nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)

model.eval()
with torch.no_grad():
    print("inference:", tuple(model(images).shape))
torch.cuda.synchronize()
