"""A language model in the shape of Llama 3.2 1B (transformers), of which LoRA adapters alone are trained, on random tokens, AdamW, fp32.

LoRA (Hu et al., 2021) is written out here: the `peft` package brings `accelerate` and `psutil` into the environment, for what are a dozen lines.
"""
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import language
from training import train

SIZES = {
    "tiny": dict(vocab_size=1000, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2),
    "1b": dict(vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
               num_key_value_heads=8, rope_theta=500000.0, tie_word_embeddings=True, max_position_embeddings=131072),
}
# All projections of attention and of the perceptron, as is usual.
ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK, SCALE = 16, 2.0


class Adapted(nn.Module):
    """A linear layer that stays as it is, and beside it the product of two narrow ones, which is zero at first."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, layer.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x)) * SCALE


def adapted(config):
    model = LlamaForCausalLM(config)
    model.requires_grad_(False)
    layers = [(parent, name, layer) for parent in model.modules() for name, layer in parent.named_children() if name in ADAPTED]
    for parent, name, layer in layers:
        setattr(parent, name, Adapted(layer))
    return model


def options(parser):
    language.options(parser, SIZES, 1024)


def task(args):
    return language.task(args, adapted, LlamaConfig(**SIZES[args.size], use_cache=False))


train(__doc__.splitlines()[0], task, options)
