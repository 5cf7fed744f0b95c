# SPDX-License-Identifier: Apache-2.0
"""Programs that save by themselves into a --checkpoint-dir. The layouts are simulated by
trainers/layouts.py; the real frameworks are in test_layouts.py."""
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest

from support import LONG, PYTHON, loop_digest, shell, trainer, until

HELD = ".holdfast-held"
ASIDE = ".holdfast-aside"


def layouts(layout, folder, *options):
    return trainer("layouts.py", layout, folder, *options)


def starts(child):
    return [int(n) for n in re.findall(r"^start (\d+)$", child.out, re.M)]


def steps_of(hf, run="r"):
    return [row["step"] for row in hf.ckpt(run)]


@pytest.fixture
def out(hf):
    return hf.work / "out"


# --- killed in the middle -----------------------------------------------------------------------

LAYOUT_BYTES = {"hf": 101000, "deepspeed": 100700}


@pytest.mark.parametrize("layout", ["hf", "deepspeed"])
def test_c1_c7_killed_at_any_byte_of_a_save(hf, out, layout):
    """The program goes on from the highest number without a look, and fails if that is not whole.
    It never meets one that is not: the one before is there each time."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    options = [f"--checkpoint-dir={out}", "--max-crashes=0", "--resume"]
    whole = 0
    for _ in range(100 if LONG else 20):
        after = dice.randrange(1, LAYOUT_BYTES[layout])
        child = hf.run(*options, command=layouts(layout, out, "--die-save=2", "--step-ms=1",
                                                 f"--die-after={after}", "--ignore-environment"))
        assert child.status == 128 + signal.SIGKILL, child.err
        assert starts(child) == [whole], f"killed after {after} bytes of a save"
        whole += 5
        assert steps_of(hf)[-1] == whole
    child = hf.run(*options, command=layouts(layout, out, f"--steps={whole + 20}", "--step-ms=1"))
    assert child.status == 0
    assert f"digest {loop_digest(whole + 20)}" in child.out
    aside = hf.events("moved-aside")
    assert aside and all(Path(e["to"]).parent == hf.work / ASIDE for e in aside)
    assert "moved an incomplete checkpoint aside" in child.err
    assert all(Path(e["to"]).exists() for e in aside), "nothing is deleted"
    assert not (hf.work / HELD).exists()


def test_c7_no_crash_loop(hf, out):
    """A crash in a save, and the next attempt of the same holdfast, on a folder that is torn."""
    command = shell('[ -e "$1/torn" ] && shift && exec "$@"; mkdir -p $1; touch $1/torn; '
                    'shift; exec "$@" --die-save=2 --die-after=5000', out,
                    *layouts("hf", out, "--steps=40", "--step-ms=1", "--ignore-environment"))
    child = hf.run(f"--checkpoint-dir={out}", command=command)
    assert child.status == 0
    assert starts(child) == [0, 5]
    assert f"digest {loop_digest(40)}" in child.out


# --- before they are gone -----------------------------------------------------------------------


def test_n4_pruned_while_it_is_shipped(hf, out):
    """The program keeps one and saves faster than they are shipped: each save that is begun is
    finished, and little is held at a time."""
    child = hf.run_start(f"--checkpoint-dir={out}", "--block-size=64KiB", command=layouts(
        "hf", out, "--limit=1", "--every=1", "--steps=40", "--bytes=8000000", "--step-ms=30"))
    most = 0
    while child.proc.poll() is None:
        try:
            most = max(most, len(os.listdir(hf.work / HELD)))
        except FileNotFoundError:
            pass
    assert child.wait() == 0
    assert {e["kind"] for e in hf.events("verdict")} == {"local"}, hf.timeline()
    assert {e["held"] for e in hf.events("found")} <= {"link", "clone"}
    assert steps_of(hf)[-1] == 40
    assert 0 < most <= 4
    assert not (hf.work / HELD).exists()


def stored_file(store, row):
    """The only file of a checkpoint, put together by hand (docs/formats.md)."""
    name = f"{row['attempt']:06d}-{row['number']:06d}.json"
    manifest = json.loads((store / "r" / "checkpoints" / name).read_text())
    (file,) = [f for f in manifest["files"] if f["kind"] == "file"]
    data = b""
    for extent in file["extents"]:
        block = manifest["blocks"][extent["block"]]
        data += (store / "r" / "data" / block["where"] / block["id"][:2]
                 / f"{block['id']}.{block['codec']}").read_bytes()
    return data


def test_overwritten_in_place(hf, out):
    """One file, over and over: what is committed is whole, though many a save comes too late."""
    store = hf.tmp / "store"
    options = [f"--checkpoint-dir={out}", f"--store=file://{store}", "--block-size=64KiB",
               "--keep=0"]
    child = hf.run_start(*options, command=layouts(
        "nanogpt", out, "--every=2", "--bytes=6000000", "--piece-ms=0.3", "--step-ms=150"))
    until(lambda: len([e for e in hf.events("verdict") if e["kind"] == "local"]) >= 3,
          "three checkpoints", 60)
    child.kill(15)
    assert child.wait() == 75
    for row in hf.ckpt():
        with zipfile.ZipFile(io.BytesIO(stored_file(store, row))) as z:
            assert z.testzip() is None
            digest = json.loads(z.read("archive/data.pkl"))["digest"]
            assert z.read("archive/data/0") == random.Random(digest).randbytes(6000000)
    shutil.rmtree(out)
    hf.new_machine()
    again = hf.run("--resume", *options, command=layouts("nanogpt", out, "--steps=0"))
    assert starts(again)[0] > 0


def test_n1_a_small_disk(hf, root):
    """Simulated: 24 MiB of memory as a disk, checkpoints of 5 MB of which two are kept. None of the
    program's own saves fails."""
    disk = hf.work / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    try:
        child = hf.run(f"--checkpoint-dir={disk}", command=layouts(
            "hf", disk, "--limit=2", "--every=1", "--steps=25", "--bytes=5000000"))
        assert child.status == 0, child.err
        assert f"digest {loop_digest(25)}" in child.out
        assert steps_of(hf)[-1] == 25
        assert not (disk / HELD).exists()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


