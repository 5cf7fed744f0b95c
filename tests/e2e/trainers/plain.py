# SPDX-License-Identifier: Apache-2.0
"""A training loop that knows nothing of Holdfast: it saves into a folder by itself, on a signal if
it is told to, and goes on from HOLDFAST_RESUME. Its data-loader workers are forks that die of
SIGTERM, and it dies of their death, as PyTorch's do."""
import argparse
import os
import signal
import sys
import time


def number(name):
    return getattr(signal, "SIG" + name)


def fork_workers(count, deaf):
    pids = []
    for _ in range(count):
        pid = os.fork()
        if pid == 0:
            for name in ("TERM", "INT", "USR1"):
                signal.signal(number(name), signal.SIG_DFL)
            if deaf:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            elif os.environ.get("HANDLER_IN_WORKERS"):
                signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
            while True:
                time.sleep(0.05)
        pids.append(pid)
    return pids


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=100000)
    p.add_argument("--step-ms", type=float, default=20)
    p.add_argument("--dir", default="", help="where checkpoints are renamed into")
    p.add_argument("--save-every", type=int, default=0)
    p.add_argument("--save-on", default="", help="a signal")
    p.add_argument("--save-s", type=float, default=0, help="how long a save takes")
    p.add_argument("--leave-on", default="", help="a signal: leave with 0")
    p.add_argument("--leave-s", type=float, default=0, help="how long leaving takes")
    p.add_argument("--left", default="", help="this file is made just before leaving")
    p.add_argument("--count", default="", help="a line is added for each signal to leave")
    p.add_argument("--deaf-to", default="", help="a signal that is caught and does nothing")
    p.add_argument("--stick-at", type=int, default=-1, help="in attempt 1, a step that never ends")
    p.add_argument("--workers", type=int, default=0)
    p.add_argument("--deaf-workers", action="store_true")
    a = p.parse_args()
    asked = []

    def save(step):
        time.sleep(a.save_s)
        tmp = os.path.join(a.dir, ".tmp-%d" % os.getpid())
        with open(tmp, "w") as f:
            f.write("%d" % step)
        os.rename(tmp, os.path.join(a.dir, "step_%d" % step))

    def leave(*_):
        if a.count:
            with open(a.count, "a") as f:
                f.write("asked\n")
        asked.append(time.monotonic())

    workers = fork_workers(a.workers, a.deaf_workers)
    step = 0
    if os.environ.get("HOLDFAST_RESUME"):
        with open(os.environ["HOLDFAST_RESUME"]) as f:
            step = int(f.read()) + 1
    state = {"step": step - 1}
    if a.save_on:
        signal.signal(number(a.save_on), lambda *_: save(state["step"]))
    if a.leave_on:
        signal.signal(number(a.leave_on), leave)
    if a.deaf_to:
        signal.signal(number(a.deaf_to), lambda *_: None)
    print("start %d pid %d" % (step, os.getpid()), flush=True)
    while step < a.steps:
        for pid in workers:
            if os.waitpid(pid, os.WNOHANG)[0]:
                print("worker %d was killed" % pid, flush=True)
                os._exit(9)
        if asked and time.monotonic() >= asked[0] + a.leave_s:
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            if a.left:
                open(a.left, "w").close()
            print("leaves", flush=True)
            return 0
        while step == a.stick_at and os.environ.get("HOLDFAST_ATTEMPT") == "1":
            time.sleep(3600)
        time.sleep(a.step_ms / 1000)
        state["step"] = step
        if a.save_every and step % a.save_every == a.save_every - 1:
            save(step)
        step += 1
    print("finished at %d" % step, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
