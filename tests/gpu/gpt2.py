"""Trains GPT-2 XL (transformers) on random tokens with deterministic algorithms; as train.py says what came out of it, as one line of JSON."""
import argparse
import hashlib
import json
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch
from transformers import GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=4, help="sequences of 1,024 tokens (default: %(default)s)")
parser.add_argument("--dropout", type=float, default=0.1, help="its probability (default: %(default)s)")
parser.add_argument("--layers", type=int, default=48, help="instead of its 48")
parser.add_argument("--iterations", type=int, default=4, help="the last so many count (default: %(default)s)")
parser.add_argument("--warm-up", type=int, default=4, help="and as many come before (default: %(default)s)")
args = parser.parse_args()

torch.use_deterministic_algorithms(True)
# What it would fill is not read, and takes time.
torch.utils.deterministic.fill_uninitialized_memory = False
torch.manual_seed(0)
config = GPT2Config(n_embd=1600, n_layer=args.layers, n_head=25, attn_implementation="eager", **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), args.dropout))
with torch.device("cuda"):
    model = GPT2LMHeadModel(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
# By the GPU's clock, which on an emulated one is virtual.
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
losses, seconds = [], []
for iteration in range(args.warm_up + args.iterations):
    tokens = torch.randint(config.vocab_size, (args.batch, 1024)).cuda()
    torch.cuda.synchronize()
    start.record()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    end.record()
    torch.cuda.synchronize()
    seconds.append(start.elapsed_time(end) / 1000)


def checksum(parameter):
    """Of its bits, each word by its place; the GPU adds them up, since six gigabytes would take the host longer than the training."""
    words = parameter.detach().reshape(-1).view(torch.int32).long()
    return (words * torch.arange(1, 2 * words.numel(), 2, device=words.device)).sum()


sums = torch.stack([checksum(parameter) for parameter in model.parameters()])
print(json.dumps({
    "losses": losses,
    "weights_sha256": hashlib.sha256(sums.cpu().numpy().tobytes()).hexdigest(),
    "all_seconds": seconds,
    "seconds_per_iteration": sorted(seconds[-args.iterations:])[args.iterations // 2],
    "reserved_bytes": torch.cuda.max_memory_reserved(),
    "device": torch.cuda.get_device_name(),
    "torch": torch.__version__,
}), flush=True)
