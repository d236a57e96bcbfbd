"""MobileNet (Howard et al., 2017) on CIFAR-100's images (32 x 32, 100 classes), SGD with momentum, fp32."""
import torch
from torch import nn

from training import Task, run, train

# Output channels and stride of each pair of a depthwise and a pointwise convolution; the resolution of the images is
# a seventh of ImageNet's, so the first convolutions keep it.
PAIRS = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]


def unit(channels, out, kernel, stride, groups=1):
    convolution = nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(out), nn.ReLU(inplace=True))


class MobileNet(nn.Module):
    def __init__(self, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.stem = unit(3, 32, 3, 1)
        pairs, channels = [], 32
        for out, stride in PAIRS:
            pairs.append(nn.Sequential(unit(channels, channels, 3, stride, groups=channels), unit(channels, out, 1, 1)))
            channels = out
        self.pairs = nn.ModuleList(pairs)
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100))

    def forward(self, x):
        x = self.stem(x)
        for pair in self.pairs:
            x = run(pair, x, self.checkpointing)
        return self.head(x)


def task(args):
    with torch.device("cuda"):
        model = MobileNet(args.checkpointing)
    images = torch.zeros(args.batch, 3, 32, 32)

    def iterate(steps):
        labels = torch.randint(100, (args.batch,)).cuda()
        loss = nn.functional.cross_entropy(model(images[: args.batch].cuda()), labels)
        loss.backward()
        steps[0]()
        return loss

    return Task([list(model.parameters())], lambda group: torch.optim.SGD(group, lr=0.1, momentum=0.9), iterate)


train(__doc__, task)
