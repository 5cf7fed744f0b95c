# SPDX-License-Identifier: Apache-2.0
"""The whole program with its Nth file, store or spawn call failing, N = 1, 2, 3 … until a run has
no fault left to inject, under ASan and UBSan.

Each time: nothing leaks or is misused, the program ends, no process is left behind, and a clean
run afterwards goes on from the newest checkpoint that was reported committed (or a newer one) and
ends with the digest of an undisturbed run. The short form takes every 7th call; the long form
(HOLDFAST_TEST_LONG) takes them all.
"""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
BIN = TOP / "build/san-faults/holdfast"
LOOP = TOP / "tests/e2e/trainers/loop.py"
STEPS = 60
LONG = bool(os.environ.get("HOLDFAST_TEST_LONG"))


@pytest.fixture(scope="session")
def faulty_binary():
    subprocess.run(["make", "-s", "SAN=1", "FAULTS=1", str(BIN.relative_to(TOP))], cwd=TOP,
                   check=True, stdout=subprocess.DEVNULL)
    return BIN


@pytest.fixture(scope="session")
def plain_digest():
    env = dict(os.environ, PYTHONPATH=str(TOP / "hooks/python"))
    out = subprocess.run([sys.executable, LOOP, "--steps", str(STEPS), "--step-ms", "0"], env=env,
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    return [line for line in out.splitlines() if line.startswith("digest")][0]


def events(state):
    found = []
    for path in state.glob("runs/*/events.jsonl"):
        for line in path.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                pass  # a line cut by the fault
    return found


def wait_for(condition, limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)  # the pace of looking, not a wait for luck
    return False


def left_over(token_prefix):
    """Processes that bear one of the run's tokens."""
    found = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            env = (proc / "environ").read_bytes().split(b"\0")
            if any(v.startswith(token_prefix) for v in env):
                if (proc / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(proc.name)
        except OSError:
            continue
    return found


def command(binary, state):
    return [str(binary), "run", "--state-dir", str(state), "--run", "f", "--every", "300ms",
            "--heartbeat", "500ms", "--provider", "none", "--", sys.executable, str(LOOP),
            "--steps", str(STEPS), "--step-ms", "15", "--own-every", "20"]


def run_faulted(binary, state, fault, env):
    p = subprocess.Popen(command(binary, state), env=dict(env, HOLDFAST_FAULT=fault),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         start_new_session=True)
    stepped = wait_for(lambda: p.poll() is not None or
                       any(e["event"] == "first-step" for e in events(state)), 20)
    if stepped and p.poll() is None:
        p.send_signal(signal.SIGTERM)
    try:
        out, err = p.communicate(timeout=40)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)
        out, err = p.communicate()
        pytest.fail(f"{fault}: hangs\n{err}")
    return p.returncode, out, err


def one_round(binary, state, fault, plain_digest):
    env = dict(os.environ, PYTHONPATH=str(TOP / "hooks/python"),
               ASAN_OPTIONS="detect_leaks=1:exitcode=99", UBSAN_OPTIONS="halt_on_error=1",
               FAULT_TEST=str(state))
    env.pop("HOLDFAST_FAULT", None)
    code, out, err = run_faulted(binary, state, fault, env)
    what = f"{fault}: exit {code}\n{err}"
    for bad in ("AddressSanitizer", "LeakSanitizer", "runtime error"):
        assert bad not in err, what
    assert code in (0, 75, 125, 126, 127), what
    mine = b"FAULT_TEST=" + str(state).encode()
    assert wait_for(lambda: not left_over(mine), 15), f"{what}\nleft over: {left_over(mine)}"
    kept = [e["step"] for e in events(state)
            if e["event"] == "verdict" and e["kind"] in ("local", "durable")]

    for _ in range(3):
        before = len(events(state))
        again = subprocess.run(command(binary, state), env=env, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, timeout=60)
        restored = [e for e in events(state)[before:] if e["event"] == "restored"]
        if restored and kept:
            assert restored[0]["any"] and restored[0]["step"] >= max(kept), what + again.stderr
        if again.returncode == 0:
            break
    assert again.returncode == 0, what + again.stderr
    digests = [line for line in (out + again.stdout).splitlines() if line.startswith("digest")]
    assert digests and digests[-1] == plain_digest, what + again.stderr
    verify = subprocess.run([str(binary), "ckpt", "verify", "f", "--state-dir", str(state)],
                            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert verify.returncode == 0, what + verify.stdout
    return "holdfast-fault:" in err


@pytest.mark.parametrize("domain", ["file", "store", "spawn"])
def test_every_call_fails_in_turn(domain, tmp_path, faulty_binary, plain_digest):
    stride = 1 if LONG or domain == "spawn" else 7
    n = 1
    while one_round(faulty_binary, tmp_path / f"{domain}{n}", f"{domain}:{n}", plain_digest):
        n += stride
    print(f"{domain}: no call left to fail at {n}")
    assert n > 1, "no fault was ever injected"
