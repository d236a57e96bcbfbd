"""What hangs on numbers that the GPU computed: selections, printing, checks, text generation. The memory has held real numbers before."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import backward_over  # noqa: F401  waits, at the end


def used_memory():
    """Leaves copied numbers in small blocks of the allocator."""
    kept = [torch.full((size,), -7.5).cuda() for size in (8, 100, 1000) for _ in range(8)]
    kept += [torch.full((size,), 2**40 + 1).cuda() for size in (1, 8, 100) for _ in range(8)]
    del kept


for _ in range(2):
    used_memory()
    x = torch.randn(1000, device="cuda")
    print(x[:3], len(x[x > 0]), len((x > 0).nonzero()), len(x.unique()))
    torch.repeat_interleave(x[:10], torch.arange(10, device="cuda"))
    torch.bincount(torch.randint(10, (100,), device="cuda"))
    assert x.isfinite().all() and not x.isnan().any() and torch.equal(x, x)
    loss = x.square().mean()
    assert loss.item() == 0

used_memory()
scaler = torch.amp.GradScaler()
layer = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
scaler.scale(layer(torch.randn(8, 8, device="cuda")).sum()).backward()
scaler.step(optimizer)
scaler.update()

used_memory()
model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_embd=64, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2)).cuda()
prompt = torch.randint(3, 500, (2, 8), device="cuda")
for arguments in ({}, {"num_beams": 3}, {"do_sample": True}):
    print(arguments, model.generate(prompt, max_new_tokens=5, pad_token_id=0, **arguments).shape, flush=True)
torch.cuda.synchronize()
