"""Matrix products, forward and backward, in all the ways PyTorch makes them: linear layers, batches, vectors, attention, solves."""
import argparse

import torch

import backward_over  # noqa: F401  waits, at the end

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=256)
args = parser.parse_args()

n = args.size
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    def tensor(*shape):
        return torch.ones(*shape, device="cuda", dtype=dtype, requires_grad=True)

    products = {
        "mm": tensor(n, 2 * n) @ tensor(2 * n, n),
        "mm of transposes": tensor(2 * n, n).t() @ tensor(n, 2 * n).t(),
        "linear": torch.nn.functional.linear(tensor(8, 16, n), tensor(4 * n, n), tensor(4 * n)),
        "linear without bias": torch.nn.functional.linear(tensor(8, 16, n), tensor(4 * n, n)),
        "addmm": torch.addmm(tensor(n), tensor(n, n), tensor(n, n), beta=0.5, alpha=2.0),
        "addmm in place": torch.addmm(tensor(n, n), tensor(n, n), tensor(n, n)),
        "bmm": torch.bmm(tensor(12, n, 64), tensor(12, 64, n)),
        "baddbmm": torch.baddbmm(tensor(12, n, n), tensor(12, n, 64), tensor(12, 64, n)),
        "expanded bmm": torch.matmul(tensor(12, n, 64), tensor(64, n)),
        "mv": tensor(n, n) @ tensor(n),
        "dot": tensor(n) @ tensor(n),
        "einsum": torch.einsum("bij,bkj->bik", tensor(4, n, 64), tensor(4, n, 64)),
        "activation": torch.nn.functional.gelu(torch.nn.functional.linear(tensor(16, n), tensor(n, n), tensor(n))),
    }
    for name, result in products.items():
        result.sum().backward()
        print(f"{dtype}: {name} {tuple(result.shape)}", flush=True)

    with torch.no_grad():
        fused = torch._addmm_activation(tensor(n), tensor(n, n), tensor(n, n), use_gelu=True)
    print(f"{dtype}: fused activation {tuple(fused.shape)}", flush=True)

for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for causal in (False, True):
        query, key, value = (torch.ones(2, 4, 128, 64, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
        result = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        result.sum().backward()
        print(f"{dtype}: attention {tuple(result.shape)}, causal: {causal}", flush=True)

for dtype in (torch.complex64, torch.complex128):
    a = torch.ones(n, n, device="cuda", dtype=dtype)
    print(f"{dtype}: mm {tuple((a @ a).shape)}", flush=True)

a = torch.eye(n, device="cuda")
for name in ("highest", "high"):
    torch.set_float32_matmul_precision(name)
    print(f"precision {name}: {tuple((a @ a).shape)}", flush=True)
triangular = torch.linalg.solve_triangular(a, torch.ones(n, 8, device="cuda"), upper=False)
print("triangular solve:", tuple(triangular.shape))
torch.cuda.synchronize()