# --- at a notice --------------------------------------------------------------------------------


def test_what_is_being_written_is_waited_for(hf, out):
    child = hf.run_start(f"--checkpoint-dir={out}", command=layouts(
        "hf", out, "--every=10", "--bytes=2000000", "--piece-ms=40"))
    until(lambda: (out / "checkpoint-10" / "model.safetensors").exists(), "a save that has begun")
    assert not (out / "checkpoint-10" / "trainer_state.json").exists()
    child.kill(15)
    assert child.wait() == 75
    assert steps_of(hf) == [10]
    assert hf.events("verdict")[-1]["reason"] == "notice"


def test_what_was_complete_before_the_question_is_no_answer(hf, out):
    """--save-signal: a checkpoint that nobody had looked at yet, and then the one asked for."""
    out.mkdir()
    script = ("import os, signal, sys, time\n"
              "def save(*_):\n"
              "    time.sleep(0.6)\n"
              "    open('.t', 'w').write('x')\n"
              "    os.rename('.t', 'step_20')\n"
              "os.chdir(sys.argv[1])\n"
              "signal.signal(signal.SIGUSR2, save)\n"
              "print('ready', flush=True)\n"
              "while True: time.sleep(0.02)\n")
    child = hf.run_start(f"--checkpoint-dir={out}", "--save-signal=USR2", "--keep=0",
                         command=[PYTHON, "-c", script, out])
    child.waits_for_output("ready")
    (out / ".s").write_text("x")
    os.utime(out / ".s", (time.time() - 1,) * 2)
    (out / ".s").rename(out / "step_10")
    child.kill(15)
    assert child.wait() == 75
    assert steps_of(hf) == [10, 20]


def test_at_rest(hf, out):
    """No known format, in place: it is taken once nobody writes it any more."""
    options = [f"--checkpoint-dir={out}", "--checkpoint-quiet=300ms", "--grace=3s"]
    child = hf.run_start(*options, command=shell(
        '"$@" --steps=10; exec 9>>$OUT/open; echo x >&9; sleep 1000',
        *layouts("odd", out, "--every=10"), ), env={**hf.env, "OUT": str(out)})
    hf.waits_for("verdict")
    assert hf.ckpt()[-1]["resume_path"] == str(out / "state.bin")
    child.kill(15)
    assert child.wait() == 75
    assert len(hf.ckpt()) == 1, "one that is held open is not complete"


