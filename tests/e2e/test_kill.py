# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of the supervisor, the keeper, the trainer or all of them, at random moments of start,
save, commit, hand-off and restore. Each time the checkpoints verify, and the training ends with the
weights of an undisturbed one; two trainers never live at once.

HOLDFAST_KILL_SEED=n repeats a round.
"""
import collections
import os
import random
import signal
import time

import pytest

from support import loop_digest, processes_with, trainer, until

STEPS = 48
OPTIONS = ["--every=150ms", "--keep=2", "--block-size=64KiB", "--lanes=1", "--max-crashes=50",
           "--heartbeat=200ms", "--grace=10s"]
KILLS = 3  # a round: 51 kills in `make check`, 501 in `make check-long`


def seeds(count, base):
    one = os.environ.get("HOLDFAST_KILL_SEED")
    return [int(one)] if one else range(base, base + count)


class Round:
    def __init__(self, hf, seed):
        self.hf = hf
        self.random = random.Random(seed)
        self.trace = hf.tmp / "trace"
        self.notice = hf.tmp / "notice"
        self.options = [f"--store=file://{hf.tmp}/store", f"--notice-file={self.notice}", *OPTIONS]
        self.command = trainer("loop.py", "--steps", STEPS, "--step-ms", 12, "--own-every", 5,
                               "--pad", self.random.choice([1000, 300000, 3000000]),
                               "--save-ms", self.random.choice([0, 0, 40]),
                               "--trace", self.trace, "--out", hf.tmp / "out")
        self.child = None
        self.told = []

    def count(self):
        return collections.Counter(event["event"] for event in self.hf.events())

    def start(self):
        self.notice.unlink(missing_ok=True)
        self.at_start = self.count()
        self.child = self.hf.run_start(*self.options, command=self.command)

    def over(self):
        return self.child.proc.poll() is not None

    def pid_of(self, victim):
        if victim == "supervisor":
            return self.child.pid
        attempt = self.hf.events("claimed")[-1:]
        try:
            if victim == "keeper":
                return self.hf.keeper_pid_now(attempt[0]["attempt"])
            return self.hf.events("command-started", attempt[0]["attempt"])[0]["pid"]
        except (IndexError, OSError, ValueError):
            return None  # it is not there yet

    def moment(self):
        """Waits for something to begin, and a random while."""
        phase = self.random.choice(["start", "restore", "save", "save", "leave", "leave", "answer"])
        now = self.count()

        def began(name, since):
            until(lambda: self.count()[name] > since[name] or self.over(), name)
        if phase == "restore":
            until(lambda: any(self.count()[name] > self.at_start[name]
                              for name in ("claimed", "adopted")) or self.over(), "a claim")
        elif phase == "save":
            began("saved", now)
        elif phase in ("leave", "answer"):
            began("joined", self.at_start)
            self.notice.touch()
            if phase == "answer":
                began("request", now)
        time.sleep(self.random.uniform(0, self.random.choice([0.01, 0.05, 0.4])))
        return phase

    def kill(self):
        phase = self.moment()
        victim = self.random.choice(["supervisor", "keeper", "trainer", "all"])
        self.told.append(f"{phase}/{victim}")
        if victim == "all":
            # As a machine dies: nobody may react to the others' end.
            pids = [self.child.pid, *processes_with(self.hf.tmp)]
            for sig in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    self.signal(pid, sig)
            until(lambda: not processes_with(self.hf.tmp), "all dead")
        else:
            pid = self.pid_of(victim)
            if pid is not None:
                self.signal(pid, signal.SIGKILL)
        if victim in ("supervisor", "all"):
            self.child.wait()

    @staticmethod
    def signal(pid, sig):
        try:
            os.kill(pid, sig)
        except ProcessLookupError:
            pass

    def verify(self):
        if (self.hf.tmp / "store" / "r" / "run.json").exists():
            self.hf.call("ckpt", "verify", "r")

    def finish(self):
        for _ in range(40):
            if self.child.wait(30) == 0:
                return
            assert self.child.proc.returncode in (75, 7, 137, 125, -signal.SIGKILL), self.child.err
            self.verify()
            self.start()
        raise AssertionError("it never finishes")

    def check_trace(self):
        """Attempts follow each other and never overlap; each goes on where a save stands."""
        last_attempt, last_step, done = 0, -1, set()
        for line in self.trace.read_text().splitlines():
            attempt, _, step = map(int, line.split())
            assert attempt >= last_attempt, f"attempt {attempt} works after {last_attempt} began"
            if attempt == last_attempt:
                assert step == last_step + 1
            else:
                assert step == 0 or step - 1 in done, "it goes on from a step that was done"
            last_attempt, last_step = attempt, step
            done.add(step)
        assert done == set(range(STEPS))


def one_round(hf, seed):
    this = Round(hf, seed)
    try:
        this.start()
        for _ in range(KILLS):
            this.kill()
            if this.over():
                this.verify()
                this.start()
        this.finish()
        assert (hf.tmp / "out").read_text() == loop_digest(STEPS)
        this.check_trace()
        this.verify()
        assert hf.left() == []
        assert hf.status()["outcome"] in ("finished", None)
    except BaseException:
        print(f"--- again: HOLDFAST_KILL_SEED={seed}; kills: {this.told}")
        raise


@pytest.mark.parametrize("seed", seeds(17, 1))
def test_killed_at_random_moments(hf, seed):
    one_round(hf, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(167, 1000))
def test_killed_at_five_hundred_random_moments(hf, seed):
    one_round(hf, seed)
