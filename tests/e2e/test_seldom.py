# SPDX-License-Identifier: Apache-2.0
"""Small troubles of the supervisor itself while training goes well: each is said once, costs no
step and no checkpoint, and is over when its cause is."""
import json
import os
import signal
import subprocess

import pytest

from support import loop_digest, shell, trainer, until

FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"


def detach(hf, *options, command):
    child = hf.start("run", "--run=r", "--provider=none", "--detach", *options, "--", *command)
    assert child.wait() == 0, child.err
    return child


def end_detached(hf):
    os.kill(hf.status()["supervisor_pid"], signal.SIGTERM)
    until(lambda: hf.status()["state"] == "ended", "the end")


def plain(hf, *options):
    (hf.work / "out").mkdir()
    return trainer("plain.py", "--dir", hf.work / "out", *options)


# --- what Holdfast itself says without a terminal ------------------------------------------------


def test_its_own_log_is_turned_over(hf):
    """At a megabyte, as is the log before it; `logs --own` shows both."""
    hf.run(command=shell("exit 3"), run="r")
    own = hf.dir() / "supervisor.log"
    own.write_text("of yesterday\n" + "x" * 1023 + "\n" + "y" * (1 << 20))
    detach(hf, "--resume", command=shell(FOREVER))
    old = hf.dir() / "supervisor.log.1"
    until(old.exists, "the log of yesterday")
    assert old.read_text().startswith("of yesterday\n")
    end_detached(hf)
    assert own.stat().st_size < 10000, "what follows is in a new file"
    assert "attempt 2, without a terminal" in old.read_text()
    assert "notice from signal: SIGTERM" in own.read_text()
    assert hf.call("logs", "--own", "r").out == old.read_text() + own.read_text()


def test_no_room_for_its_own_log(hf):
    """It trains all the same, and the caller is told."""
    hf.run(command=shell("exit 3"), run="r")
    (hf.dir() / "supervisor.log").mkdir()
    child = detach(hf, "--resume", command=shell(FOREVER))
    assert "no supervisor.log: Is a directory; what Holdfast says is lost" in child.err
    assert "goes on without this terminal" in child.err
    assert hf.status()["state"] == "running"
    end_detached(hf)


# --- files of the state folder that cannot be written --------------------------------------------


def test_a_status_that_cannot_be_written(hf):
    """Only who asks is worse off: training and its checkpoints are not."""
    child = hf.run_start("--every=200ms", command=trainer("loop.py", "--steps", 120))
    hf.waits_for("verdict")
    path = hf.dir() / "status.json"
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    until(lambda: len(hf.events("verdict")) > 3, "more checkpoints")
    assert hf.status()["state"] == "preparing" and hf.status()["supervised"]
    assert child.wait() == 0
    assert f"digest {loop_digest(120)}" in child.out
    assert child.warnings == []


def test_a_watched_folders_memory_that_cannot_be_kept(hf):
    child = hf.run_start(f"--checkpoint-dir={hf.work}/out", "--checkpoint-quiet=100ms",
                         command=plain(hf, "--steps", 150, "--save-every", 25))
    path = hf.dir() / "1" / "watched.json"
    until(path.exists, "its memory")
    path.unlink()
    path.mkdir()
    (path / "x").touch()
    child.waits_for_error("a watched folder: ")
    assert child.wait() == 0
    assert [row["step"] for row in hf.ckpt()][-1] == 149
    said = [line for line in child.warnings if "a watched folder: " in line]
    assert len(said) == 1 and "watched.json" in said[0], "said once"


def test_nothing_can_be_held(hf):
    """A file has the name of the folder for it: checkpoints are shipped from where they lie."""
    (hf.work / ".holdfast-held").touch()
    command = plain(hf, "--steps", 100, "--save-every", 25)
    (hf.work / "out" / ".holdfast-held").touch()
    child = hf.run(f"--checkpoint-dir={hf.work}/out", "--checkpoint-quiet=100ms", command=command)
    assert child.status == 0
    found = hf.events("found")
    assert found and all(e["held"] == "no" and e["why_not"] for e in found)
    said = [line for line in child.warnings if "cannot be held until it is shipped" in line]
    assert len(said) == 1, child.err
    assert [row["step"] for row in hf.ckpt()][-1] == 99
    assert "whole" in hf.call("ckpt", "verify", "r").out


# --- hangs ---------------------------------------------------------------------------------------


