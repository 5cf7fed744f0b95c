# SPDX-License-Identifier: Apache-2.0
"""The random number generators of one rank, as one value that pickle (and torch.save) can take.

Only libraries that the program has imported itself are asked; none is imported here.
"""

import random
import sys


def rng_state():
    """State of `random`, and of numpy and torch (CPU, every CUDA device) where imported."""
    state = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state()
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _tuples(value):
    """JSON and some loaders turn tuples into lists; random.setstate wants tuples."""
    return tuple(_tuples(item) for item in value) if isinstance(value, (list, tuple)) else value


def set_rng_state(state):
    """Puts back what rng_state() returned. What it lacks, or is not imported, is left alone."""
    random.setstate(_tuples(state["python"]))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    torch = sys.modules.get("torch")
    if torch is not None and "torch" in state:
        torch.set_rng_state(state["torch"].cpu())
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
