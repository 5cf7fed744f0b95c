# SPDX-License-Identifier: Apache-2.0
"""The trainer's side of Holdfast; see the package's README and docs/protocols.md.

    run = holdfast.init()
    start = run.resume(load)
    for step in range(start, steps):
        ...
        if run.step(step):
            save(run.path(step))
            run.saved()
    run.done()
"""

from ._rng import rng_state, set_rng_state
from ._run import EXIT_LEAVE, Run, init

__all__ = ["EXIT_LEAVE", "Run", "init", "rng_state", "set_rng_state"]
__version__ = "0.1.0"
