"""Trains GPT-2 XL (1.56 B parameters) on random tokens with AdamW, fp32."""
import argparse

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=3)
parser.add_argument("--length", type=int, default=1024, help="tokens in a sequence")
parser.add_argument("--iterations", type=int, default=6)
args = parser.parse_args()

torch.manual_seed(0)
config = GPT2Config(n_embd=1600, n_layer=48, n_head=25)
with torch.device("cuda"):
    model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(config.vocab_size, (args.batch, args.length))

for iteration in range(args.iterations):
    batch = tokens.cuda()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
