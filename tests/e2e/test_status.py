# SPDX-License-Identifier: Apache-2.0
"""What `status` and `ckpt` tell, as JSON: every field that docs/status.md promises, times in UTC
with their ages, null for what is not known, and "unknown" where nobody can vouch for it."""
import datetime
import json
import os
import re
import signal

import pytest

from support import TOP, shell, trainer, until

FOREVER = trainer("loop.py", "--steps", 100000, "--step-ms", 5)
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")

WORD = str
NUMBER = int
RUN = {
    "format": NUMBER, "run": WORD, "store": WORD, "store_kind": WORD, "state": WORD,
    "store_silent_since": UTC, "store_create_only": bool,
    "since": UTC, "last_state": WORD, "supervised": bool, "attempt": NUMBER,
    "supervisor_pid": NUMBER, "command_pid": NUMBER, "protected_by": WORD, "unprotected": bool,
    "ranks": dict, "every_ms": NUMBER, "watch": dict, "notice": dict, "save": dict,
    "heartbeat": UTC, "log": dict,
    "outcome": WORD, "exit_status": NUMBER, "events_dropped": NUMBER, "updated": UTC,
    "updated_boot_ms": NUMBER, "boot_id": WORD, "pid_ns": NUMBER, "supervisor_start": NUMBER,
    "host": WORD, "asked": WORD, "evidence": list, "log": dict,
}
PARTS = {
    "ranks": {"world": NUMBER, "joined": NUMBER, "life": NUMBER, "step": NUMBER, "step_at": UTC},
    "save": {"verdict": WORD, "step": NUMBER, "tried_step": NUMBER, "attempt": NUMBER,
             "number": NUMBER, "bytes": NUMBER, "reason": WORD, "why": WORD, "at": UTC},
    "log": {"dropped_bytes": NUMBER, "why": WORD, "stored_pieces": NUMBER, "stored_bytes": NUMBER,
            "not_stored_bytes": NUMBER, "stored_at": UTC, "store_failing": bool},
}


def check(obj, schema, optional=()):
    for name, kind in schema.items():
        if name in optional and name not in obj:
            continue
        assert name in obj, name
        value = obj[name]
        if isinstance(kind, re.Pattern):
            age = obj[name + "_age_s"]
            if value is None:
                assert age is None, name
                continue
            assert kind.fullmatch(value), (name, value)
            text = value.replace("Z", "+00:00")
            real = datetime.datetime.now(datetime.timezone.utc) - datetime.datetime.fromisoformat(
                text)
            assert type(age) is int and abs(real.total_seconds() - age) < 3, (name, value, age)
        elif value is not None:
            assert type(value) is kind, (name, value)


def check_run(run):
    check(run, RUN, optional=("format",))
    for name, schema in PARTS.items():
        if run[name] is not None:
            check(run[name], schema)
    assert UTC.fullmatch(run["asked"])
    for proof in run["evidence"]:
        check(proof, {"by": WORD, "what": WORD, "at": UTC})


def evidence(run):
    return "; ".join(proof["what"] for proof in run["evidence"])


def started(hf, *options, command=FOREVER):
    child = hf.run_start(*options, command=command)
    until(lambda: hf.step() >= 3, "three steps")
    return child


def test_no_run_at_all(hf):
    assert hf.json("status") == {"format": 1, "runs": []}
    assert "no runs" in hf.call("status").out


def test_the_documented_fields_are_these():
    page = (TOP / "docs" / "status.md").read_text()
    documented = set()
    for line in page.splitlines():
        if line.startswith("| `"):
            documented |= set(re.findall(r"`(\w+)`", line.split("|")[1]))
    assert documented == set(RUN) - {"format"}


def test_a_running_one(hf):
    child = started(hf)
    run = until(lambda: (r := hf.status())["ranks"]["step"] is not None and r, "a step")
    check_run(run)
    assert run["state"] == run["last_state"] == "running" and run["supervised"]
    assert run["attempt"] == 1 and run["supervisor_pid"] == child.pid
    assert run["command_pid"] == hf.command_pid()
    assert run["protected_by"] == "hook" and run["unprotected"] is False
    assert run["store_kind"] == "local" and run["store"] == f"file://{hf.state}/store"
    assert run["ranks"]["world"] == run["ranks"]["joined"] == 1
    assert run["watch"] == {"provider": None, "health": "not-watching"}
    assert run["notice"] is None
    assert run["outcome"] is None and run["exit_status"] is None
    save = run["save"]
    assert save["verdict"] == "none"
    for name in ("step", "tried_step", "attempt", "number", "reason", "why", "at"):
        assert save[name] is None, name
    until(lambda: hf.status()["heartbeat"], "a heartbeat")
    before = hf.status()["ranks"]["step"]
    until(lambda: hf.status()["ranks"]["step"] > before, "it goes on")


