"""What the language models (transformers) have in common: random tokens of the vocabulary, AdamW, fp32, eager attention."""
import torch

from training import Task


def options(parser, sizes, length):
    parser.add_argument("--size", choices=sizes, required=True)
    parser.add_argument("--length", type=int, default=length, help="tokens in a sequence")


def task(args, kind, config):
    with torch.device("cuda"):
        model = kind(config)
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})

    def iterate(steps):
        tokens = torch.randint(config.vocab_size, (args.batch, args.length)).cuda()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        steps[0]()
        return loss

    return Task([[p for p in model.parameters() if p.requires_grad]], lambda group: torch.optim.AdamW(group, lr=1e-4), iterate)
