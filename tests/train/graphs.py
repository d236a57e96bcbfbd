"""Trains a multi-layer perceptron through CUDA graphs: `--how step` captures a whole training step, `callables` each block of the
model, forward and backward, `compiled` leaves the capturing to torch.compile."""
import argparse
import hashlib

import torch
from torch import nn

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--how", choices=["step", "callables", "compiled"], default="step")
parser.add_argument("--iterations", type=int, default=6)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--digest", action="store_true", help="say what became of the weights")
args = parser.parse_args()


def block(width):
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width))


torch.manual_seed(0)
model = nn.Sequential(*(block(args.width) for _ in range(args.layers))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
inputs = torch.randn(args.batch, args.width, device="cuda")
targets = torch.randn(args.batch, args.width, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss


if args.how == "step":
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
    run = graph.replay
elif args.how == "callables":
    samples = tuple((torch.randn_like(inputs, requires_grad=True),) for _ in range(args.layers))
    model = nn.Sequential(*torch.cuda.make_graphed_callables(tuple(model), samples))
    run = step
else:
    forward = torch.compile(lambda x: model(x), mode="reduce-overhead")

    def run():
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.mse_loss(forward(inputs), targets)
        loss.backward()
        optimizer.step()

for iteration in range(args.iterations):
    inputs.normal_()
    run()
    torch.cuda.synchronize()
    print(f"iteration {iteration}", flush=True)

print(f"{torch.cuda.max_memory_reserved() / 2**20:.1f} MiB at most")
if args.digest:
    weights = hashlib.sha256()
    for parameter in model.parameters():
        weights.update(parameter.detach().cpu().numpy().tobytes())
    print(f"weights {weights.hexdigest()}")
