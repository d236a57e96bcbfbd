"""Feeds a small model from DataLoader workers through pinned memory."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import backward_over  # noqa: F401  waits, at the end


def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 1024), torch.randint(10, (512,)))
    loader = DataLoader(data, batch_size=64, num_workers=2, pin_memory=True)
    model = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
