"""Trains a small Hugging Face BERT or GPT-2 made from its configuration class (nothing is downloaded)."""
import argparse

import torch
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", choices=["bert", "gpt2"])
parser.add_argument("--iterations", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(0)
if args.model == "bert":
    model = BertForMaskedLM(BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024))
else:
    model = GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=4, n_head=4))
model = model.cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(1000, (4, 128), device="cuda")

for iteration in range(args.iterations):
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
