# SPDX-License-Identifier: Apache-2.0
"""P1: a checkpoint of one number of ranks and a command that starts another. The launcher is a
shell script with torchrun's name and options; the ranks are real."""
import pytest

from support import trainer

LAUNCHER = """#!/bin/sh
export WORLD_SIZE=${1#--nproc-per-node=}
shift
RANK=0
while [ $RANK -lt $WORLD_SIZE ]; do
    RANK=$RANK "$@" &
    RANK=$((RANK + 1))
done
wait
"""


@pytest.fixture
def launch(hf):
    path = hf.work / "torchrun"
    path.write_text(LAUNCHER)
    path.chmod(0o755)

    def command(ranks, *options, program=path):
        return [str(program), f"--nproc-per-node={ranks}",
                *trainer("loop.py", "--steps", 100000, *options)]
    return command


def test_p1_another_number_of_ranks_is_refused_before_the_start(hf, launch):
    assert hf.preempt(launch(2), after=60).status == 75
    refused = hf.run("--resume", command=launch(3))
    assert refused.status == 125
    assert "was saved by 2 ranks, and the command starts 3: nothing was started" in refused.err
    assert "--allow-world-change" in refused.err
    attempt = hf.events("attempt-ended")[-1]
    assert attempt["outcome"] == "not-started" and not hf.events("command-started", 2)
    assert hf.events("world-differs", 2)[0]["declared"] == 3
    # Nothing is lost: as many ranks as before go on.
    assert hf.preempt(launch(2), "--resume", after=60).status == 75
    assert hf.events("resumed", 3)


def test_p1_allowed(hf, launch):
    assert hf.preempt(launch(2), after=60).status == 75
    child = hf.preempt(launch(3, "--no-load"), "--resume", "--allow-world-change", after=60)
    assert child.status == 75
    assert "was saved by 2 ranks, and the command starts 3\n" in child.err
    assert hf.ckpt()[-1]["number"] >= 1


def test_a_launcher_that_is_not_known_is_told_of_at_the_handshake(hf, launch):
    other = hf.work / "start.sh"
    other.write_text(LAUNCHER)
    other.chmod(0o755)
    assert hf.preempt(launch(2, program=other), after=60).status == 75
    child = hf.preempt(launch(3, "--no-load", program=other), "--resume", after=60)
    assert child.status == 75
    assert "is of 2 ranks, and 3 train now" in child.err
    assert hf.events("world-differs", 2)[0]["joined"] == 3
