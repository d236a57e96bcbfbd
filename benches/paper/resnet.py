"""ResNet with bottleneck blocks (He et al., CVPR'16), SGD with momentum, fp32.

On ImageNet's images (224 x 224, 1,000 classes) with the usual stem; on CIFAR-10's (32 x 32, 10 classes) with a 3 x 3 stem that
keeps the resolution, as is usual there.
"""
import torch
from torch import nn

from training import Task, run, train

DEPTHS = {50: (3, 4, 6, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}
DATA = {"imagenet": (224, 1000), "cifar10": (32, 10)}


class Block(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out),
        )
        self.shortcut = nn.Identity()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, depth, data, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        _, classes = DATA[data]
        if data == "imagenet":
            stem = [nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        else:
            stem = [nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*stem)
        blocks, channels = [], 64
        for stage, count in enumerate(DEPTHS[depth]):
            width = 64 << stage
            for n in range(count):
                blocks.append(Block(channels, width, 2 if stage > 0 and n == 0 else 1))
                channels = 4 * width
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = run(block, x, self.checkpointing)
        return self.head(x)


def options(parser):
    parser.add_argument("--depth", type=int, choices=DEPTHS, required=True)
    parser.add_argument("--data", choices=DATA, required=True)


def task(args):
    pixels, classes = DATA[args.data]
    with torch.device("cuda"):
        model = ResNet(args.depth, args.data, args.checkpointing)
    images = torch.zeros(args.batch, 3, pixels, pixels)

    def iterate(steps):
        labels = torch.randint(classes, (args.batch,)).cuda()
        loss = nn.functional.cross_entropy(model(images[: args.batch].cuda()), labels)
        loss.backward()
        steps[0]()
        return loss

    return Task([list(model.parameters())], lambda group: torch.optim.SGD(group, lr=0.1, momentum=0.9), iterate)


train(__doc__.splitlines()[0], task, options)
