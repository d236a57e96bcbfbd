"""DLRM (Naumov et al., 2019) on click logs with the table sizes of Criteo's Kaggle data set, rows of 128, sparse SGD, fp32.

Which rows a batch looks up decides what memory it touches. Ranks are drawn from a power law with exponent 1.1: "medium"
in NVIDIA's generator of such data (HugeCTR, `DataGeneratorParams`, `power_law_type`: long 0.9, medium 1.1, short 1.3). As in
the data set after the usual preparation, rows are numbered in the order in which their categories first appear; so frequent ones
tend to lie in front, and only tend to: a category of frequency p first appears after a time that is exponentially distributed
with mean 1 / p, and its number is how many are expected to have appeared by then.
"""
import math

import torch
from torch import nn

from training import Task, run, train

# Categories of each of the 26 features (facebookresearch/dlrm prints them when it prepares the data set).
ROWS = [1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652, 2173, 4,
        7046547, 18, 15, 286181, 105, 142572]
EXPONENT = 1.1
# MLPerf's: rows of 128, bottom 512-256-128, top 1024-1024-512-256-1.
DIMENSION, DENSE, BOTTOM, TOP = 128, 13, (512, 256, 128), (1024, 1024, 512, 256)


class Categories:
    """Rows of one table as a batch looks them up."""

    def __init__(self, rows, generator):
        self.rows, self.generator = rows, generator
        self.total = ((rows + 0.5) ** (1 - EXPONENT) - 0.5 ** (1 - EXPONENT)) / (1 - EXPONENT)
        # Expected number of categories that have appeared by a time, on a grid; the sum over ranks as one over octaves of them.
        ranks = torch.logspace(0, math.log2(rows + 1), 500, base=2, dtype=torch.float64)
        middles, widths = (ranks[1:] + ranks[:-1]) / 2, ranks[1:] - ranks[:-1]
        self.times = torch.logspace(-3, 60, 1000, base=2, dtype=torch.float64)
        appeared = -torch.expm1(-self.times[:, None] * self.frequency(middles)) * widths
        self.appeared = appeared.sum(1)

    def frequency(self, ranks):
        return ranks ** -EXPONENT / self.total

    def draw(self, count):
        if self.rows == 1:
            return torch.zeros(count, dtype=torch.int64)
        uniform = torch.rand(count, dtype=torch.float64, generator=self.generator)
        low = 0.5 ** (1 - EXPONENT)
        ranks = (low + uniform * ((self.rows + 0.5) ** (1 - EXPONENT) - low)) ** (1 / (1 - EXPONENT))
        ranks = ranks.round().clamp(1, self.rows).to(torch.int64)
        # The same rank has the same time in every batch.
        mixed = ranks * -7046029254386353131
        mixed = (mixed ^ (mixed >> 29)) * -4658895280553007687
        share = ((mixed >> 11) & ((1 << 52) - 1)).to(torch.float64) / (1 << 52)
        times = -torch.log1p(-share) / self.frequency(ranks.to(torch.float64))
        after = torch.searchsorted(self.times, times).clamp(1, len(self.times) - 1)
        low, high = self.times[after - 1], self.times[after]
        share = ((times - low) / (high - low)).clamp(0, 1)
        row = torch.lerp(self.appeared[after - 1], self.appeared[after], share)
        return row.to(torch.int64).clamp(0, self.rows - 1)


def layers(sizes, last):
    units = []
    for channels, out in zip(sizes, sizes[1:]):
        units += [nn.Linear(channels, out), nn.ReLU(inplace=True)]
    return nn.Sequential(*units[:-1], last) if last else nn.Sequential(*units)


class Dlrm(nn.Module):
    def __init__(self, rows, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        # One category of each feature in a sample: a sum over a bag of one is the row itself.
        self.tables = nn.ModuleList(nn.Embedding(n, DIMENSION, sparse=True) for n in rows)
        self.bottom = layers((DENSE, *BOTTOM), None)
        features = len(rows) + 1
        self.register_buffer("pairs", torch.tril_indices(features, features, -1), persistent=False)
        self.top = layers((DIMENSION + features * (features - 1) // 2, *TOP, 1), nn.Identity())

    def forward(self, numbers, categories):
        dense = run(self.bottom, numbers, self.checkpointing)
        looked_up = [table(index) for table, index in zip(self.tables, categories)]
        return run(lambda dense: self.click(dense, looked_up), dense, self.checkpointing).squeeze(1)

    def click(self, dense, looked_up):
        features = torch.stack([dense, *looked_up], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        chosen = products[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([dense, chosen], dim=1))


def options(parser):
    parser.add_argument("--rows", type=int, help="at most so many rows in a table")


def task(args):
    rows = [min(n, args.rows or n) for n in ROWS]
    generator = torch.Generator().manual_seed(1)
    tables = [Categories(n, generator) for n in rows]
    with torch.device("cuda"):
        model = Dlrm(rows, args.checkpointing)
    numbers = torch.zeros(args.batch, DENSE)
    clicks = torch.zeros(args.batch)

    def iterate(steps):
        categories = torch.stack([table.draw(args.batch) for table in tables]).cuda()
        predicted = model(numbers[: args.batch].cuda(), categories.unbind())
        loss = nn.functional.binary_cross_entropy_with_logits(predicted, clicks[: args.batch].cuda())
        loss.backward()
        steps[0]()
        return loss

    return Task([list(model.parameters())], lambda group: torch.optim.SGD(group, lr=0.1), iterate)


train(__doc__.splitlines()[0], task, options)
