"""JAX's collectives over ccl's libnccl, every element checked: with_jax.py LIBNCCL [TYPE ...], the types in the names
of CCL_NCCL_TYPES. One process has all GPUs."""
import ctypes
import os
import sys

if "WITH_JAX_IN_CHILD" not in os.environ:
    library = os.path.abspath(sys.argv[1])
    os.execve(sys.executable, [sys.executable, *sys.argv], dict(
        os.environ, LD_PRELOAD=library, NCCL_NVLS_ENABLE="0", WITH_JAX_IN_CHILD="1",
        XLA_PYTHON_CLIENT_PREALLOCATE="false"))

try:
    import jax
    import jax.numpy as jnp
    from jax import lax
except ImportError:
    print("SKIP: JAX is not installed")
    sys.exit(77)
try:
    devices = jax.devices("cuda")
except RuntimeError:
    devices = []
if len(devices) < 2:
    print(f"SKIP: needs two GPUs, has {len(devices)}")
    sys.exit(77)

import numpy as np

describe = ctypes.CDLL(None).ncclGetErrorString
describe.restype = ctypes.c_char_p
assert describe(3) == b"internal error: an error inside of ccl", "the process does not call ccl's libnccl"
ranks = len(devices)
jax.config.update("jax_enable_x64", True)
cases = wrong = 0


def check(what, got, want):
    global cases, wrong
    got, want = np.asarray(got), np.asarray(want)
    cases += 1
    if got.shape != want.shape or not np.array_equal(got, want):
        wrong += 1
        print(f"WRONG: {what}: {got.flatten()[:4]}, not {want.flatten()[:4]}", flush=True)


def on_all(body, x):
    """Returns what `body` makes of each device's row of `x`."""
    return jax.pmap(body, axis_name="x", devices=devices)(x)


types = {
    "float": jnp.float32, "bfloat16": jnp.bfloat16, "half": jnp.float16, "float16": jnp.float16, "double": jnp.float64,
    "std::int32_t": jnp.int32, "std::int64_t": jnp.int64, "std::uint8_t": jnp.uint8, "std::int8_t": jnp.int8,
    "std::uint32_t": jnp.uint32, "std::uint64_t": jnp.uint64,
}
chosen = [name for name in sys.argv[2:] if name in types] or types
for name in chosen:
    dtype = types[name]
    for count in (ranks, 4096 * ranks, 250_000 * ranks):
        x = ((np.arange(ranks * count) % 7 + 1).reshape(ranks, count)).astype(dtype)
        label = f"{name} {count}"
        everywhere = lambda row: np.broadcast_to(row, (ranks, *row.shape))
        check(f"psum {label}", on_all(lambda a: lax.psum(a, "x"), x), everywhere(x.astype(np.float64).sum(0).astype(dtype)))
        check(f"pmax {label}", on_all(lambda a: lax.pmax(a, "x"), x), everywhere(x.max(0)))
        check(f"pmin {label}", on_all(lambda a: lax.pmin(a, "x"), x), everywhere(x.min(0)))
        check(f"all_gather {label}", on_all(lambda a: lax.all_gather(a, "x"), x), everywhere(x))
        check(f"psum_scatter {label}", on_all(lambda a: lax.psum_scatter(a, "x", tiled=True), x),
              x.astype(np.float64).sum(0).astype(dtype).reshape(ranks, -1))
        check(f"all_to_all {label}", on_all(lambda a: lax.all_to_all(a.reshape(ranks, -1), "x", 0, 0), x),
              x.reshape(ranks, ranks, -1).swapaxes(0, 1))
        turned = [(r, (r + 1) % ranks) for r in range(ranks)]
        check(f"ppermute {label}", on_all(lambda a: lax.ppermute(a, "x", turned), x), np.roll(x, 1, 0))

# A step of training: gradients of a batch that is split over the GPUs, beside one GPU.
key = jax.random.key(0)
weights = jax.random.normal(key, (64, 64), jnp.float32)
batch = jax.random.normal(jax.random.key(1), (ranks * 32, 64), jnp.float32)
loss = lambda w, x: jnp.mean(jnp.tanh(x @ w) ** 2)
mesh = jax.sharding.Mesh(np.array(devices), ("x",))
rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
same = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
train = lambda w, x: w - 0.1 * jax.grad(loss)(w, x)
step, step_alone = jax.jit(train, out_shardings=same), jax.jit(train)
split, alone = jax.device_put(weights, same), weights
for _ in range(50):
    split = step(split, jax.device_put(batch, rows))
    alone = step_alone(alone, batch)
cases += 1
if not np.allclose(np.asarray(split), np.asarray(alone), rtol=1e-2, atol=1e-3):
    wrong += 1
    print("WRONG: 50 steps over split data differ from those of one GPU")
print(f"JAX {jax.__version__} over libnccl: {cases} cases on {ranks} GPUs, {wrong} wrong")
sys.exit(wrong != 0)
