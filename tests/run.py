#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs parts of the test suite and ends with one line: N passed, N failed, N skipped.

Parts: unit, faults (cmocka programs), replay (fuzz corpora), models (spin), e2e (pytest).
Output is shown for what fails, with the line that runs it again. A skip must have a reason
("skip: REASON" printed before cmocka's skip(), pytest's reason); one without, and one whose
reason starts with "avoidable:", counts as a failure.
"""
import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
RESULTS = TOP / "build" / "results"
LONG = bool(os.environ.get("HOLDFAST_TEST_LONG"))
FLAVOUR = os.environ.get("HOLDFAST_TEST_FLAVOUR", "san")  # "cover": see `make cover`
FAULTS = "san-faults" if FLAVOUR == "san" else FLAVOUR
PROGRAMS = {
    # part: (folder of its programs, seconds that a program may take)
    "unit": (TOP / "build" / FLAVOUR / "unit", 600 if LONG else 120),
    "faults": (TOP / "build" / FAULTS / "faults", 3600 if LONG else 600),
    "replay": (TOP / "build/san/replay", 120),
}


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.skips = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.skips += other.skips

    def skip(self, name, reason):
        if reason not in ("", "unconditional skip") and not reason.startswith("avoidable:"):
            self.skipped += 1
            self.skips.append(f"{name}: {reason}")
        else:
            self.failed += 1
            self.skips.append(f"{name}: FAILS, skipped with {reason or 'no reason'}")

    def line(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def read_tap(name, text):
    """What a cmocka program said. Returns the tally and whether its plan was kept."""
    tally, planned, seen, reason = Tally(), None, 0, ""
    for line in text.splitlines():
        plan = re.match(r"1\.\.(\d+)$", line)
        said = re.match(r"(not )?ok \d+ (# SKIP )?(- )?(.*)", line)
        note = re.search(r"skip: (.+)", line)
        if plan:
            planned = (planned or 0) + int(plan.group(1))
        elif said:
            seen += 1
            if said.group(2):
                tally.skip(f"{name} {said.group(4)}", reason)
            elif said.group(1):
                tally.failed += 1
            else:
                tally.passed += 1
            reason = ""
        elif note:
            reason = note.group(1).strip()
    return tally, planned == seen


def run_program(part, path, limit):
    command = [str(path)]
    if part == "replay":
        corpus = TOP / "tests/fuzz/corpus" / path.name.removeprefix("replay_")
        command += [str(corpus)]
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT="TAP")
    env.setdefault("ASAN_OPTIONS", "detect_stack_use_after_return=1:abort_on_error=0")
    env.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
    log = RESULTS / f"{part}-{path.name}.txt"
    begun = time.monotonic()
    with open(log, "wb") as out:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, cwd=TOP, env=env,
                                 start_new_session=True)
        try:
            status = child.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            child.wait()
            status = f"no end within {limit} s"
    text = log.read_text(errors="replace")
    tally, kept = read_tap(path.name, text)
    if not kept and tally.passed + tally.failed + tally.skipped == 0 and status == 0:
        tally.passed = 1  # not a cmocka program: its exit status is all it says
    elif (status != 0 and tally.failed == 0) or not kept:
        tally.failed += 1  # it crashed, leaked, or stopped before its plan was done
    return tally, status, text, time.monotonic() - begun


def run_programs(part, only):
    folder, limit = PROGRAMS[part]
    sources = TOP / "tests" / ("fuzz" if part == "replay" else part)
    prefix = "fuzz_" if part == "replay" else "test_"
    paths = []
    for source in sorted(sources.glob(prefix + "*.c")):
        name = source.stem.removeprefix(prefix)
        if only and only != name:
            continue
        paths.append(folder / (("replay_" if part == "replay" else prefix) + name))
    total = Tally()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        results = pool.map(lambda path: run_program(part, path, limit), paths)
        for path, (tally, status, text, seconds) in zip(paths, results):
            total.add(tally)
            name = path.name.split("_", 1)[1]
            if tally.failed:
                print(text.rstrip()[-20000:])
                print(f"FAILED: {path.relative_to(TOP)} (status {status}); again: "
                      f"make {part} T={name}", flush=True)
            else:
                print(f"{part} {name}: {tally.line()} ({seconds:.1f} s)", flush=True)
    return total


def run_models():
    script = TOP / "tests/model/run.sh"
    done = subprocess.run(["bash", str(script)], cwd=TOP, stdout=subprocess.PIPE, text=True,
                          check=False)
    total = Tally()
    for line in done.stdout.splitlines():
        total.passed += line.startswith("ok ")
        total.failed += line.startswith("not ok ")
        print(line, flush=True)
    if done.returncode != 0 and total.failed == 0:
        total.failed += 1
    return total


def run_e2e(expression):
    python = TOP / ".venv/bin/python"
    # They mostly wait, so more of them than there are processors run at a time.
    report = RESULTS / "e2e.xml"
    report.unlink(missing_ok=True)
    command = [str(python if python.exists() else sys.executable), "-m", "pytest", "-q",
               "-p", "no:cacheprovider", "--tb=short",
               "-n", str(2 * (os.cpu_count() or 1)), "--dist", "worksteal",
               f"--junitxml={report}", "tests/e2e"]
    if expression:
        command += ["-k", expression]
    status = subprocess.run(command, cwd=TOP, stdin=subprocess.DEVNULL, check=False).returncode
    total = Tally()
    if report.exists():
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname')} {case.get('name')}"
            skipped = case.find("skipped")
            if case.find("failure") is not None or case.find("error") is not None:
                total.failed += 1
                print(f"FAILED: {name}; again: make e2e K={case.get('name').split('[')[0]}")
            elif skipped is not None:
                total.skip(name, (skipped.get("message") or "").strip())
            else:
                total.passed += 1
    if status != 0 and total.failed == 0:
        total.failed += 1  # nothing collected, or pytest itself failed
    return total


def main():
    # A shell's background job ignores these, and so would every program started here.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-t", metavar="NAME", help="only this program")
    parser.add_argument("-k", metavar="EXPRESSION", help="pytest -k")
    parser.add_argument("parts", nargs="+", choices=[*PROGRAMS, "models", "e2e"])
    args = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    total = Tally()
    for part in args.parts:
        begun = time.monotonic()
        if part in PROGRAMS:
            tally = run_programs(part, args.t)
        else:
            tally = run_models() if part == "models" else run_e2e(args.k)
        if len(args.parts) > 1:
            print(f"{part}: {tally.line()} ({time.monotonic() - begun:.0f} s)", flush=True)
        total.add(tally)
    for skip in total.skips:
        print(f"skipped: {skip}")
    if total.passed + total.failed == 0:
        print("no test ran")
        total.failed += 1
    print(total.line(), flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
