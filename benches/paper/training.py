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

REMEDIES = ["none", "save_on_cpu", "checkpoint", "offload_optimizer"]


@dataclasses.dataclass
class Task:
    """A network to train: one iteration is a forward and backward pass and the steps of all optimizers."""

    parameters: list
    """Groups of parameters, one for each optimizer."""
    optimizer: Callable
    """Makes the optimizer of one group."""
    iterate: Callable
    """`iterate(steps)`: one iteration without the steps; calls `steps[n]()` when the gradients of group n are there. Answers the loss."""


class CpuState:
    """An optimizer whose state lives in pinned host memory: for each parameter in turn it comes to the device, is used, and goes back."""

    def __init__(self, make, parameters):
        self.each = [(p, make([p])) for p in parameters]
        self.home = {}

    def step(self):
        for p, optimizer in self.each:
            state = optimizer.state[p]
            for name in self.tensors(state):
                state[name] = state[name].to(p.device, non_blocking=True)
            optimizer.step()
            for name in self.tensors(state):
                if (p, name) not in self.home:
                    self.home[p, name] = torch.empty(state[name].shape, dtype=state[name].dtype, pin_memory=True)
                state[name] = self.home[p, name].copy_(state[name], non_blocking=True)

    def zero_grad(self):
        for _, optimizer in self.each:
            optimizer.zero_grad()

    @staticmethod
    def tensors(state):
        """Names of what is large in a state; counters of steps stay where they are."""
        return [name for name, value in state.items() if torch.is_tensor(value) and value.numel() > 1]


def run(module, inputs, checkpointing):
    """`module(inputs)`; with checkpointing, what it saves for the backward pass is computed again there."""
    return checkpoint(module, inputs, use_reentrant=False) if checkpointing else module(inputs)


def train(description, make_task, options=None):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--batch", type=int, required=True, help="samples in a batch")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--remedy", choices=REMEDIES, default="none", help="what is done against too little device memory")
    parser.add_argument("--status", nargs=2, metavar=("DEEPUM", "FILE"), help="at the end, write what this `deepum` says of this process")
    if options:
        options(parser)
    args = parser.parse_args()
    if args.batch < 1 or args.iterations < 1:
        parser.error("--batch and --iterations: at least 1")

    torch.manual_seed(0)
    args.checkpointing = args.remedy == "checkpoint"
    task = make_task(args)
    make = (lambda group: CpuState(task.optimizer, group)) if args.remedy == "offload_optimizer" else task.optimizer
    optimizers = [make(group) for group in task.parameters]

    def stepper(optimizer):
        def step():
            optimizer.step()
            optimizer.zero_grad()

        return step

    steps = [stepper(optimizer) for optimizer in optimizers]
    for iteration in range(args.iterations):
        saved = torch.autograd.graph.save_on_cpu(pin_memory=True) if args.remedy == "save_on_cpu" else contextlib.nullcontext()
        with saved:
            loss = task.iterate(steps)
        print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)

    if args.status:
        torch.cuda.synchronize()
        deepum, file = args.status
        clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}
        with open(file, "wb") as out:
            subprocess.run([deepum, "status", "--json", str(os.getpid())], stdout=out, env=clean, check=True)
