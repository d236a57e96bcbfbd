"""Answers requests with a large language model of random weights: a prompt, then tokens one by one, greedily, with a cache of keys and values.

Made for the emulated device, where what is computed does not matter: weights are made on the device and filled with one number, and nothing of the
model's size is ever on the host. So the loop is its own: Hugging Face's `generate` asks after each token whether all sequences have ended, and on the emulated
device, where comparisons hold as between zeros, they have.

The experts of the mixture (Mixtral's architecture, smaller) are chosen by the host's random generator instead of by the router's output, which is not computed there
either: for each token two of eight, the first ones more often than the last (weights 1, 1/2, ..., 1/8). The router itself runs.

Each request is an iteration of the trace that DeepUM records.
"""
import argparse
import ctypes
import random

import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MixtralConfig

MODELS = {
    # 6.7 billion parameters: Llama 2's (arXiv 2307.09288).
    "llama-7b": LlamaConfig(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                            vocab_size=32000),
    # 1.6 billion.
    "gpt2-xl": GPT2Config(n_embd=1600, n_layer=48, n_head=25),
    # 4.7 billion, of which 1.4 are used for a token.
    "moe": MixtralConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16,
                         num_key_value_heads=4, vocab_size=32000, num_local_experts=8, num_experts_per_tok=2),
}

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model", choices=MODELS)
parser.add_argument("--requests", type=int, default=3)
parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
parser.add_argument("--tokens", type=int, default=32, help="tokens of an answer")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--seed", type=int, default=0, help="of the draws of experts")
args = parser.parse_args()

# Under DeepUM alone.
mark = getattr(ctypes.CDLL(None), "deepumIteration", lambda: None)


class Experts(nn.Module):
    """As Mixtral's, each with tensors of its own, and chosen by the host."""

    def __init__(self, config):
        super().__init__()
        wide, narrow = config.intermediate_size, config.hidden_size
        def linear(inputs, outputs):
            return nn.ModuleList(nn.Linear(inputs, outputs, bias=False) for _ in range(config.num_local_experts))
        self.gate, self.up, self.down = linear(narrow, wide), linear(narrow, wide), linear(wide, narrow)

    def choose(self, count):
        chosen = []
        while len(chosen) < count:
            one = random.choices(range(len(self.gate)), [1 / (n + 1) for n in range(len(self.gate))])[0]
            if one not in chosen:
                chosen.append(one)
        return chosen

    def forward(self, hidden, index, weights):
        chosen = [self.choose(index.shape[1]) for _ in range(len(hidden))]
        out = torch.zeros_like(hidden)
        for expert in range(len(self.gate)):
            uses = [(token, row.index(expert)) for token, row in enumerate(chosen) if expert in row]
            if not uses:
                continue
            tokens, places = torch.tensor(uses, device=hidden.device).unbind(1)
            some = hidden[tokens]
            some = self.down[expert](nn.functional.silu(self.gate[expert](some)) * self.up[expert](some))
            out.index_add_(0, tokens, (some * weights[tokens, places, None]).to(out.dtype))
        return out


random.seed(args.seed)
torch.manual_seed(0)
config = MODELS[args.model]
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float16).eval()
    if args.model == "moe":
        for layer in model.model.layers:
            layer.mlp.experts = Experts(config).half()
model = model.to_empty(device="cuda")
with torch.no_grad():
    for tensor in [*model.parameters(), *model.buffers()]:
        tensor.fill_(0.01)


@torch.inference_mode()
def answer():
    tokens = torch.randint(config.vocab_size, (args.batch, args.prompt)).cuda()
    cache = None
    for _ in range(args.tokens):
        output = model(input_ids=tokens, past_key_values=cache, use_cache=True, logits_to_keep=1)
        tokens, cache = output.logits[:, -1:].argmax(-1), output.past_key_values
        # The token is wanted as soon as it is there.
        tokens.cpu()


for request in range(args.requests):
    mark()
    answer()
    print(f"request {request}: {args.tokens} tokens", flush=True)
mark()
