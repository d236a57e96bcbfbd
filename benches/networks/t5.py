"""T5 large (Raffel et al., 2020; transformers), trained on random tokens in and out, AdamW, fp32, PyTorch's attention."""
from transformers import T5Config, T5ForConditionalGeneration

import language
from training import train

SIZES = {
    "tiny": dict(vocab_size=1000, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4),
    "large": dict(d_model=1024, d_kv=64, d_ff=4096, num_layers=24, num_heads=16),
}


def options(parser):
    language.options(parser, SIZES, 512)


def task(args):
    return language.task(args, T5ForConditionalGeneration, T5Config(**SIZES[args.size], decoder_start_token_id=0))


train(__doc__, task, options)