def test_a_hang_that_passes(hf):
    """Told when it seems to hang and when it goes on; nothing is done to it."""
    child = hf.run_start("--hang-after=500ms", "--on-hang=tell", command=shell(
        "sleep 2; echo awake; i=0; while [ $i -lt 40 ]; do echo $i; sleep 0.05; i=$((i+1)); done"))
    hf.waits_for("hang")
    child.waits_for_error("the command goes on: it had not hung for good")
    assert child.wait() == 0
    assert len(hf.events("hang")) == 1
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"


@pytest.mark.parametrize("words", ["echo line", "printf x"], ids=["lines", "no newline"])
def test_output_alone_is_life_in_any_segment_of_its_log(hf, words):
    """The log is cut and turned over meanwhile."""
    child = hf.run("--hang-after=1s", "--log-disk=64KiB", command=shell(
        f"head -c 60000 /dev/zero | tr '\\0' a; i=0; while [ $i -lt 50 ]; do {words}; "
        "[ $i = 20 ] && head -c 30000 /dev/zero | tr '\\0' b; sleep 0.05; i=$((i+1)); done"))
    assert child.status == 0, child.err
    assert not hf.events("hang")


def test_a_hang_that_neither_saves_nor_leaves(hf):
    """It catches the signal to save, and does nothing: its time is up, and it is restarted from
    the last good checkpoint."""
    child = hf.run("--hang-after=500ms", "--save-signal=USR1", "--grace=500ms",
                   f"--checkpoint-dir={hf.work}/out", "--checkpoint-quiet=100ms",
                   command=plain(hf, "--steps", 60, "--save-every", 10, "--stick-at", 35,
                                 "--deaf-to", "USR1"))
    assert child.status == 0, child.err
    assert "not acknowledged: the command that hangs did not save in its time" in child.err
    assert [e["outcome"] for e in hf.events("attempt-ended")] == ["hung", "finished"]
    assert "start 30 " in child.out, "from the save of step 29"
    assert hf.events("restored", attempt=2)[0]["step"] == 29


# --- damaged records -----------------------------------------------------------------------------


def test_c10_the_state_folder_after_a_crash_of_the_machine(hf):
    """What was not flushed is empty. The run is found, its attempt taken over, its save kept."""
    child = hf.preempt(trainer("loop.py", "--steps", 60, "--own-every", 10), after=15)
    assert child.status == 75
    saved = hf.ckpt()[-1]["step"]
    for name in ("run.json", "status.json", "1/claim.json", "1/keeper.json", "1/exit"):
        path = hf.dir() / name
        assert path.exists(), name
        path.write_bytes(b"")
    assert "no run 'r' is registered here" in hf.call("status", "r", status=1).err
    again = hf.run(command=trainer("loop.py", "--steps", 60, "--own-every", 10))
    assert again.status == 0, again.err
    assert f"start {saved + 1}\n" in again.out
    assert f"digest {loop_digest(60)}" in again.out
    assert hf.status()["state"] == "ended"
    assert json.loads((hf.dir() / "run.json").read_text())["name"] == "r"


def test_a_command_lives_though_its_claim_is_damaged(hf):
    """The supervisor is killed, the copy of its claim is lost: the command is taken over."""
    first = hf.run_start("--every=200ms", command=trainer("loop.py", "--steps", 200))
    hf.waits_for("verdict")
    pid = hf.command_pid()
    first.kill()
    first.wait()
    (hf.dir() / "1" / "claim.json").write_bytes(b"{")
    second = hf.run_start("--every=200ms", command=trainer("loop.py", "--steps", 200))
    hf.waits_for("adopted")
    until(lambda: hf.status()["command_pid"] == pid, "its status")
    assert second.wait() == 0, second.err
    assert {e["attempt"] for e in hf.events()} == {1}
    assert f"digest {loop_digest(200)}" in first.out + second.out


def test_a_record_of_the_store_is_damaged_under_a_supervisor(hf):
    """Its own claim and end: it goes on, and says what it must."""
    child = hf.run_start("--every=200ms", command=trainer("loop.py", "--steps", 100))
    hf.waits_for("verdict")
    claim = hf.state / "store" / "r" / "attempts" / "000001.json"
    claim.chmod(0o600)
    claim.write_bytes(b"{")
    assert child.wait() == 0
    assert f"digest {loop_digest(100)}" in child.out
    shown = subprocess.run([hf.program(), "status", "r", f"--store=file://{hf.state}/store"],
                           env=dict(hf.env, HOLDFAST_STATE_DIR=str(hf.tmp / "none")),
                           stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "state       ended (finished)" in shown
