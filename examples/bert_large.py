"""Trains BERT-Large (masked language model, 335 M parameters) on random tokens with AdamW, fp32."""
import argparse

import torch
from transformers import BertConfig, BertForMaskedLM

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--length", type=int, default=512, help="tokens in a sequence")
parser.add_argument("--iterations", type=int, default=6)
args = parser.parse_args()

torch.manual_seed(0)
config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
                    attn_implementation="eager")
with torch.device("cuda"):
    model = BertForMaskedLM(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
tokens = torch.randint(config.vocab_size, (args.batch, args.length))

for iteration in range(args.iterations):
    batch = tokens.cuda()
    loss = model(input_ids=batch, labels=batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"iteration {iteration}: loss {loss.item():.4f}", flush=True)
