# SPDX-License-Identifier: Apache-2.0
"""One cell of test_matrix.py: a run that is brought to a moment, an event, and what must hold
afterwards whatever the two were. Moments are reached by conditions alone: the trainer stands at a
gate (trainers/gated.py), or the store at an object (store_gate.c, a simulation)."""
import errno
import hashlib
import json
import os
import signal
import subprocess
import time

from support import TOP, loop_digest, trainer, until

STEPS = 12
GRACE = 5
END = 2      # of a grace, what ending the tree takes
MARGIN = 3   # for a machine on which other tests run
CLAIM = "r/attempts/000001.json"


def gate_library():
    """Built once a test process."""
    made = TOP / "build" / f"store_gate.{os.getpid()}.so"
    if not made.exists():
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", TOP, "-o", made,
                        TOP / "tests" / "e2e" / "store_gate.c"], check=True)
    return made


class Cell:
    def __init__(self, hf, library, imds):
        self.hf = hf
        self.imds = imds
        self.store = hf.tmp / "store"
        self.gates = hf.tmp / "gates"
        self.gates.mkdir()
        self.notice = hf.tmp / "notice"
        self.rules_path = hf.tmp / "rules"
        self.held = hf.tmp / "rules.held"
        self.env = {**hf.env, "LD_PRELOAD": str(library), "STORE_GATE": str(self.rules_path)}
        self.options = [f"--store=file://{self.store}", f"--notice-file={self.notice}",
                        f"--grace={GRACE}s", "--block-size=4KiB", "--lanes=1", "--every=0",
                        "--heartbeat=200ms", "--dead-after=500ms", "--linger=1s"]
        self.child = None
        self.killed = False    # a supervisor was, at some time
        self.faults = []       # rules by which the store fails until the end of this child
        self.apart = False     # a new supervisor has just been started
        self.starts = 0        # of commands before that
        self.word = ""         # what the trainer is told at its gate
        self.begun = 0.0       # when the event came
        self.leaves = False    # it is a notice that stands

    # --- what it is made of ---

    def command(self):
        return trainer("gated.py", self.gates, "--steps", STEPS, "--trace", self.hf.tmp / "trace",
                       "--out", self.hf.tmp / "out", *self.trains)

    def start(self, hold="", crash=False, every=None, lingers=False):
        self.trains = ["--hold", hold] + (["--crash-at", 6] if crash else [])
        self.trains += ["--child"] if lingers else []
        if every:
            self.options[self.options.index("--every=0")] = f"--every={every}"
        self.again()

    def again(self):
        cloud = [] if self.imds is None else ["--provider=aws", "--poll=20ms",
                                              f"--metadata-endpoint={self.imds.url}"]
        self.child = self.hf.run_start(*self.options, *cloud, command=self.command(),
                                       env=self.env)

    def again_apart(self):
        self.apart = True
        self.starts = len(self.hf.events("command-started"))
        self.again()
        until(lambda: self.over() or self.mask("SigCgt") & 1 << signal.SIGUSR2 - 1,
              "its signal handlers")

    def mask(self, name):
        """One of the supervisor's sets of signals, as /proc tells it."""
        with open(f"/proc/{self.child.pid}/status") as f:
            return int(next(line for line in f if line.startswith(name)).split()[1], 16)

    def rules(self, *lines):
        scratch = self.hf.tmp / "rules.new"
        scratch.write_text("".join(line + "\n" for line in lines))
        self.held.unlink(missing_ok=True)
        scratch.rename(self.rules_path)

    def open(self, point, word=""):
        scratch = self.gates / f".{point}"
        scratch.write_text(word)
        scratch.rename(self.gates / point)

    def stands(self, point):
        until((self.gates / f"{point}.reached").exists, f"the trainer at '{point}'\n"
              + self.child.err)

    def is_held(self):
        until(lambda: self.held.exists() or self.over(), "a call that waits for the store")

    def over(self):
        return self.child.proc.poll() is not None

    def told(self, name, **fields):
        """Such an event; or the end, after which none will come."""
        def look():
            there = any(all(e.get(k) == v for k, v in fields.items())
                        for e in self.hf.events(name))
            return there or self.over() or self.state() == "ended"
        until(look, f"{name} {fields}; told so far: {self.hf.timeline()}")

    def state(self):
        try:
            return json.loads((self.hf.dir() / "status.json").read_text())["state"]
        except (OSError, ValueError):
            return None

    def attempt(self):
        return self.hf.events("claimed")[-1]["attempt"]

    # --- moments ---

    def preparing(self):
        self.rules(f"hold name {CLAIM}")
        self.start()
        self.is_held()

    def restoring(self):
        self.start("step")
        self.stands("step")
        self.hf.waits_for("verdict", step=2)
        self.open("all", "75")
        assert self.child.wait() == 75
        (self.gates / "all").unlink()
        (self.gates / "step.reached").unlink()
        self.hf.new_machine()
        self.env["HOLDFAST_STATE_DIR"] = str(self.hf.state)
        self.rules("hold get r/data/")
        self.again()
        self.is_held()

    def started(self):
        self.start("init")
        self.stands("init")
        self.told("command-started")

    def joined(self):
        self.start("first")
        self.stands("first")
        self.told("joined")

    def training(self):
        self.start("step")
        self.stands("step")
        self.hf.waits_for("verdict", step=2)

    def asked(self):
        self.start("step,save", every="20ms")
        self.hf.waits_for("request", reason="every")
        self.open("step")  # it may have been at it before it was asked
        self.stands("save")

    def shipping(self):
        self.rules("hold put r/data/")
        self.start("step")
        self.stands("step")
        self.hf.waits_for("saved")
        self.is_held()

    def noticed(self, hold):
        self.start(hold)
        self.stands("step")
        self.hf.waits_for("verdict", step=2)
        self.notice.touch()
        self.hf.waits_for("request", reason="notice")

    def leaving_asked(self):
        self.noticed("step,save")
        self.open("step")
        self.stands("save")

    def leaving_shipping(self):
        self.noticed("step,exit")
        self.rules("hold put r/data/")
        self.open("step")
        self.stands("exit")
        until(lambda: len(self.hf.events("saved")) == 2, "the save of the notice")
        self.is_held()

    def leaving_stopping(self):
        self.noticed("step,exit")
        self.open("step")
        self.stands("exit")
        until(lambda: self.state() == "stopping", "stopping")

    def pausing(self):
        self.start(crash=True)
        self.hf.waits_for("relaunch")

    def ending(self):
        self.rules("hold name .end.json")
        self.start()
        self.is_held()
        until(lambda: self.state() == "settling", "settling")

    def adopting(self):
        """The supervisor was killed; the next one reads of what it takes over."""
        self.training()
        self.killed = True
        self.signal(signal.SIGKILL)
        self.child.wait()
        self.rules("hold get r/checkpoints/")
        self.again_apart()
        self.is_held()

    def draining(self):
        """The command has failed; a process that it left lingers, for longer than the grace."""
        self.options[self.options.index("--linger=1s")] = "--linger=60s"
        self.start("step", lingers=True)
        self.stands("step")
        self.hf.waits_for("verdict", step=2)
        self.open("step", "7")
        self.hf.waits_for("command-exited")
        self.open("step")

    def recording(self):
        """It has crashed; that is being recorded."""
        self.rules("hold name .end.json")
        self.start(crash=True)
        self.is_held()
        until(lambda: self.state() == "settling", "settling")

    # --- events ---

    def comes(self, event):
        self.leaves = event in ("term", "hup", "usr1", "file", "cloud")
        self.begun = time.monotonic()
        getattr(self, event)()

    def signal(self, sig):
        if not self.over():
            self.child.kill(sig)

    def by_signal(self, sig):
        self.signal(sig)
        self.told("notice", source="signal")

    def term(self):
        self.by_signal(signal.SIGTERM)

    def hup(self):
        self.by_signal(signal.SIGHUP)

    def usr1(self):
        self.by_signal(signal.SIGUSR1)

    def usr2(self):
        self.signal(signal.SIGUSR2)

    def int(self):
        self.signal(signal.SIGINT)

    def int_twice(self):
        self.signal(signal.SIGINT)

        until(lambda: self.over() or not self.mask("ShdPnd") & 1 << signal.SIGINT - 1,
              "the first SIGINT is taken")
        self.signal(signal.SIGINT)

    def file(self):
        self.notice.touch()
        self.told("notice", source="file")

    def file_gone(self):
        self.file()
        self.notice.unlink()
        self.told("notice-withdrawn")

    def cloud(self):
        self.imds.give_notice(GRACE + 1)
        self.told("notice", source="aws")

    def cloud_gone(self):
        self.cloud()
        self.imds.notice = None
        self.told("notice-withdrawn")

    def supervisor_killed(self):
        self.killed = True
        self.signal(signal.SIGKILL)
        self.child.wait()
        self.rules()
        self.again_apart()

    def kill(self, pid, name):
        attempt = self.attempt()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # an event before this one has ended it
        if not self.apart:
            until(lambda: self.over() or self.hf.events(name, attempt)
                  or self.hf.events("tree-gone", attempt), name)

    def keeper_killed(self):
        self.kill(self.hf.keeper_pid_now(self.attempt()), "keeper-lost")

    def trainer_killed(self):
        self.kill(self.hf.command_pid(self.attempt()), "command-exited")

    def superseded(self):
        """Another machine claims the next attempt, and dies there. (Simulated.)"""
        folder = self.store / "r" / "attempts"
        last = max(folder.glob("??????.json"))
        claim = json.loads(last.read_text())
        claim["attempt"] += 1
        claim["nonce"] = "5" * 32
        claim["host"] = "another"
        claim["boot_id"] = "another"
        del claim["sum"]
        text = json.dumps(claim, separators=(",", ":"))[:-1]
        total = hashlib.sha256(text.encode()).hexdigest()
        (folder / f"{claim['attempt']:06}.json").write_text(f'{text},"sum":"{total}"}}')
        self.rules()
        until(lambda: self.over() or self.hf.events("superseded")
              or self.attempt() > claim["attempt"], "what follows from that")

    def exit_0(self):
        self.word = "0"

    def exit_75(self):
        self.word = "75"

    def fails(self, num):
        self.faults = [f"fail {num} put r/", f"fail {num} name r/"]
        self.rules(*self.faults)

    def unwritable(self):
        self.fails(errno.EROFS)

    def full(self):
        self.fails(errno.ENOSPC)

    def silent(self):
        """Training goes on, or ends, while the store says nothing."""
        self.rules("hold any r/")
        self.is_held()
        claimed = self.hf.events("claimed")
        if claimed and not self.apart and self.hf.events("command-started", self.attempt()):
            self.open("all")
            self.told("tree-gone")
            assert time.monotonic() - self.begun < GRACE + END + MARGIN

    # --- what must hold ---

    def let_go(self):
        self.rules(*self.faults)
        if self.apart:
            until(lambda: self.over() or self.hf.events("adopted") or self.hf.events("tree-gone")
                  or len(self.hf.events("command-started")) > self.starts,
                  "the taking over\n" + self.child.err)
        if self.leaves:  # what a notice asks for is asked before the trainer comes to its end
            until(lambda: self.over() or self.state() != "running", "leaving")
        if not (self.gates / "all").exists():
            self.open("all", self.word)

    def ends(self, allowed):
        status = self.child.wait(30)
        took = time.monotonic() - self.begun
        logs = 10 if self.faults else 0  # its last lines are tried to be kept, without a notice
        assert took < GRACE + END + MARGIN + logs, f"{took:.1f} s\n{self.child.err}"
        assert status in allowed, f"{status}, not {allowed}\n{self.child.err}"
        until(lambda: self.hf.left() == [], f"no process: {self.hf.left()}", 5)
        self.agree(status)
        self.verify()
        if not self.killed and not self.faults:
            litter = [p for p in self.store.rglob(".tmp-*")]
            assert litter == []

    def agree(self, status):
        """Outcome, exit status, events, the store and `status --json` tell one story."""
        if not self.hf.events("claimed"):
            return
        seen = self.hf.status()
        ended = self.hf.events("attempt-ended")
        if not ended:
            assert self.killed
            return
        last = ended[-1]
        if seen["outcome"] is not None:
            assert seen["outcome"] == last["outcome"]
            assert seen["exit_status"] == status
        means = {"finished": [0], "preempted": [75], "failed": [137, 7, 75], "vanished": [125],
                 "stopped": [130, 137, 140, 7] + [0] * (self.word == "0"),
                 "not-started": [125], "superseded": [125]}
        if not self.hf.events("relaunch") and not self.killed:
            assert status in means[last["outcome"]]
        assert last["recorded"] or self.faults
        if last["recorded"]:
            path = self.store / "r" / "attempts" / f"{last['attempt']:06}.end.json"
            assert json.loads(path.read_text())["outcome"] == last["outcome"]
        rows = self.hf.ckpt()
        good = [e for e in self.hf.events("verdict") if e["kind"] == "local"]
        if good:
            newest = (good[-1]["from_attempt"], good[-1]["number"], good[-1]["step"])
            assert newest <= (rows[-1]["attempt"], rows[-1]["number"], rows[-1]["step"])
        if seen.get("save") and seen["save"]["step"] is not None and not self.killed:
            assert seen["save"]["step"] == rows[-1]["step"]

    def verify(self):
        if (self.store / "r" / "run.json").exists():
            self.hf.call("ckpt", "verify", "r")

    def goes_on(self, finished):
        """The next start: nothing is in its way, it resumes from the newest, and the end is that of
        an undisturbed training."""
        self.imds = None
        self.notice.unlink(missing_ok=True)
        self.open("all")
        self.env = dict(self.hf.env)
        for _ in range(3):
            rows = self.hf.ckpt() if self.hf.events("claimed") else []
            before = len(self.hf.events("restored"))
            self.again()
            status = self.child.wait(30)
            restored = self.hf.events("restored")[before:]
            if restored and rows:
                newest = (rows[-1]["attempt"], rows[-1]["number"])
                assert restored[0]["any"]
                got = (restored[0]["from_attempt"], restored[0]["number"])
                assert got == newest or (self.hf.events("recovered") and got > newest)
            if status == 0:
                break
        assert status == 0, self.child.err
        self.verify()
        if not finished:
            assert (self.hf.tmp / "out").read_text() == loop_digest(STEPS)
            self.check_trace()
        self.check_restores()
        assert self.hf.left() == []

    def check_restores(self):
        """Each restore took the newest checkpoint that had been reported."""
        newest = (0, 0)
        for e in self.hf.events():
            if e["event"] == "verdict" and e["kind"] == "local":
                newest = max(newest, (e["from_attempt"], e["number"]))
            elif e["event"] == "restored":
                got = (e["from_attempt"], e["number"]) if e["any"] else (0, 0)
                assert got >= newest

    def check_trace(self):
        last_attempt, last_step, done = 0, -1, set()
        for line in (self.hf.tmp / "trace").read_text().splitlines():
            attempt, step = map(int, line.split())
            assert attempt >= last_attempt, f"attempt {attempt} works after {last_attempt} began"
            if attempt == last_attempt:
                assert step == last_step + 1
            else:
                assert step == 0 or step - 1 in done, "it goes on from a step that was done"
            last_attempt, last_step = attempt, step
            done.add(step)
        assert done == set(range(STEPS))