# --- where it goes on ---------------------------------------------------------------------------


def preempted(hf, out, *options, saves=2):
    before = len(hf.events("verdict"))
    child = hf.run_start(f"--store=file://{hf.tmp}/store", f"--checkpoint-dir={out}", "--keep=0",
                         command=layouts("deepspeed", out, "--ignore-environment", *options))
    until(lambda: len(hf.events("verdict")) >= before + saves, "checkpoints")
    child.kill(15)
    assert child.wait() == 75
    return child


def test_d5_the_second_preemption_resumes_from_the_second_save(hf, out):
    """The program reads `latest`, and the third machine has the one of long ago."""
    preempted(hf, out)
    stale = hf.tmp / "stale"
    first = steps_of(hf)[-1]
    shutil.copytree(out, stale)
    shutil.rmtree(out)
    hf.new_machine()
    second = preempted(hf, out)
    assert starts(second) == [first]
    shutil.rmtree(out)
    shutil.copytree(stale, out)
    hf.new_machine()
    third = preempted(hf, out)
    saved = hf.events("restored")[0]["step"]
    assert saved > first
    assert starts(third) == [saved]


def test_d4_a_program_that_begins_anew_is_warned_of(hf, out):
    options = [f"--checkpoint-dir={out}"]
    child = hf.run_start(*options, command=layouts("hf", out))
    until(lambda: any(e["step"] >= 20 for e in hf.events("verdict")), "a checkpoint")
    child.kill(15)
    assert child.wait() == 75
    again = hf.run("--resume", *options, command=layouts("hf", out, "--from-scratch", "--steps=10"))
    assert again.status == 0
    assert "did not load it" in again.err
    doubt = hf.events("resume-not-proven")
    assert len(doubt) == 1 and doubt[0]["how"] == "checkpoint" and doubt[0]["step"] <= 10
    assert doubt[0]["checkpoint_step"] >= 20
    assert steps_of(hf)[-1] == 10, "its checkpoints count all the same"
    hf.run("--run=s", *options, command=layouts("hf", out, "--steps=15"))
    assert hf.events("resume-not-proven", run="s") == []


# --- a supervisor that dies ---------------------------------------------------------------------


def test_what_appeared_while_nobody_watched(hf, out):
    options = [f"--checkpoint-dir={out}", "--keep=0"]
    command = shell('mkdir -p $OUT; "$@" --steps=10; until [ -e $OUT/.go ]; do sleep 0.02; done; '
                    '"$@" --steps=20 --ignore-environment; sleep 1000',
                    *layouts("hf", out))
    env = {**hf.env, "OUT": str(out)}
    child = hf.run_start(*options, command=command, env=env)
    hf.waits_for("verdict", step=10)
    child.kill()
    child.wait()
    (out / ".go").touch()
    until(lambda: "saved 20" in hf.call("logs", "r").out, "saves that nobody sees")
    again = hf.run_start(*options, command=command, env=env)
    hf.waits_for("adopted")
    hf.waits_for("verdict", step=20)
    assert hf.events("moved-aside") == []
    again.kill(15)
    assert again.wait() == 75
    assert steps_of(hf)[-1] == 20
    assert 15 not in steps_of(hf)


def test_a_save_that_was_held_is_recovered(hf, out):
    """The supervisor and the keeper are killed; the checkpoint was pruned meanwhile."""
    options = [f"--checkpoint-dir={out}", f"--store=file://{hf.tmp}/store"]
    child = hf.run_start(*options, command=layouts("hf", out, "--every=20", "--limit=1",
                                                   "--bytes=40000000"))
    until(lambda: any(p.read_bytes().endswith(b"}\n") for p in hf.dir().glob("1/saves.jsonl")),
          "a line in the journal")
    child.kill()
    child.wait()
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    recovered = not hf.events("verdict")
    shutil.rmtree(out)
    again = hf.run("--resume", *options, command=shell('ls "$HOLDFAST_RESUME"'))
    if recovered:
        assert hf.waits_for("recovered")["step"] == 20
    assert "trainer_state.json" in again.out
    assert not (hf.work / HELD).exists()
