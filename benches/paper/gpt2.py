"""GPT-2 L or XL (transformers), trained on random tokens in WikiText's vocabulary, AdamW, fp32, eager attention."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from training import Task, train

SIZES = {"large": dict(n_embd=1280, n_layer=36, n_head=20), "xl": dict(n_embd=1600, n_layer=48, n_head=25)}


def options(parser):
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--length", type=int, default=1024, help="tokens in a sequence")
    parser.add_argument("--layers", type=int, help="instead of the size's own")


def task(args):
    size = SIZES[args.size] | ({"n_layer": args.layers} if args.layers else {})
    config = GPT2Config(**size, attn_implementation="eager")
    with torch.device("cuda"):
        model = GPT2LMHeadModel(config)
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})

    def iterate(steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.length)).cuda()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        steps[0]()
        return loss

    return Task([list(model.parameters())], lambda group: torch.optim.AdamW(group, lr=1e-4), iterate)


train(__doc__, task, options)
