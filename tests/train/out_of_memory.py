"""Asks for more memory than any machine has, sees PyTorch's own error, and carries on."""
import torch

x = torch.ones(1 << 20, device="cuda")
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(f"as expected: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
else:
    raise SystemExit("a petabyte was promised")
y = x + x
torch.cuda.synchronize()
print("still working", flush=True)
