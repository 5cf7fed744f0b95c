# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: one Holdfast with a state folder of its own, and waiting for
conditions. Nothing here sleeps for a fixed time: it polls until a deadline."""
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("HOLDFAST_BIN", TOP / "build" / "holdfast")).absolute()
TRAINERS = Path(__file__).resolve().parent / "trainers"
PYTHON = sys.executable
DEADLINE = 30.0
LONG = bool(os.environ.get("HOLDFAST_TEST_LONG"))


def until(condition, what, deadline=DEADLINE):
    """Returns what condition() returned first that is true."""
    end = time.monotonic() + deadline
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {deadline:g} s: {what}")
        time.sleep(0.01)


def loop_digest(steps, rank=0):
    """What trainers/loop.py ends with if no step is lost, repeated or made up."""
    digest = hashlib.sha256(b"rank %d" % rank).hexdigest()
    for step in range(steps):
        digest = hashlib.sha256(f"{digest}:{step}".encode()).hexdigest()
    return digest


def trainer(name, *options):
    return [PYTHON, str(TRAINERS / name), *map(str, options)]


def shell(script, *args):
    return ["sh", "-c", script, "sh", *map(str, args)]


def process(pid):
    """state letter and start time of a process, or None when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text[text.rindex(")") + 2:].split()
    return fields[0], int(fields[19])


def alive(pid):
    now = process(pid)
    return now is not None and now[0] not in "ZX"


def processes_with(text):
    """Pids of living processes whose environment or command line holds `text`."""
    needle = os.fsencode(str(text))
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            data = (Path("/proc", entry, "environ").read_bytes()
                    + Path("/proc", entry, "cmdline").read_bytes())
        except OSError:
            continue
        if needle in data and alive(int(entry)):
            found.append(int(entry))
    return found


def tree_digest(folder):
    """Names, kinds, modes, links and content of all that a folder holds."""
    total = hashlib.sha256()
    for root, dirs, files in os.walk(folder):
        dirs.sort()
        for name in sorted(dirs + files):
            path = Path(root, name)
            st = path.lstat()
            total.update(f"{path.relative_to(folder)} {st.st_mode:o}\n".encode("utf-8",
                                                                              "surrogateescape"))
            if path.is_symlink():
                total.update(os.fsencode(os.readlink(path)))
            elif path.is_file():
                total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


class Child:
    """One `holdfast` that was started; its output is kept in two files."""

    def __init__(self, hf, args, number, **popen):
        self.hf = hf
        self.out_path = hf.tmp / f"out.{number}"
        self.err_path = hf.tmp / f"err.{number}"
        self.args = [*popen.pop("before", []), str(popen.pop("program", BIN)), *args]
        popen.setdefault("stdin", subprocess.DEVNULL)
        popen.setdefault("cwd", hf.work)
        popen.setdefault("env", hf.env)
        out = popen.pop("stdout", None)
        self._files = [open(self.out_path, "wb") if out is None else out,
                       open(self.err_path, "wb")]
        self.proc = subprocess.Popen(self.args, stdout=self._files[0], stderr=self._files[1],
                                     **popen)
        for file in self._files:
            if not isinstance(file, int):
                file.close()
        self.pid = self.proc.pid

    @property
    def out(self):
        return self.out_path.read_bytes().decode("utf-8", "surrogateescape")

    @property
    def err(self):
        return self.err_path.read_bytes().decode("utf-8", "surrogateescape")

    @property
    def warnings(self):
        return [line for line in self.err.splitlines()
                if line.startswith(("holdfast: warning:", "holdfast: error:"))]

    def kill(self, sig=signal.SIGKILL):
        self.proc.send_signal(sig)

    def wait(self, deadline=60):
        try:
            return self.proc.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"not ended within {deadline} s: {self.args}\n{self.err}") from None

    def waits_for_output(self, text, deadline=DEADLINE):
        until(lambda: text in self.out, f"{text!r} on stdout", deadline)

    def waits_for_error(self, text, deadline=DEADLINE):
        until(lambda: text in self.err, f"{text!r} on stderr", deadline)


