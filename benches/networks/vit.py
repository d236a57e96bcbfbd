"""ViT-L (Dosovitskiy et al., 2021; transformers), images of 224 x 224 in patches of 16 x 16, 1,000 classes, AdamW, fp32."""
import torch
from transformers import ViTConfig, ViTForImageClassification

from training import Task, train

CLASSES, PIXELS = 1000, 224


def options(parser):
    parser.add_argument("--layers", type=int, default=24)


def task(args):
    config = ViTConfig(hidden_size=1024, num_hidden_layers=args.layers, num_attention_heads=16, intermediate_size=4096,
                       image_size=PIXELS, num_labels=CLASSES)
    with torch.device("cuda"):
        model = ViTForImageClassification(config)
    model.train()
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    images = torch.zeros(args.batch, 3, PIXELS, PIXELS)

    def iterate(steps):
        labels = torch.randint(CLASSES, (args.batch,)).cuda()
        loss = torch.nn.functional.cross_entropy(model(pixel_values=images[: args.batch].cuda()).logits, labels)
        loss.backward()
        steps[0]()
        return loss

    return Task([list(model.parameters())], lambda group: torch.optim.AdamW(group, lr=1e-4), iterate)


train(__doc__, task, options)
