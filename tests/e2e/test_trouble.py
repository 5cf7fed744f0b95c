# SPDX-License-Identifier: Apache-2.0
"""Trouble around a training that must not become its own: a store that fails or fills up, notices
and people at awkward moments, and a machine that was only thought dead."""
import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from support import alive, loop_digest, shell, trainer, tree_digest, until


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


# --- the store -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(hf, root):
    folder = hf.tmp / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], check=True)
    yield folder
    hf.clean_up()
    subprocess.run(["umount", folder], check=True)


def test_a_store_that_fails_for_a_while_stops_no_training(hf, small_disk):
    """Its filesystem becomes read-only, as after an error, and comes back."""
    def remount(how):
        return subprocess.run(["mount", "-o", f"remount,{how}", small_disk], check=False,
                              stderr=subprocess.DEVNULL).returncode == 0
    child = hf.run_start(f"--store=file://{small_disk}/store", "--heartbeat=100ms",
                         command=looped(400, "--own-every", 5))
    hf.waits_for("verdict", step=9)
    until(lambda: remount("ro"), "a read-only store")
    hf.waits_for("saved", step=hf.events("saved")[-1]["step"] + 10)
    failed = until(lambda: [e for e in hf.events("verdict") if e["kind"] == "stale"],
                   "a save that failed", 60)[0]
    assert failed["why"] and failed["step"] >= 9
    assert "whole" in hf.call("ckpt", "verify", "r").out
    until(lambda: remount("rw"), "a store as before")
    good = until(lambda: [e for e in hf.events("verdict")[hf.events("verdict").index(failed):]
                          if e["kind"] == "local"], "saves that count again", 60)[0]
    assert good["step"] > failed["step"]
    assert child.wait() == 0
    assert f"digest {loop_digest(400)}" in child.out
    assert "holdfast: warning: the save of step" in child.err
    assert hf.call("ckpt", "verify", "r").out
    assert hf.events("attempt-ended")[0]["recorded"]


def test_a_full_disk_costs_a_save_and_nothing_else(hf, small_disk):
    """The first save fits, the next does not: the first one stands, is whole, and is restored."""
    store = f"--store=file://{small_disk}/store"
    command = looped(100, "--own-every", 20, "--pad", 1800000)
    child = hf.run_start(store, "--keep=0", command=command)
    hf.waits_for("verdict", step=19, kind="local")
    failed = hf.waits_for("verdict", kind="stale", deadline=60)
    assert failed["step"] == 19 and failed["tried_step"] > 19 and failed["why"]
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    status = hf.status()
    assert status["save"]["verdict"] == "stale" and status["save"]["step"] == 19
    assert [row["step"] for row in hf.ckpt()] == [19]
    assert "whole" in hf.call("ckpt", "verify", "r").out
    shutil.rmtree(next(hf.dir().glob("save")))
    again = hf.run(store, "--keep=0", command=command)
    assert f"digest {loop_digest(100)}" in again.out
    assert "start 20\n" in again.out
    assert again.status == 0


# --- awkward moments -----------------------------------------------------------------------------


def restoring(hf):
    """A start that is busy with a restore of many small blocks."""
    store = f"--store=file://{hf.tmp}/store"
    options = [store, "--block-size=4KiB", "--lanes=1"]
    command = looped(100000, "--pad", 24000000)
    assert hf.preempt(command, *options).status == 75
    hf.new_machine()
    child = hf.run_start(*options, command=command)
    hf.waits_for("claimed", 2)
    return child, command, options