class Holdfast:
    """The binary with a state folder and a working folder that nobody else has."""

    def __init__(self, tmp):
        self.tmp = tmp
        self.state = tmp / "state"
        self.work = tmp / "work"
        self.work.mkdir()
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("HOLDFAST_", "AWS_", "SLURM_", "OMPI_", "PMI_"))
                    and k not in ("WORLD_SIZE", "RANK", "LOCAL_RANK")}
        self.env["HOLDFAST_STATE_DIR"] = str(self.state)
        # A second save before the deadline takes the whole notice: test_saving.py asks for it.
        self.env["HOLDFAST_USE_WINDOW"] = "false"
        self.env["PYTHONPATH"] = str(TOP / "hooks" / "python")
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"
        self.children = []
        self.machines = 1

    @staticmethod
    def program():
        return BIN

    def new_machine(self):
        """From now on another state folder; what the old one held of saves is gone too. Only with
        a store of its own."""
        for save in self.state.glob("runs/*/save"):
            shutil.rmtree(save)
        self.machines += 1
        self.state = self.tmp / f"state{self.machines}"
        self.env["HOLDFAST_STATE_DIR"] = str(self.state)

    def preempt(self, command, *options, run="r", after=1, **popen):
        """Runs the command, gives it a notice some steps later, and returns once it has left."""
        notice = self.tmp / "preempt"
        notice.unlink(missing_ok=True)
        before = len(self.events("claimed", run=run))
        child = self.run_start(f"--notice-file={notice}", *options, run=run, command=command,
                               **popen)
        attempt = until(lambda: self.events("claimed", run=run)[before:],
                        "the claim")[0]["attempt"]
        until(lambda: self.step(attempt, run) >= 0 or child.proc.poll() is not None, "a step")
        first = self.step(attempt, run)
        until(lambda: self.step(attempt, run) >= first + after, f"{after} steps")
        notice.touch()
        child.status = child.wait()
        notice.unlink(missing_ok=True)
        return child

    def step(self, attempt=1, run="r"):
        """The newest step that a rank has published, -1: none (docs/protocols.md)."""
        try:
            data = (self.dir(run) / str(attempt) / "c").read_bytes()
        except FileNotFoundError:
            return -1
        slots = range(8192, len(data), 128)
        return max((int.from_bytes(data[at + 64:at + 72], "little", signed=True)
                    for at in slots if data[at + 20]), default=-1)

    def start(self, *args, **popen):
        child = Child(self, [str(a) if not isinstance(a, bytes) else a for a in args],
                      len(self.children) + 1, **popen)
        self.children.append(child)
        return child

    def run_start(self, *options, command, run="r", **popen):
        """`holdfast run`; no cloud is asked for unless the options name one."""
        options = [str(o) for o in options]
        if not any(o.startswith(("--provider", "--metadata-endpoint")) for o in options):
            options.append("--provider=none")
        return self.start("run", f"--run={run}", *options, "--", *command, **popen)

    def run(self, *options, command, run="r", deadline=60, **popen):
        child = self.run_start(*options, command=command, run=run, **popen)
        child.status = child.wait(deadline)
        return child

    def call(self, *args, status=0, **popen):
        child = self.start(*args, **popen)
        assert child.wait() == status, child.err
        return child

    def json(self, *args):
        return json.loads(self.call(*args, "--json").out)

    def status(self, run="r"):
        return self.json("status", run)["runs"][0]

    def ckpt(self, run="r"):
        """The checkpoints that the store holds, oldest first."""
        return [row for row in self.json("ckpt", "ls", run)["checkpoints"]
                if row["kind"] == "checkpoint"]

    def dir(self, run="r"):
        """A run's folder; with a store of its own, or a long name, it is called otherwise."""
        runs = self.state / "runs"
        cut = f"{run[:25]}~*" if len(run) > 32 else run
        return next(runs.glob(f"{cut}@*"), next(runs.glob(cut), runs / run))

    def events(self, name=None, attempt=None, run="r"):
        path = self.dir(run) / "events.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        found = [json.loads(line) for line in lines if line.endswith("\n")]
        return [e for e in found if (name is None or e["event"] == name)
                and (attempt is None or e["attempt"] == attempt)]

    def waits_for(self, name, attempt=None, run="r", deadline=DEADLINE, **fields):
        """The first such event."""
        def look():
            return next((e for e in self.events(name, attempt, run)
                         if all(e.get(k) == v for k, v in fields.items())), None)
        try:
            return until(look, f"event {name} {fields}", deadline)
        except AssertionError as e:
            raise AssertionError(f"{e}; told so far: {self.timeline(run)}") from None

    def timeline(self, run="r"):
        return "\n".join(json.dumps({k: v for k, v in e.items() if k != "ns"})
                         for e in self.events(run=run))

    def keeper_pid_now(self, attempt, run="r"):
        return json.loads((self.dir(run) / str(attempt) / "keeper.json").read_text())["pid"]

    def keeper_pid(self, attempt=1, run="r"):
        path = self.dir(run) / str(attempt) / "keeper.json"
        return until(lambda: path.exists() and json.loads(path.read_text()), str(path))["pid"]

    def supervisor_pid(self, run="r"):
        return until(lambda: self.status(run).get("supervisor_pid"), "a status")

    def command_pid(self, attempt=1, run="r"):
        return self.waits_for("command-started", attempt, run)["pid"]

    def left(self):
        """Processes that still belong to this Holdfast."""
        return processes_with(self.tmp)

    def clean_up(self):
        for _ in range(100):
            pids = self.left()
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            for child in self.children:
                child.proc.poll()
            if not pids:
                return
            time.sleep(0.01)
        raise AssertionError(f"processes that cannot be ended: {self.left()}")
