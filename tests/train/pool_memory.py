"""What PyTorch says of its memory with backend:cudaMallocAsync, at each step of a program whose tensors are used by two streams."""
import torch

assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"


def say(when):
    stats = torch.cuda.memory_stats()
    names = "reserved_bytes.all.current", "reserved_bytes.all.peak", "allocated_bytes.all.current", "allocated_bytes.all.peak"
    print(when, *(stats[name] for name in names), flush=True)


side = torch.cuda.Stream()
tensors = [torch.full((n << 18,), float(n), device="cuda") for n in (1, 30, 3, 100)]
say("made")
with torch.cuda.stream(side):
    side.wait_stream(torch.cuda.default_stream())
    total = tensors[1] + tensors[1]
    for tensor in tensors:
        tensor.record_stream(side)
torch.cuda.synchronize()
say("used")
del tensors, tensor
again = [torch.zeros(n << 18, device="cuda") for n in (30, 60)]
torch.cuda.synchronize()
say("again")
del again, total
torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
say("empty")
assert torch.cuda.memory_reserved() == 0