def test_one_with_a_notice(hf):
    child = hf.run_start("--grace=60s", command=trainer("loop.py", "--steps", 100000, "--save-ms",
                                                        60000))
    until(lambda: hf.step() >= 3, "three steps")
    child.kill(signal.SIGTERM)
    run = until(lambda: (r := hf.status())["notice"] and r, "the notice")
    check_run(run)
    assert run["state"] == "leaving"
    assert run["notice"]["sources"] == ["signal"]
    assert -61 < run["notice"]["deadline_age_s"] < -50
    assert UTC.fullmatch(run["notice"]["deadline"])
    assert "NOTICE" in hf.call("status", "r").out


def test_one_that_left(hf):
    assert hf.preempt(FOREVER).status == 75
    run = hf.status()
    check_run(run)
    assert run["state"] == "ended" and run["outcome"] == "preempted" and run["exit_status"] == 75
    assert run["supervised"] is False
    row = hf.ckpt()[-1]
    save = run["save"]
    assert (save["attempt"], save["number"], save["step"], save["bytes"]) == (
        row["attempt"], row["number"], row["step"], row["bytes"])
    assert save["verdict"] == "local" and save["tried_step"] == save["step"]
    assert save["reason"] == "notice" and save["why"] is None


def test_one_that_failed(hf):
    hf.run(command=shell("exit 4"))
    run = hf.status()
    check_run(run)
    assert run["state"] == "ended" and run["outcome"] == "failed" and run["exit_status"] == 4
    assert run["protected_by"] is None


def test_nobody_vouches_for_it(hf):
    child = started(hf)
    child.kill(signal.SIGKILL)
    child.wait()
    run = hf.status()
    check_run(run)
    assert run["state"] == "unknown" and run["last_state"] == "running"
    assert run["supervised"] is False
    assert run["since"] == run["updated"]
    assert "unknown" in hf.call("status", "r").out
    assert "no supervisor lives here" in hf.call("status", "r").out
    keeper = hf.keeper_pid()
    assert f"keeper pid {keeper} is alive (checked now): what it keeps goes on" in evidence(run)


def test_m3_heartbeats_stop(hf):
    """Supervisor, keeper and trainer are killed at once: within 30 s the run is unknown since the
    last proof, with the evidence, here and from another machine by the store."""
    store = f"file://{hf.tmp}/store"
    child = started(hf, f"--store={store}", "--heartbeat=300ms")
    until(lambda: hf.status()["heartbeat"], "a heartbeat")
    pids = [child.pid, hf.keeper_pid(), hf.command_pid()]
    here = before = until(lambda: "step" in evidence(r := hf.status()) and r, "a step")
    assert here["state"] == "running" and "told by the trainer" in evidence(here)
    assert f"keeper pid {pids[1]} is alive (checked now)" in evidence(here)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    child.wait()
    run = until(lambda: (r := hf.status())["state"] == "unknown" and r, "unknown here", 30)
    check_run(run)
    assert run["since"] == run["updated"] >= before["updated"]
    assert "no supervisor lives here" in evidence(run)
    until(lambda: f"keeper pid {pids[1]} is gone (checked now)" in evidence(hf.status()), "gone")
    assert run["ranks"]["step"] >= before["ranks"]["step"]
    hf.env["HOLDFAST_STATE_DIR"] = str(hf.tmp / "laptop")
    far = until(lambda: (r := far_status(hf, store))["state"] == "unknown" and r,
                "unknown from afar", 30)
    assert far["since"] == far["heartbeat"] and far["last_state"] == "running"
    assert "timed by the clock of" in evidence(far)
    assert "none came for longer than" in evidence(far)


def far_status(hf, store):
    return hf.json("status", "r", f"--store={store}")["runs"][0]


def test_from_another_machine(hf):
    """Only the store is shared: the state, step and time are the other machine's word."""
    store = f"file://{hf.tmp}/store"
    child = started(hf, f"--store={store}", "--heartbeat=200ms", "--every=100ms")
    until(lambda: hf.ckpt(), "a checkpoint")
    home = hf.env["HOLDFAST_STATE_DIR"]
    hf.env["HOLDFAST_STATE_DIR"] = str(hf.tmp / "laptop")
    run = until(lambda: (r := far_status(hf, store))["state"] == "running"
                and (r["ranks"]["step"] or 0) > 0 and r, "running")
    check(run, {name: kind for name, kind in RUN.items()})
    assert run["attempt"] == 1 and run["host"] and run["supervised"] is None
    assert run["save"]["verdict"] == "local" and run["save"]["number"] >= 1
    assert f"timed by the clock of '{run['host']}'" in evidence(run)
    assert "timed by the clock of" in hf.call("status", "r", f"--store={store}").out
    assert not (hf.tmp / "laptop" / "runs").exists()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    run = far_status(hf, store)
    assert run["state"] == "ended" and run["outcome"] == "preempted"
    assert "is recorded in the store" in evidence(run)
    # On the machine itself its own word stands, until another machine goes on.
    hf.env["HOLDFAST_STATE_DIR"] = home
    assert far_status(hf, store)["exit_status"] == 75
    child = hf.start("status", "other", f"--store={store}")
    assert child.wait() == 1 and "no run 'other' is in store '" in child.err
    child = hf.start("status", "r", f"--store=file://{hf.tmp}/nothing")
    assert child.wait() == 1 and "is not there" in child.err
    assert not (hf.tmp / "nothing").exists()


