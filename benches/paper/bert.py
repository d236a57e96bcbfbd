"""BERT Base or Large (transformers), masked language model on random tokens, AdamW, fp32, eager attention."""
from transformers import BertConfig, BertForMaskedLM

import language
from training import train

SIZES = {
    "base": {},
    "large": dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
}


def options(parser):
    language.options(parser, SIZES, 512)


def task(args):
    return language.task(args, BertForMaskedLM, BertConfig(**SIZES[args.size], attn_implementation="eager"))


train(__doc__, task, options)
