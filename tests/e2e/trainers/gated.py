# SPDX-License-Identifier: Apache-2.0
"""A training loop that waits at named points until a test lets it go: a file with the point's name,
or "all", in the folder of gates. What that file holds, if anything, is an exit status to end with
there and then. It saves by itself after step 2, and whenever it is asked; the "weights" are those
of loop.py. Points: init (before the handshake), first (after it), step (in step 6), save (asked,
before a byte is written), exit (before the process ends)."""
import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import holdfast


class Gates:
    def __init__(self, folder, holds):
        self.folder = folder
        self.holds = holds.split(",")

    def at(self, point):
        if point not in self.holds:
            return
        free = [os.path.join(self.folder, name) for name in (point, "all")]
        if not any(map(os.path.exists, free)):
            open(free[0] + ".reached", "w").close()
        while not any(map(os.path.exists, free)):
            time.sleep(0.003)
        for path in filter(os.path.exists, free):
            with open(path) as f:
                word = f.read()
            if word:
                os._exit(int(word))


def train(a, gates):
    state = {"digest": hashlib.sha256(b"rank 0").hexdigest()}

    def load(path):
        with open(os.path.join(path, "state.json")) as f:
            state.update(json.load(f))

    gates.at("init")
    run = holdfast.init()
    start = run.resume(load)
    gates.at("first")
    for step in range(start, a.steps):
        time.sleep(0.002 if step <= 6 else 0.01)
        if step == 6:
            gates.at("step")
        if step == a.crash_at and os.environ.get("HOLDFAST_ATTEMPT") == "1":
            os._exit(7)
        state["digest"] = hashlib.sha256(f"{state['digest']}:{step}".encode()).hexdigest()
        with open(a.trace, "a") as f:
            f.write("%s %d\n" % (os.environ["HOLDFAST_ATTEMPT"], step))
        asked = run.step(step)
        if asked:
            gates.at("save")
        if asked or step == 2:
            path = run.path(step)
            with open(os.path.join(path, "pad.bin"), "wb") as f:
                f.write(bytes([step]) * 20000)
            with open(os.path.join(path, "state.tmp"), "w") as f:
                json.dump(state, f)
            os.rename(os.path.join(path, "state.tmp"), os.path.join(path, "state.json"))
            run.saved()
    run.done()
    with open(a.out, "w") as f:
        f.write(state["digest"])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("gates")
    p.add_argument("--hold", default="")
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--crash-at", type=int, default=-1)
    p.add_argument("--child", action="store_true",
                   help="in attempt 1, leave a process behind until the gate all opens")
    p.add_argument("--trace", required=True)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    signal.signal(signal.SIGUSR2, lambda *_: None)
    gates = Gates(a.gates, a.hold)
    if a.child and os.environ.get("HOLDFAST_ATTEMPT") == "1":
        subprocess.Popen(["sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.01; done',
                          os.path.join(a.gates, "all")])
    try:
        train(a, gates)
    finally:
        gates.at("exit")


if __name__ == "__main__":
    sys.exit(main())