def test_m5_a_slow_start_is_no_preemption(hf, root):
    """While a silent attempt of another machine is watched, before anything is claimed, the new
    start is preparing: not preempted, not unknown."""
    store = f"file://{hf.tmp}/store"
    child = started(hf, f"--store={store}", "--heartbeat=100ms")
    for pid in (child.pid, hf.keeper_pid(), hf.command_pid()):
        os.kill(pid, signal.SIGKILL)
    child.wait()
    hf.new_machine()
    child = hf.run_start(f"--store={store}", "--dead-after=2s", "--resume", command=["true"],
                         before=["unshare", "-pf", "--kill-child", "--mount-proc"])
    states = []

    def follow():
        runs = hf.json("status")["runs"]
        state = runs[0]["state"] if runs else "none"
        if not states or states[-1] != state:
            states.append(state)
        return state == "ended" and child.proc.poll() is not None

    until(follow, "its end")
    assert child.wait() == 0, child.err
    assert states[-1] == "ended" and "preparing" in states, states
    assert not {"unknown", "running", "ended"} & set(states[:states.index("preparing")]), states
    assert "preempted" not in json.dumps(hf.status())


def test_one_that_never_began(hf):
    """Registered, refused before anything was claimed: all fields are there, none is made up."""
    store = hf.tmp / "store"
    store.write_text("no folder")
    child = hf.run(f"--store=file://{store}", command=["true"])
    assert child.status == 125
    run = hf.status()
    check_run(run)
    assert run["state"] == "none"
    assert run["attempt"] is None and run["save"] is None and run["outcome"] is None


def test_all_runs_are_listed(hf):
    for name in ("b", "a"):
        hf.run(command=["true"], run=name)
    runs = hf.json("status")["runs"]
    assert [run["run"] for run in runs] == ["a", "b"]
    for run in runs:
        check_run(run)
    out = hf.call("status").out
    assert re.search(r"^a$", out, re.M) and re.search(r"^b$", out, re.M)


@pytest.mark.parametrize("args", [["status", "a", "b"], ["status", "--wrong"], ["ckpt"],
                                  ["ckpt", "other", "r"], ["ckpt", "show", "r"], ["logs"]])
def test_wrong_usage(hf, args):
    child = hf.start(*args)
    assert child.wait() not in (0, 1)
    assert child.err.startswith("holdfast: error:")
    assert child.out == ""


def test_checkpoints_as_json(hf):
    command = trainer("loop.py", "--steps", 1000, "--step-ms", 30, "--pad", 70000)
    assert hf.preempt(command, "--every=100ms", "--block-size=64KiB", after=15).status == 75
    assert hf.run(command=trainer("loop.py", "--steps", 5), run="other").status == 0
    listed = hf.json("ckpt", "ls", "r")
    assert listed["format"] == 1 and listed["run"] == "r"
    rows = listed["checkpoints"]
    assert len(rows) >= 2
    for row in rows:
        check(row, {"attempt": NUMBER, "number": NUMBER, "kind": WORD})
        if row["kind"] == "checkpoint":
            check(row, {"step": NUMBER, "retired": bool, "reason": WORD, "files": NUMBER,
                        "bytes": NUMBER, "bytes_sent": NUMBER, "at": UTC, "resume_path": WORD})
            assert row["bytes"] > 70000
    newest = hf.ckpt()[-1]
    name = f"{newest['attempt']}-{newest['number']}"
    shown = hf.json("ckpt", "show", "r", name)["checkpoints"]
    assert len(shown) == 1
    content = {entry["path"]: entry for entry in shown[0]["content"]}
    assert content["pad0.bin"]["bytes"] == 70000 and content["pad0.bin"]["kind"] == "file"
    assert sum(e["bytes"] for e in content.values() if e["kind"] == "file") == newest["bytes"]
    verified = hf.json("ckpt", "verify", "r", name)["checkpoints"]
    assert [row["whole"] for row in verified] == [True] and verified[0]["why"] is None
    plain = hf.call("ckpt", "ls", "r").out
    assert name in plain and "notice" in plain
    assert hf.json("ckpt", "ls", "other")["checkpoints"] == []
    json.dumps(shown)


def test_each_attempt_has_its_log(hf):
    command = trainer("loop.py", "--steps", 200, "--step-ms", 5)
    outputs = [hf.preempt(command).out for _ in range(2)]
    last = hf.run(command=command)
    assert last.status == 0
    outputs.append(last.out)
    for attempt, text in enumerate(outputs, 1):
        assert hf.call("logs", "r", f"--attempt={attempt}").out == text
    assert hf.call("logs", "r").out == outputs[-1]
    assert "attempt 4" in hf.call("logs", "r", "--attempt=4", status=1).err
