# SPDX-License-Identifier: Apache-2.0
"""The PyTorch example, drilled with one rank and with two under torchrun: preempted twice, it ends
with the very weights of an undisturbed training."""
import importlib.util
import re
import subprocess

import pytest

from support import PYTHON, TOP

EXAMPLE = str(TOP / "hooks" / "examples" / "torch_loop.py")
STEPS = ["--steps", "120", "--step-ms", "15"]
COMMANDS = {
    "1 rank": [PYTHON, EXAMPLE, *STEPS],
    "2 ranks": [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", EXAMPLE, *STEPS],
}


@pytest.fixture(autouse=True)
def torch():
    if importlib.util.find_spec("torch") is None:
        pytest.skip("avoidable: torch is not installed")


def digests(text):
    return re.findall(r"^digest: ([0-9a-f]{64})$", text, re.M)


@pytest.mark.parametrize("ranks", COMMANDS)
def test_the_weights_are_those_of_an_undisturbed_training(hf, ranks):
    hf.env["OMP_NUM_THREADS"] = "1"
    command = COMMANDS[ranks]
    alone = subprocess.run(command, cwd=hf.work, env=hf.env, capture_output=True, text=True,
                           timeout=120)
    assert alone.returncode == 0, alone.stderr
    drill = hf.start("drill", "--times=2", "--at-step=30", "--until=finished", "--notice=30s",
                     "--poll=100ms", "--", *command)
    status = drill.wait(240)
    assert status == 0, drill.out[-3000:] + drill.err[-3000:]
    assert drill.out.splitlines()[-1] == "drill: PASS"
    assert re.search(r"^steps lost +0 +0$", drill.out, re.M)
    starts = [int(n) for n in re.findall(r"^step (\d+) loss", drill.out, re.M)]
    assert starts == list(range(120)), "each step once, in order"
    assert digests(drill.out) == digests(alone.stdout)
    assert len(digests(alone.stdout)) == 1
