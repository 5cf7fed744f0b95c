# SPDX-License-Identifier: Apache-2.0
"""The real frameworks without a hook: `holdfast run --checkpoint-dir`, a notice in the middle, and
another machine that goes on from the last complete save and ends with the very weights of an
undisturbed training."""
import shutil
import signal
import subprocess
from dataclasses import dataclass

import pytest

import producers
from support import LONG, until
from test_layouts import RUNS

EVERY, STEPS, AFTER = 3, 12, 7


@dataclass
class Way:
    script: str
    folder: str = ""  # what is watched, below OUT
    options: tuple = ()
    # The step of a checkpoint's name -> how many steps are in it.
    steps: object = staticmethod(lambda step: step)
    later: bool = False  # with HOLDFAST_TEST_LONG alone
    step_named: bool = True


WAYS = {
    "trainer": Way("hf_trainer", options=("--keep=2",)),
    "trainer of 2": Way("hf_trainer_2", options=("--keep=2",), later=True),
    "accelerate": Way("accelerate_loop", "checkpoints", ("--keep=2",),
                      staticmethod(lambda step: (step + 1) * EVERY)),
    "lightning": Way("lightning_loop", options=("--kind=copy",), step_named=False),
    "lightning link": Way("lightning_loop", options=("--kind=link",), later=True),
    "orbax": Way("orbax_loop", options=("--kind=sync",)),
    "orbax async": Way("orbax_loop", options=("--kind=async", "--keep=2"), later=True),
    "torch": Way("torch_plain", options=("--kind=numbered",)),
    "torch in place": Way("torch_plain", options=("--kind=inplace",), step_named=False),
    "keras": Way("keras_loop", options=("--kind=backup",), later=True, step_named=False),
    "dcp": Way("dcp", later=True),
    "deepspeed": Way("deepspeed_loop", options=("--kind=zero1",), later=True),
}


def told(note):
    """The steps of a run of a producer, and the digest at its end."""
    words = note.read_text().split() if note.exists() else []
    steps = [int(word) for word in words if word.isdigit() and len(word) < 10]
    return steps, words[-1] if "digest" in words else None


@pytest.mark.parametrize("name", [n for n, way in WAYS.items() if LONG or not way.later])
def test_preempted_it_ends_with_the_same_weights(hf, name):
    way = WAYS[name]
    out, notice = hf.work / "out", hf.tmp / "preempt"
    options = [f"--steps={STEPS}", f"--every={EVERY}", *way.options]
    hf.env.update(producers.environment(), **hf.env)
    notes = [hf.tmp / f"note.{i}" for i in range(3)]
    alone = subprocess.Popen(
        producers.command(way.script, hf.tmp / "alone", "full", f"--note={notes[0]}", *options),
        env=hf.env, cwd=hf.tmp, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    holdfast = [f"--checkpoint-dir={out / way.folder}", f"--store=file://{hf.tmp / 'store'}",
                f"--notice-file={notice}", "--resume", "--grace=20s", "--checkpoint-quiet=500ms"]
    try:
        child = hf.run_start(*holdfast, command=producers.command(
            way.script, out, "resume", f"--note={notes[1]}", "--step-ms=400", *options))
        until(lambda: AFTER in told(notes[1])[0], f"step {AFTER}", 120)
        notice.touch()
        assert child.wait(60) == 75, child.err
        notice.unlink()
        assert alone.wait(120) == 0
    finally:
        alone.kill()
    saved = hf.ckpt()[-1]["step"]
    first, digest = told(notes[1])
    assert digest is None and first == list(range(1, len(first) + 1))
    shutil.rmtree(out)
    hf.new_machine()
    child = hf.run(*holdfast, deadline=120, command=producers.command(
        way.script, out, "resume", f"--note={notes[2]}", *options))
    assert child.status == 0, child.err
    second, digest = told(notes[2])
    begun = second[0] - 1
    assert begun % EVERY == 0 and begun >= 2 * EVERY or way.script == "keras_loop"
    if way.step_named:
        assert begun == way.steps(saved)
    assert second == list(range(begun + 1, STEPS + 1))
    steps, want = told(notes[0])
    assert steps == list(range(1, STEPS + 1))
    assert digest == want, "the weights are those of an undisturbed training"


TORN = {
    "trainer": ("hf_trainer", "", "checkpoint-6", "optimizer.pt", 4),
    "accelerate": ("accelerate_loop", "checkpoints", "checkpoint_2", "optimizer.bin", 4),
}


@pytest.mark.parametrize("name", [n for n in TORN if LONG or n == "trainer"])
def test_c1_what_a_kill_left_is_moved_aside_and_the_one_before_is_taken(hf, name):
    """The folder is as a kill in the middle of a file of the newest checkpoint left it; the
    framework would take that one, for it has the highest number."""
    script, below, newest, file, whole = TORN[name]
    played = producers.recorded(*RUNS[name])
    at = next(i for i, c in enumerate(played.changes)
              if c.op == "w" and c.name.endswith(f"/{newest}/{file}"))
    root = hf.work / "root"
    played.play(root).to(at, len(played.changes[at].data) // 2)
    out = root / "out"
    assert (out / below / newest / file).exists()
    hf.env.update(producers.environment(), **hf.env)
    note = hf.tmp / "note"
    command = producers.command(script, out, "resume", f"--note={note}", *RUNS[name][1:])
    alone = subprocess.run(command, env=hf.env, cwd=hf.tmp, capture_output=True, check=False)
    assert alone.returncode not in (0, -signal.SIGKILL), "without help it fails"
    note.unlink(missing_ok=True)
    child = hf.run(f"--checkpoint-dir={out / below}", command=command, deadline=120)
    assert child.status == 0, child.err
    assert told(note)[0] == [whole + 1, whole + 2]
    assert "moved an incomplete checkpoint aside" in child.err
    assert (out / below / newest).exists(), "saved again"
