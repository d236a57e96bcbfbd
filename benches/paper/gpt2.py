"""GPT-2 L or XL (transformers), trained on random tokens in WikiText's vocabulary, AdamW, fp32, eager attention."""
from transformers import GPT2Config, GPT2LMHeadModel

import language
from training import train

SIZES = {"large": dict(n_embd=1280, n_layer=36, n_head=20), "xl": dict(n_embd=1600, n_layer=48, n_head=25)}


def options(parser):
    language.options(parser, SIZES, 1024)
    parser.add_argument("--layers", type=int, help="instead of the size's own")


def task(args):
    size = SIZES[args.size] | ({"n_layer": args.layers} if args.layers else {})
    return language.task(args, GPT2LMHeadModel, GPT2Config(**size, attn_implementation="eager"))


train(__doc__, task, options)
