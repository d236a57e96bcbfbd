"""What the networks of the paper's evaluation have in common: the command line, the training loop, and the remedies
that a PyTorch user has today against too little device memory.

A network's file gives `train` a function that makes a `Task` from the command line. Weights are random. Data have the
shape of the data set named beside them; pixels are zeros, because nothing reads them on the emulated device. What is
looked up (tokens, categories) is random and new in each iteration, because the device reads it.
"""
import argparse
import contextlib
import dataclasses
import os
import subprocess
from collections.abc import Callable

import torch
from torch.utils.checkpoint import checkpoint

import backward_over  # noqa: F401  waits, at the end

REMEDIES = ["none", "save_on_cpu", "checkpoint", "offload_optimizer", "checkpoint_and_offload"]


@dataclasses.dataclass
class Task:
    """A network to train: one iteration is a forward and backward pass and the steps of all optimizers."""

    parameters: list
    """Groups of parameters, one for each optimizer."""
    optimizer: Callable
    """Makes the optimizer of one group."""
    iterate: Callable
    """`iterate(steps)`: one iteration without the steps; calls `steps[n]()` when the gradients of group n are there. Answers the loss."""


class HostOptimizer:
    """An optimizer on the host: each gradient goes there as soon as the backward pass has made it, on a stream beside the one that computes, and
    leaves the device; a step waits for them and sends the parameters back on that stream. Both ways through pinned memory.

    The host's own arithmetic and the optimizer's state are left out, as kernels of the emulated device compute nothing: they would cost
    real time and memory, but no virtual time and nothing on the device.
    """

    def __init__(self, parameters):
        self.beside = torch.cuda.Stream()
        self.homes = {p: [torch.empty(p.shape, dtype=p.dtype, pin_memory=True) for _ in ("gradient", "parameter")] for p in parameters}
        self.gone = set()
        for p in parameters:
            p.register_post_accumulate_grad_hook(self.gradient_out)

    def gradient_out(self, p):
        self.beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.beside):
            self.homes[p][0].copy_(p.grad, non_blocking=True)
        self.gone.add(p)
        # Its memory is not used again before the copy is over.
        p.grad.record_stream(self.beside)
        p.grad = None

    @torch.no_grad()
    def step(self):
        self.beside.wait_stream(torch.cuda.current_stream())
        self.beside.synchronize()
        with torch.cuda.stream(self.beside):
            for p, (_, parameter) in self.homes.items():
                if p in self.gone:
                    p.copy_(parameter, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self.beside)
        self.gone.clear()

    def zero_grad(self):
        """Gradients have left already."""


def run(module, inputs, checkpointing):
    """`module(inputs)`; with checkpointing, what it saves for the backward pass is computed again there."""
    return checkpoint(module, inputs, use_reentrant=False) if checkpointing else module(inputs)


def change(text):
    """ITERATION:BATCH of the command line."""
    iteration, batch = map(int, text.split(":"))
    return iteration, batch


def train(description, make_task, options=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", type=int, required=True, help="samples in a batch")
    parser.add_argument("--iterations", type=int, default=6, help="6; with 0 the model is made and nothing else")
    parser.add_argument(
        "--change", type=change, action="append", default=[], metavar="ITERATION:BATCH", help="from this iteration on another batch, at most --batch; several times"
    )
    parser.add_argument("--remedy", choices=REMEDIES, default="none", help="what is done against too little device memory")
    parser.add_argument("--status", nargs=2, metavar=("DEEPUM", "FILE"), help="at the end, write what this `deepum` says of this process")
    if options:
        options(parser)
    args = parser.parse_args()
    if args.batch < 1 or args.iterations < 0:
        parser.error("--batch: at least 1; --iterations: at least 0")
    if any(not (0 <= iteration < args.iterations and 1 <= batch <= args.batch) for iteration, batch in args.change):
        parser.error("--change: one of the --iterations, which count from 0, and a batch of 1 to --batch")
    changes = dict(args.change)

    torch.manual_seed(0)
    args.checkpointing = args.remedy in ("checkpoint", "checkpoint_and_offload")
    task = make_task(args)
    make = HostOptimizer if args.remedy in ("offload_optimizer", "checkpoint_and_offload") else task.optimizer
    optimizers = [make(group) for group in task.parameters]

    def stepper(optimizer):
        def step():
            optimizer.step()
            optimizer.zero_grad()

        return step

    steps = [stepper(optimizer) for optimizer in optimizers]
    for iteration in range(args.iterations):
        args.batch = changes.get(iteration, args.batch)
        saved = torch.autograd.graph.save_on_cpu(pin_memory=True) if args.remedy == "save_on_cpu" else contextlib.nullcontext()
        with saved:
            loss = task.iterate(steps)
        print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)

    torch.cuda.synchronize()
    if args.status:
        deepum, file = args.status
        clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        with open(file, "wb") as out:
            subprocess.run([deepum, "status", "--json", str(os.getpid())], stdout=out, env=clean, check=True)
