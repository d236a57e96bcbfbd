"""BERT Base or Large (transformers), masked language model on random tokens, AdamW, fp32, eager attention."""
import torch
from transformers import BertConfig, BertForMaskedLM

from training import Task, train

SIZES = {
    "base": {},
    "large": dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096),
}


def options(parser):
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--length", type=int, default=512, help="tokens in a sequence")


def task(args):
    config = BertConfig(**SIZES[args.size], attn_implementation="eager")
    with torch.device("cuda"):
        model = BertForMaskedLM(config)
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
