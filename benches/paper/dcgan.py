"""DCGAN (Radford et al., 2016) on CelebA's images cropped to 64 x 64, two Adam optimizers, fp32, with the sizes of PyTorch's own example."""
import torch
from torch import nn

from training import Task, run, train

LATENT, WIDTH = 100, 64


def up(channels, out, stride, padding):
    return [nn.ConvTranspose2d(channels, out, 4, stride, padding, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True)]


def down(channels, out):
    return [nn.Conv2d(channels, out, 4, 2, 1, bias=False), nn.BatchNorm2d(out), nn.LeakyReLU(0.2, inplace=True)]


def generator():
    return nn.Sequential(
        *up(LATENT, 8 * WIDTH, 1, 0), *up(8 * WIDTH, 4 * WIDTH, 2, 1), *up(4 * WIDTH, 2 * WIDTH, 2, 1), *up(2 * WIDTH, WIDTH, 2, 1),
        nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1, bias=False), nn.Tanh(),
    )


def discriminator():
    return nn.Sequential(
        nn.Conv2d(3, WIDTH, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        *down(WIDTH, 2 * WIDTH), *down(2 * WIDTH, 4 * WIDTH), *down(4 * WIDTH, 8 * WIDTH),
        nn.Conv2d(8 * WIDTH, 1, 4, 1, 0, bias=False), nn.Flatten(0),
    )


def task(args):
    with torch.device("cuda"):
        make, judge = generator(), discriminator()
    photos = torch.zeros(args.batch, 3, 64, 64)
    loss_of = nn.functional.binary_cross_entropy_with_logits

    def iterate(steps):
        real, noise = photos[: args.batch].cuda(), torch.randn(args.batch, LATENT, 1, 1, device="cuda")
        ones, zeros = torch.ones(args.batch, device="cuda"), torch.zeros(args.batch, device="cuda")
        fake = run(make, noise, args.checkpointing)
        loss = loss_of(run(judge, real, args.checkpointing), ones)
        loss.backward()
        loss_of(run(judge, fake.detach(), args.checkpointing), zeros).backward()
        steps[1]()
        # What the generator's own loss leaves in the discriminator's gradients is not for its next step.
        loss_of(run(judge, fake, args.checkpointing), ones).backward()
        steps[0]()
        judge.zero_grad()
        return loss

    groups = [list(make.parameters()), list(judge.parameters())]
    return Task(groups, lambda group: torch.optim.Adam(group, lr=2e-4, betas=(0.5, 0.999)), iterate)


train(__doc__, task)
