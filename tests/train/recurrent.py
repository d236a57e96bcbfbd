"""Trains recurrent networks of cuDNN: plain, GRU and LSTM, in both directions, with dropout, packed sequences, a projection, half precision."""
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import backward_over  # noqa: F401  waits, at the end

sequences = torch.randn(8, 20, 64, device="cuda")
lengths = torch.tensor([20, 18, 15, 10, 9, 5, 3, 1])
for kind, arguments in ((nn.RNN, {}), (nn.GRU, {}), (nn.LSTM, {}), (nn.LSTM, {"proj_size": 32})):
    network = kind(64, 128, num_layers=2, dropout=0.1, bidirectional=True, batch_first=True, **arguments).cuda()
    optimizer = torch.optim.Adam(network.parameters())
    for iteration in range(2):
        outputs, _ = network(sequences)
        loss = outputs.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"{kind.__name__} {arguments} iteration {iteration}: loss {loss.item():.4f}", flush=True)
    packed, _ = network(pack_padded_sequence(sequences, lengths, batch_first=True))
    pad_packed_sequence(packed, batch_first=True)[0].sum().backward()
    network.half().eval()
    with torch.no_grad():
        network(sequences.half())
torch.cuda.synchronize()
