"""Trains a multi-layer perceptron with JAX, whose kernels all pass the driver's door; says what came out of it, as one line of JSON."""
import hashlib
import json
import os

os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
# Else it takes three quarters of all there is at its start.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy

WIDTH, LAYERS, BATCH, ITERATIONS = 2048, 8, 256, 12


def loss_of(layers, x):
    y = x
    for weights, bias in layers:
        y = jax.nn.gelu(y @ weights + bias)
    return jnp.mean((y - x) ** 2)


@jax.jit
def step(layers, momenta, x):
    loss, gradients = jax.value_and_grad(loss_of)(layers, x)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, gradients)
    return jax.tree.map(lambda p, m: p - 0.01 * m, layers, momenta), momenta, loss


keys = jax.random.split(jax.random.PRNGKey(0), LAYERS + 1)
layers = [(jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5, jnp.zeros(WIDTH)) for key in keys[1:]]
momenta = jax.tree.map(jnp.zeros_like, layers)
x = jax.random.normal(keys[0], (BATCH, WIDTH))
losses = []
for _ in range(ITERATIONS):
    layers, momenta, loss = step(layers, momenta, x)
    losses.append(float(loss))
weights = hashlib.sha256()
for part in jax.tree.leaves(layers):
    weights.update(numpy.asarray(part).tobytes())
stats = jax.local_devices()[0].memory_stats() or {}
print(json.dumps({
    "losses": losses,
    "weights_sha256": weights.hexdigest(),
    "reserved_bytes": stats.get("peak_bytes_in_use", 0),
    "device": str(jax.local_devices()[0]),
    "jax": jax.__version__,
}), flush=True)
