# SPDX-License-Identifier: Apache-2.0
"""JAX and Orbax's CheckpointManager; kind `async`: it saves in the background."""
import os

from common import FEATURES, Note, for_each_kind, quiet


def train(args):
    quiet()
    import jax
    import jax.numpy as jnp
    import numpy
    import orbax.checkpoint as ocp
    source = numpy.random.default_rng(1)
    x = source.standard_normal((64, FEATURES), dtype=numpy.float32)
    y = x @ source.standard_normal((FEATURES, 4), dtype=numpy.float32)
    state = {"w": jnp.zeros((FEATURES, 4)), "m": jnp.zeros((FEATURES, 4))}

    @jax.jit
    def update(state, x, y):
        grad = jax.grad(lambda w: jnp.mean((x @ w - y) ** 2))(state["w"])
        m = 0.9 * state["m"] + grad
        return {"w": state["w"] - 0.01 * m, "m": m}

    manager = ocp.CheckpointManager(
        os.path.abspath(args.out),
        options=ocp.CheckpointManagerOptions(
            save_interval_steps=args.every, max_to_keep=args.keep or None,
            enable_async_checkpointing=args.kind == "async"))
    note, begin = Note(args), 0
    if args.mode == "resume" and manager.latest_step() is not None:
        begin = manager.latest_step()
        state = manager.restore(begin, args=ocp.args.StandardRestore(state))
    for step in range(begin + 1, args.steps + 1):
        at = step * 4 % 64
        state = update(state, x[at:at + 4], y[at:at + 4])
        if args.kind == "async":
            manager.wait_until_finished()
        note.step(step)
        manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
    manager.close()
    note.end({k: numpy.asarray(v) for k, v in state.items()})


for_each_kind(train, __doc__)
