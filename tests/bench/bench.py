#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Holdfast costs, measured against the same command without it. `make bench` builds and runs
it; names pick items: bench.py startup memory. Every number is measured here and now: a busy
machine shows in it. Exit status 1 when a goal is missed, 2 when something could not be measured.
"""
import argparse
import datetime
import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
HOLDFAST = TOP / "build/holdfast"
STAMP = TOP / "build/bench/stamp"
STEPS = TOP / "build/bench/steps"
STEPS_PY = TOP / "tests/bench/steps.py"
LOOP_PY = TOP / "tests/e2e/trainers/loop.py"


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Metadata(http.server.ThreadingHTTPServer):
    """Enough of AWS's metadata service: tokens, calm, and a notice once `notice` is set."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.daemon_threads = True
        self.notice = False
        self.told_ns = 0
        self.polls = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def endpoint(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def reply(self, status, body, headers=()):
        data = body.encode()
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_PUT(self):
        self.reply(200, "token", [("X-aws-ec2-metadata-token-ttl-seconds", "21600")])

    def do_GET(self):
        server = self.server
        if not self.path.endswith("/spot/instance-action"):
            self.reply(200, "i-0123456789abcdef0")
            return
        server.polls += 1
        if not server.notice:
            self.reply(404, "")
            return
        at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=120)
        self.reply(200, '{"action": "terminate", "time": "%s"}' % at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        server.told_ns = server.told_ns or now_ns()

    def log_message(self, *_):
        pass


class Bench:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
        self.env["HOLDFAST_STATE_DIR"] = str(self.folder / "state")
        self.env["PYTHONPATH"] = str(TOP / "hooks/python")
        self.runs = 0
        self.missed = False

    def wrapped(self, command, *options):
        """The command line under Holdfast, in a run of its own."""
        self.runs += 1
        return [str(HOLDFAST), "run", "-q", "--run", f"bench-{self.runs}", *options, "--",
                *map(str, command)]

    def start(self, command):
        return subprocess.Popen(command, cwd=self.folder, env=self.env, text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)

    def out(self, command, status=0):
        child = self.start(command)
        text, _ = child.communicate(timeout=120)
        if child.returncode != status:
            raise RuntimeError(f"{command} ended with {child.returncode}, not {status}")
        return text

    def show(self, what, value, unit, goal=None, note=""):
        verdict = ""
        if goal is not None:
            ok = value <= goal
            self.missed = self.missed or not ok
            verdict = f"goal {goal:g} {unit}: {'met' if ok else 'MISSED'}"
        print(f"{what:<44} {value:>10.3f} {unit:<4} {verdict:<24} {note}".rstrip(), flush=True)


def wait_for(condition, what, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.005)


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def exec_times(bench, command, n):
    """Milliseconds from just before the start to the command's first instruction."""
    times = []
    for _ in range(n):
        begun = now_ns()
        text = bench.out(command())
        times.append((int(text) - begun) / 1e6)
    return statistics.median(times)


def startup(bench):
    bare = exec_times(bench, lambda: [str(STAMP)], 40)
    held = exec_times(bench, lambda: bench.wrapped([STAMP]), 40)
    bench.show("start to the command's first instruction", held - bare, "ms", 30,
               f"bare {bare:.2f} ms, {held / bare:.0f}x")
    times = {"bare": [], "held": []}
    for _ in range(20):
        for name, command in (("bare", ["true"]), ("held", bench.wrapped(["true"]))):
            begun = now_ns()
            bench.out(command)
            times[name].append((now_ns() - begun) / 1e6)
    bare, held = statistics.median(times["bare"]), statistics.median(times["held"])
    bench.show("`run -- true`, start to end", held - bare, "ms", None,
               f"bare {bare:.2f} ms, {held / bare:.0f}x")


def smaps(pid, field):
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field} of process {pid}")


