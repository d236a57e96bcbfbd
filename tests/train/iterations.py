"""Trains a small network and says where its iterations are; with `--others` it also starts processes that use the GPU, or do not."""
import argparse
import ctypes
import os
import subprocess
import sys

import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--iterations", type=int, default=4)
parser.add_argument("--others", action="store_true")
args = parser.parse_args()

# Under DeepUM alone.
mark = getattr(ctypes.CDLL(None), "deepumIteration", lambda: None)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batch = torch.randn(256, 1024, device="cuda")

for iteration in range(args.iterations):
    mark()
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
mark()

if args.others:
    child = os.fork()
    if child == 0:
        # With all that libraries do at the end of a process. Autograd would wait for threads that are not here.
        os.environ["TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT"] = "0"
        ctypes.CDLL(None).exit(0)
    assert os.waitpid(child, 0)[1] == 0
    subprocess.run([sys.executable, __file__, "--iterations", "3"], check=True)
torch.cuda.synchronize()
print("done", flush=True)
