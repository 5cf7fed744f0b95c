# SPDX-License-Identifier: Apache-2.0
"""The example program alone: it learns, repeats itself to the bit, and resumes from its own
checkpoints. What Holdfast does with it is drilled elsewhere."""
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
CHARLM = TOP / "build" / "charlm"
SIZE = ["--steps", "600", "--hidden", "48", "--batch", "16", "--report", "50"]
TEXT = [str(TOP / "docs" / "providers.md"), str(TOP / "LICENSE")]


def environment(**more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    return {**env, **more}


def charlm(folder, *options, size=SIZE, text=TEXT, **env):
    return subprocess.run([CHARLM, *size, *options, *text], cwd=folder, env=environment(**env),
                          capture_output=True, text=True, timeout=120)


def digest(result):
    assert result.returncode == 0, result.stderr
    return re.search(r"^digest: ([0-9a-f]{32})$", result.stdout, re.M).group(1)


def losses(result):
    return [float(x) for x in re.findall(r"^step \d+ loss ([\d.]+)$", result.stdout, re.M)]


def killed_after_a_save(folder):
    """A training that died some steps after its save of step 299: the folder of that save."""
    command = [CHARLM, *SIZE, "--save-every", "100", "--slow", "1", *TEXT]
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE,
                          text=True) as child:
        for line in child.stdout:
            saved = re.match(r"saved step 299 in (.+)$", line)
            if saved:
                path = saved.group(1)
            if line.startswith("step 349 "):
                child.send_signal(signal.SIGKILL)
                break
        child.stdout.read()
    assert child.returncode == -signal.SIGKILL
    return Path(path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return charlm(tmp_path_factory.mktemp("whole"), "--out", "weights")


@pytest.fixture
def saved(tmp_path):
    return killed_after_a_save(tmp_path)


def test_it_learns(whole):
    assert "charlm: starting at step 0\n" in whole.stdout
    assert "sample:\n" in whole.stdout
    values = losses(whole)
    assert len(values) == 12
    assert values[-1] < values[0] - 0.5


def test_two_trainings_are_equal_to_the_bit(whole, tmp_path):
    assert digest(charlm(tmp_path)) == digest(whole)
    assert not list(tmp_path.iterdir())


def test_more_steps_give_other_weights(whole, tmp_path):
    assert digest(charlm(tmp_path, "--steps", "601")) != digest(whole)


def test_resumed_training_is_equal_to_the_bit(whole, saved, tmp_path):
    result = charlm(tmp_path, HOLDFAST_RESUME=str(saved), HOLDFAST_RESUME_STEP="299")
    assert f"charlm: resumed at step 300 from {saved}/charlm.ckpt\n" in result.stdout
    assert losses(result) == losses(whole)[6:]
    assert digest(result) == digest(whole)


def damaged(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("spoil, options, text, why", [
    (damaged, [], TEXT, "is damaged: its checksum is wrong"),
    (lambda p: os.truncate(p, p.stat().st_size - 1), [], TEXT, "is cut off"),
    (lambda p: os.truncate(p, 10), [], TEXT, "is cut off"),
    (lambda p: p.write_bytes(b"x" * 4096), [], TEXT, "is no checkpoint of this program"),
    (lambda p: p.unlink(), [], TEXT, "No such file or directory"),
    (lambda p: None, ["--hidden", "49"], TEXT, "was made with --hidden 48 --batch 16"),
    (lambda p: None, [], TEXT[:1], "was made from another text"),
])
def test_a_checkpoint_that_does_not_fit_is_refused(saved, tmp_path, spoil, options, text, why):
    spoil(saved / "charlm.ckpt")
    result = charlm(tmp_path, *options, text=text, HOLDFAST_RESUME=str(saved),
                    HOLDFAST_RESUME_STEP="299")
    assert result.returncode == 1
    assert why in result.stderr and str(saved) in result.stderr
    assert "step" not in result.stdout


def test_a_save_that_fails_ends_the_program(tmp_path):
    (tmp_path / "checkpoints").write_text("a file where the folder should be")
    result = charlm(tmp_path, "--save-every", "10")
    assert result.returncode == 1
    assert "charlm: " in result.stderr
    assert "digest:" not in result.stdout


def test_wrong_options_are_named(tmp_path):
    for options in (["--steps", "0"], ["--steps", "many"], ["--wrong", "1"], ["--out"]):
        result = charlm(tmp_path, size=options, text=[])
        assert result.returncode == 2
        assert options[0] in result.stderr
    assert charlm(tmp_path, size=[], text=[]).returncode == 2
    assert charlm(tmp_path, size=["--help"], text=[]).returncode == 0
