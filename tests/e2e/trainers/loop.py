# SPDX-License-Identifier: Apache-2.0
"""A deterministic training loop without a framework, for end-to-end tests.

The "weights" are a running SHA-256 over (step, rank); lost or repeated work changes the final
digest. Every rank saves its own file into run.path(step).
"""
import argparse
import hashlib
import json
import os
import random
import sys
import time

import holdfast


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--step-ms", type=float, default=20)
    p.add_argument("--save-ms", type=float, default=0)
    p.add_argument("--pad", type=int, default=0, help="bytes of padding in a checkpoint")
    p.add_argument("--noise", action="store_true", help="padding that no two blocks share")
    p.add_argument("--out", default="")
    p.add_argument("--crash-at", type=int, default=-1)
    p.add_argument("--crash-once", default="", help="crash only if this file is not there")
    p.add_argument("--own-every", type=int, default=0)
    p.add_argument("--stick-at", type=int, default=-1, help="in attempt 1, a step that never ends")
    p.add_argument("--late-s", type=float, default=0, help="sleep before holdfast.init()")
    p.add_argument("--no-load", action="store_true", help="saves, but does not resume")
    p.add_argument("--trace", default="", help="append a line a step: attempt step")
    a = p.parse_args()

    rank = int(os.environ.get("RANK", "0"))
    state = {"digest": hashlib.sha256(b"rank %d" % rank).hexdigest()}

    def load(path):
        with open(os.path.join(path, "rank%d.json" % rank)) as f:
            state.update(json.load(f))

    time.sleep(a.late_s)
    run = holdfast.init()
    start = 0 if a.no_load else run.resume(load)
    print("start %d" % start, flush=True)
    for step in range(start, a.steps):
        stuck = step == a.stick_at and os.environ.get("HOLDFAST_ATTEMPT") == "1"
        time.sleep(1e6 if stuck else a.step_ms / 1000)
        state["digest"] = hashlib.sha256(
            (state["digest"] + ":%d" % step).encode()).hexdigest()
        if a.trace:
            with open(a.trace, "a") as f:
                f.write("%s %d %d\n" % (os.environ.get("HOLDFAST_ATTEMPT", "0"), rank, step))
        if step == a.crash_at and not (a.crash_once and os.path.exists(a.crash_once)):
            if a.crash_once:
                open(a.crash_once, "w").close()
            os._exit(7)
        if run.step(step) or (a.own_every and step % a.own_every == a.own_every - 1):
            path = run.path(step)
            time.sleep(a.save_ms / 1000)
            tmp = os.path.join(path, "rank%d.tmp" % rank)
            with open(tmp, "w") as f:
                json.dump(state, f)
            os.rename(tmp, os.path.join(path, "rank%d.json" % rank))
            if a.pad:
                with open(os.path.join(path, "pad%d.bin" % rank), "wb") as f:
                    f.write(random.Random(step * 1000 + rank).randbytes(a.pad) if a.noise
                            else bytes([step & 255]) * a.pad)
            run.saved()
    run.done()
    print("digest %s" % state["digest"], flush=True)
    if a.out:
        with open(a.out, "w") as f:
            f.write(state["digest"])


if __name__ == "__main__":
    sys.exit(main())