@pytest.mark.parametrize("sig, status", [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_the_restore_can_be_left(hf, sig, status):
    child, command, options = restoring(hf)
    child.kill(sig)
    begun = time.monotonic()
    left = child.wait(20)
    if hf.events("command-started", 2):
        pytest.fail("the restore was over before the signal: make it longer")
    assert left == status
    assert time.monotonic() - begun < 5
    assert child.out == ""
    again = hf.preempt(command, *options)
    assert again.status == 75
    assert "start 0\n" not in again.out, "it goes on from the checkpoint"


def test_a_notice_during_the_pause_before_the_next_attempt(hf):
    child = hf.run_start(command=looped(30, "--crash-at", 5))
    hf.waits_for("relaunch")
    child.kill(signal.SIGTERM)
    assert child.wait(5) == 75
    assert len(hf.events("claimed")) == 1


def test_a_notice_while_descendants_linger(hf):
    child = hf.run_start("--linger=600s", "--grace=3s",
                         command=shell("sleep 1000 & echo over; exit 3"))
    hf.waits_for("command-exited")
    child.kill(signal.SIGTERM)
    assert child.wait(10) in (3, 75)
    assert hf.left() == []


def test_a_terminated_supervisor_that_is_terminated_again(hf):
    child = hf.run_start(command=looped(100000, "--save-ms", 1500))
    until(lambda: hf.step() >= 3, "three steps")
    for _ in range(3):
        child.kill(signal.SIGTERM)
        hf.waits_for("notice")
    assert child.wait() == 75
    assert len(hf.events("notice")) == 1
    assert hf.events("verdict")[-1]["reason"] == "notice"


def test_long_arguments_and_many_variables(hf):
    words = ["x" * 120000, "y" * 120000, *map(str, range(3000))]
    env = {**hf.env, **{f"VARIABLE_{n}": "z" * 200 for n in range(2000)}}
    script = 'echo $# ${#1} ${#2} ${#VARIABLE_1999}'
    child = hf.start("run", "--run=r", "--provider=none", "--", *shell(script, *words), env=env)
    assert child.wait() == 0, child.err
    assert child.out == f"{len(words)} 120000 120000 200\n"


def test_without_standard_streams(hf):
    """Closed by whoever started it: nothing is written into a descriptor that took their place."""
    marker = hf.tmp / "file"
    script = (f"exec 0<&- 1>&- 2>&-; {hf.program()} run --run=r --provider=none -- "
              f"sh -c 'echo out; echo err >&2; exit 4' {marker}; echo $? >{hf.tmp}/status")
    subprocess.run(["sh", "-c", script], cwd=hf.work, env=hf.env, check=True, timeout=60)
    assert (hf.tmp / "status").read_text() == "4\n"
    assert hf.call("logs", "r").out.startswith(("out\n", "err\n"))
    for name in ("run.json", "events.jsonl", "lock"):
        data = (hf.dir() / name).read_text()
        assert "out\n" not in data and "err\n" not in data and "holdfast:" not in data, name


# --- only thought dead ---------------------------------------------------------------------------


def test_a_machine_that_was_only_thought_dead_stops_and_changes_nothing(hf, root):
    """Two machines (pid namespaces) and one store. The first one's supervisor is frozen, the second
    takes the run over and finishes; thawed, the first one stops and publishes nothing."""
    machine = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    store = f"--store=file://{hf.tmp}/store"
    options = [store, "--heartbeat=50ms", "--dead-after=1s", f"--save-dir={hf.tmp}/save1"]
    command = looped(100000, "--own-every", 10, "--step-ms", 5)
    first = hf.start("run", "--run=r", "--provider=none", *options, "--", *command, before=machine)
    hf.waits_for("verdict")
    frozen = int(subprocess.run(["pgrep", "-P", str(first.pid)], capture_output=True, text=True,
                                check=True).stdout)
    os.kill(frozen, signal.SIGSTOP)
    trainers = [pid for pid in hf.left() if b"loop.py" in open(f"/proc/{pid}/cmdline", "rb").read()
                and b"holdfast" not in open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")[0]
                and b"unshare" not in open(f"/proc/{pid}/cmdline", "rb").read()]
    assert trainers
    state = hf.tmp / "state2"
    second = hf.start("run", "--run=r", "--provider=none", store, "--dead-after=1s", "--resume",
                      f"--state-dir={state}", f"--save-dir={hf.tmp}/save2", "--",
                      *looped(300, "--step-ms", 1), before=machine)
    assert second.wait() == 0, second.err
    assert f"digest {loop_digest(300)}" in second.out
    before = tree_digest(hf.tmp / "store" / "r" / "checkpoints")
    attempts = sorted(p.name for p in (hf.tmp / "store/r/attempts").glob("*.json"))
    os.kill(frozen, signal.SIGCONT)
    assert first.wait(30) == 125
    assert "superseded" in first.err
    for pid in trainers:
        assert not alive(pid)
    assert tree_digest(hf.tmp / "store" / "r" / "checkpoints") == before
    assert set(attempts) <= {p.name for p in (hf.tmp / "store/r/attempts").glob("*.json")}
    sealed = [json.loads(p.read_text()).get("kind") for p in
              (hf.tmp / "store/r/checkpoints").glob("000001-*.json") if "retired" not in p.name]
    assert sealed
    assert hf.left() == []


def test_a_machine_that_lives_is_not_taken_over(hf, root):
    machine = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    store = f"--store=file://{hf.tmp}/store"
    command = looped(100000, "--step-ms", 5)
    first = hf.start("run", "--run=r", "--provider=none", store, "--heartbeat=50ms", "--",
                     *command, before=machine)
    until(lambda: hf.step() >= 3, "three steps")
    second = hf.start("run", "--run=r", "--provider=none", store, "--dead-after=1s",
                      f"--state-dir={hf.tmp}/state2", "--", *command, before=machine)
    assert second.wait() == 125
    assert "alive" in second.err
    assert first.proc.poll() is None
