"""Data-parallel training with JAX: JAX_PLATFORMS=cpu mpirun -n 2 python with_jax.py

Each rank has a part of the data. A callback within the compiled step averages the gradients of all
ranks, so that every rank takes the step of one process that has all data.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback
from jax.flatten_util import ravel_pytree

import ccl

ROWS, STEPS, RATE = 32, 20, 0.05


def loss(weights, x, y):
    hidden = jnp.tanh(x @ weights["in"])
    return jnp.mean((hidden @ weights["out"] - y) ** 2)


def trained(x, y, average):
    """Returns the weights after some steps on `x` and `y`. `average` is that over ranks."""
    keys = jax.random.split(jax.random.key(1))
    weights = {"in": jax.random.normal(keys[0], (8, 16)), "out": jax.random.normal(keys[1], (16,))}

    @jax.jit
    def step(weights):
        flat, restored = ravel_pytree(jax.grad(loss)(weights, x, y))
        gradients = restored(average(flat))
        return jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)

    for _ in range(STEPS):
        weights = step(weights)
    return ravel_pytree(weights)[0]


def main():
    with ccl.Communicator.from_env() as comm:

        def average(flat):
            # Ordered: all ranks make their calls in one order, whatever XLA's schedule.
            kind = jax.ShapeDtypeStruct(flat.shape, flat.dtype)
            return io_callback(lambda data: comm.all_reduce(np.asarray(data), "avg"), kind, flat, ordered=True)

        rng = np.random.default_rng(2)
        x = jnp.asarray(rng.normal(size=(comm.ranks * ROWS, 8)), jnp.float32)
        y = jnp.sin(x).sum(1)
        mine = slice(comm.rank * ROWS, (comm.rank + 1) * ROWS)
        got = trained(x[mine], y[mine], average)
        alone = trained(x, y, lambda flat: flat)
        assert jnp.allclose(got, alone, rtol=1e-3, atol=1e-4), jnp.abs(got - alone).max()

        # Outside of compiled code: arrays of JAX are read in place, and NumPy's take the result.
        sums = comm.all_reduce(got, out=np.empty(got.shape, np.float32))
        assert jnp.allclose(sums, comm.ranks * got, rtol=1e-4, atol=1e-5)
        if comm.rank == 0:
            print(f"{comm.ranks} ranks have the weights of one process with all data")


if __name__ == "__main__":
    main()
