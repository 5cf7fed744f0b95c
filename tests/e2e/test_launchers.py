# SPDX-License-Identifier: Apache-2.0
"""Training under the launchers that people use, with the hook in the script: at a notice all ranks
save at one step, no DataLoader worker gets a signal before, the tree ends in its time, and the
next start goes on from there."""
import importlib.util
import os
import socket
import sys
import time
from pathlib import Path

import pytest

from support import LONG, until

SCRIPT = str(Path(__file__).resolve().parent / "frameworks" / "hooked.py")
BIN = os.path.dirname(sys.executable)
GRACE = 15
END_S = 2
LAUNCHERS = {
    "torchrun": ("torch", [f"{BIN}/torchrun", "--standalone", "--nproc-per-node", "2"]),
    "accelerate": ("accelerate", [f"{BIN}/accelerate", "launch", "--multi_gpu", "--num_processes",
                                  "2", "--num_machines", "1", "--mixed_precision", "no",
                                  "--dynamo_backend", "no", "--main_process_port", "0"]),
    "deepspeed": ("deepspeed", [f"{BIN}/deepspeed", "--num_accelerators", "2", "--master_port",
                                "PORT"]),
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def lines(folder, pattern):
    """{name: [(nanoseconds, words)]} of what the script has told."""
    return {path.name: [(int(line.split()[0]), line.split()[1:])
                        for line in path.read_text().splitlines()]
            for path in folder.glob(pattern)}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a8_all_ranks_save_and_workers_live_until_then(hf, launcher):
    package, start = LAUNCHERS[launcher]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"avoidable: {package} is not installed (make deps)")
    notes = hf.tmp / "notes"
    notes.mkdir()
    hf.env.update(OMP_NUM_THREADS="1", DS_ACCELERATOR="cpu", DS_BUILD_OPS="0",
                  PATH=f"{BIN}:{os.environ['PATH']}")
    start = [free_port() if word == "PORT" else word for word in start]
    command = [*start, SCRIPT, launcher, str(notes)]
    notice = hf.tmp / "preempt"
    begun_at = 0
    for attempt in (1, 2) if LONG else (1,):
        child = hf.run_start(f"--notice-file={notice}", f"--grace={GRACE}s", command=command)
        until(lambda: hf.step(attempt) >= begun_at + 5, "steps", 120)
        workers = until(lambda: len(w := lines(notes, "worker.*")) == 4 and w, "the workers")
        notice.touch()
        told = time.monotonic()
        assert child.wait(GRACE + 30) == 75, child.err
        took = time.monotonic() - told
        notice.unlink()
        assert took < GRACE + END_S
        assert not hf.left()
        ranks = lines(notes, "rank.*")
        assert set(ranks) == {"rank.0", "rank.1"}
        assert len({tuple(words[1:2]) for rows in ranks.values() for _, words in rows[-1:]}) == 1
        saved_ns = max(rows[-1][0] for rows in ranks.values())
        early = [(name, words) for name, rows in lines(notes, "signal.*").items()
                 for at, words in rows if at < saved_ns and at > min(w[0][0] for w in
                                                                     workers.values())]
        assert early == [], "a worker got a signal before the save was made"
        assert "killed by signal" not in child.out + child.err
        saved = hf.events("saved", attempt)[0]
        assert saved["ranks"] == 2
        assert {rows[-1][1][1] for rows in ranks.values()} == {str(saved["step"])}
        assert hf.events("verdict", attempt)[-1]["kind"] == "local"
        if attempt == 2:
            assert ["begin", str(begun_at)] in [words for _, words in ranks["rank.0"]]
        begun_at = saved["step"] + 1
        for path in notes.iterdir():
            path.unlink()