def run_time_ns(pid):
    """CPU time of all threads, by the scheduler's own count."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total


def idle(bench, seconds=30):
    """Memory and CPU of supervisor and keeper while nothing happens, polling every second."""
    metadata = Metadata()
    child = bench.start(bench.wrapped(["sleep", "600"], "--provider", "aws", "--poll", "1s",
                                      "--metadata-endpoint", metadata.endpoint()))
    try:
        wait_for(lambda: metadata.polls >= 3, "three polls of the metadata service")
        keepers = [pid for pid in children(child.pid)
                   if os.readlink(f"/proc/{pid}/exe") == str(HOLDFAST)]
        if len(keepers) != 1:
            raise RuntimeError(f"{len(keepers)} keepers found, not 1")
        pids = [child.pid, keepers[0]]
        pss = [smaps(pid, "Pss") for pid in pids]
        rss = [smaps(pid, "Rss") for pid in pids]
        bench.show("idle memory, supervisor + keeper (PSS)", sum(pss), "MiB", 16,
                   f"supervisor {pss[0]:.1f}, keeper {pss[1]:.1f}")
        bench.show("the same, every shared page counted twice (RSS)", sum(rss), "MiB", None,
                   f"supervisor {rss[0]:.1f}, keeper {rss[1]:.1f}")
        begun, used = now_ns(), [run_time_ns(pid) for pid in pids]
        time.sleep(seconds)  # the length of the measurement
        used = [run_time_ns(pid) - before for pid, before in zip(pids, used)]
        wall = now_ns() - begun
        bench.show("CPU while idle, polling every second", 100 * sum(used) / wall, "%", 0.1,
                   f"of one core; keeper {100 * used[1] / wall:.3f} %")
    finally:
        child.terminate()
        child.wait(60)
        metadata.shutdown()


def step_cost(bench, name, command, unit_ns, unit, goal):
    outside = bench.out(command).split()
    inside = bench.out(bench.wrapped(command)).split()
    if outside[0] != "outside" or inside[0] != "active":
        raise RuntimeError(f"{name}: the client was {outside[0]} and {inside[0]}")
    value, bare = float(inside[1]) / unit_ns, float(outside[1]) / unit_ns
    bench.show(f'"must I save?" in {name}', value, unit, goal,
               f"outside Holdfast {bare:.3g} {unit}")


def step_c(bench):
    step_cost(bench, "C", [str(STEPS), "cost", "20000000"], 1, "ns", 50)


def step_python(bench):
    step_cost(bench, "Python", [sys.executable, str(STEPS_PY), "1000000"], 1000, "us", 1)


def notice(bench, times=7):
    """From the answer that carried the notice to the boundary at which the trainer is asked."""
    delays = []
    for _ in range(times):
        metadata = Metadata()
        child = bench.start(bench.wrapped(
            [STEPS, "watch"], "--provider", "aws", "--poll", "200ms", "--no-use-window",
            "--metadata-endpoint", metadata.endpoint()))
        try:
            wait_for(lambda m=metadata: m.polls >= 3, "three polls of the metadata service")
            metadata.notice = True
            text, _ = child.communicate(timeout=60)
        finally:
            child.kill()
            child.wait()
            metadata.shutdown()
        if child.returncode != 75:
            raise RuntimeError(f"the preempted run ended with {child.returncode}, not 75")
        delays.append((int(text.split()[0]) - metadata.told_ns) / 1e6)
    bench.show("notice answered -> asked in the trainer (worst)", max(delays), "ms", 50,
               f"median {statistics.median(delays):.1f} ms, steps of 1 ms, {times} times")


def commit_times(bench, late_s, times):
    """Milliseconds from the last of four ranks' reports to the commit, over a link that is held to
    64 MiB/s; one rank writes its part that much later than the others."""
    took = []
    for _ in range(times):
        loop = [sys.executable, str(LOOP_PY), "--steps", "20", "--own-every", "20", "--step-ms",
                "5", "--noise", "--pad", str(24 << 20)]
        waits = [200, 200, 200, 200 + int(1000 * late_s)]
        ranks = " ".join(f'RANK={rank} WORLD_SIZE=4 "$@" --save-ms {wait} &'
                         for rank, wait in enumerate(waits))
        bench.out(bench.wrapped(["sh", "-c", ranks + " wait", "sh", *loop], "--every=0",
                                "--block-size=1MiB", "--limit-rate=64MiB"))
        events = next(bench.folder.glob(f"state/runs/bench-{bench.runs}*/events.jsonl"))
        verdict = [e for e in map(json.loads, events.read_text().splitlines())
                   if e["event"] == "verdict"][0]
        if verdict["kind"] != "local":
            raise RuntimeError(f"the save failed: {verdict['why']}")
        took.append(verdict["took_ms"])
    return statistics.median(took)


def ahead(bench, times=3):
    """How much of a save is left for the end when three of its four parts were complete before."""
    together = commit_times(bench, 0, times)
    apart = commit_times(bench, 3, times)
    bench.show("last report -> commit, 3 of 4 parts ahead", apart, "ms", None,
               f"all 4 parts at once {together:.0f} ms, at 64 MiB/s")
    bench.show("  of what it takes with nothing ahead", apart / together, "x", 0.5)


def one_save(bench, source, options):
    """Milliseconds of the save of a folder that is moved in, and seconds of CPU of all of it."""
    with tempfile.TemporaryDirectory(prefix="hf-bench-", dir="/dev/shm") as store:
        into = bench.folder / "watched"
        into.mkdir(exist_ok=True)
        script = (f'mv {source} {into}/step_1; until ls {store}/*/checkpoints/*-000001.json '
                  f'>/dev/null 2>&1; do sleep 0.05; done; mv {into}/step_1 {source}')
        command = bench.wrapped(["sh", "-c", script], f"--store=file://{store}", "--provider=none",
                                f"--checkpoint-dir={into}", "--checkpoint-quiet=100ms",
                                "--store-survives", *options)
        child = bench.start(command)
        _, status, used = os.wait4(child.pid, 0)
        child.stdout.close()
        if status != 0:
            raise RuntimeError(f"a save ended with {status}")
    events = next(bench.folder.glob(f"state/runs/bench-{bench.runs}@*")) / "events.jsonl"
    found = [json.loads(line) for line in events.read_text().splitlines()]
    took = next(e["took_ms"] for e in found if e["event"] == "verdict")
    return took, used.ru_utime + used.ru_stime


def encryption(bench, times=5):
    """1 GiB of random data in memory, saved into a store in memory, with and without."""
    key = bench.folder / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    with tempfile.TemporaryDirectory(prefix="hf-bench-", dir="/dev/shm") as home:
        source = Path(home) / "ready"
        source.mkdir()
        for i in range(4):
            with open(source / f"part{i}.bin", "wb") as f:
                for _ in range(16):
                    f.write(os.urandom(16 << 20))
        bench.folder, before = Path(home), bench.folder
        bench.env["HOLDFAST_STATE_DIR"] = str(Path(home) / "state")
        plain, sealed = [], []
        for _ in range(times):
            plain.append(one_save(bench, source, []))
            sealed.append(one_save(bench, source, [f"--key-file={key}"]))
        bench.folder = before
        bench.env["HOLDFAST_STATE_DIR"] = str(before / "state")
    wall = [statistics.median(t for t, _ in row) for row in (plain, sealed)]
    cpu = [statistics.median(c for _, c in row) for row in (plain, sealed)]
    bench.show("a save of 1 GiB, encrypted : not, time", wall[1] / wall[0], "x", None,
               f"{wall[0]:.0f} ms not encrypted, {wall[1]:.0f} ms encrypted, in memory")
    bench.show("the same, CPU", cpu[1] / cpu[0], "x", None,
               f"{cpu[0]:.2f} s and {cpu[1]:.2f} s a GiB")


ITEMS = {"startup": startup, "idle": idle, "step-c": step_c, "step-python": step_python,
         "notice": notice, "ahead": ahead, "encryption": encryption}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("items", nargs="*", metavar="ITEM", help=", ".join(ITEMS))
    args = parser.parse_args()
    wrong = [name for name in args.items if name not in ITEMS]
    if wrong:
        parser.error(f"no item '{wrong[0]}'; there are {', '.join(ITEMS)}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="hf-bench-") as folder:
        bench = Bench(folder)
        for name in args.items or ITEMS:
            try:
                ITEMS[name](bench)
            except (RuntimeError, OSError, ValueError, subprocess.SubprocessError) as error:
                failed = True
                print(f"{name}: not measured: {error}", flush=True)
    return 2 if failed else int(bench.missed)


if __name__ == "__main__":
    sys.exit(main())
