# SPDX-License-Identifier: Apache-2.0
"""Checkpoints by the real frameworks: each producer of frameworks/ is run once, under a tape
(tape.py), and kept in build/tapes until it, the recorder or a package's version changes."""
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tape
from support import PYTHON, TOP, processes_with

FOLDER = Path(__file__).resolve().parent / "frameworks"
TAPES = TOP / "build" / "tapes"
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
# script: (the package it needs, how it is started)
SCRIPTS = {
    "torch_plain": ("torch", [PYTHON]),
    "dcp": ("torch", TORCHRUN),
    "hf_trainer": ("transformers", [PYTHON]),
    "hf_trainer_2": ("transformers", TORCHRUN),
    "accelerate_loop": ("accelerate", [PYTHON]),
    "accelerate_loop_2": ("accelerate", TORCHRUN),
    "lightning_loop": ("lightning", [PYTHON]),
    "deepspeed_loop": ("deepspeed", TORCHRUN),
    "orbax_loop": ("orbax", [PYTHON]),
    "keras_loop": ("keras", [PYTHON]),
    "timm_loop": ("timm", [PYTHON]),
    "simulated": ("torch", [PYTHON]),
}


def command(script, out, mode, *options):
    """The command line of a producer; the test is skipped where its framework is missing."""
    package, start = SCRIPTS[script]
    apart = Path(sys.prefix, "apart", package)
    if importlib.util.find_spec(package) is None and not apart.exists():
        pytest.skip(f"avoidable: {package} is not installed (make deps)")
    return [*start, str(FOLDER / f"{script.removesuffix('_2')}.py"), str(out), mode,
            *map(str, options)]


def environment():
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("HOLDFAST_") and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**env, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def recorded(script, *options):
    """The tape of a full run. OUT is the folder `out` below the tape's."""
    with open(TOP / "tests" / "requirements.txt", "rb") as f:
        key = hashlib.sha256(f.read())
    lists = [TOP / "tests" / f"requirements-{name}.txt" for name in ("frameworks", "apart")]
    for path in (*lists, FOLDER / "common.py", FOLDER / f"{script.removesuffix('_2')}.py",
                 FOLDER.parent / "disk_tape.c"):
        key.update(path.read_bytes())
    key.update(repr(options).encode())
    TAPES.mkdir(parents=True, exist_ok=True)
    made = TAPES / f"{script}-{key.hexdigest()[:12]}"
    with open(TAPES / f"{script}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            record(script, options, made)
    return tape.Tape(made / "tape", made.with_suffix(".new") / "root")


def record(script, options, made):
    """Played to its end the tape must give the very folder that the program left."""
    new = made.with_suffix(".new")
    for old in TAPES.glob(f"{script}-*[0-9a-f]*"):
        shutil.rmtree(old)
    root = new / "root"
    root.mkdir(parents=True)
    env = {**environment(), "LD_PRELOAD": str(tape.library(new)), "DISK_TAPE": str(new / "tape"),
           "DISK_TAPE_BELOW": str(root)}
    try:
        done = subprocess.run(command(script, root / "out", "full", *options), env=env, cwd=new,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=240, check=False)
    finally:
        for pid in processes_with(new):  # a launcher that is ended leaves its ranks
            os.kill(pid, signal.SIGKILL)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    took = tape.Tape(new / "tape", root)
    player = took.play(new / "again")
    player.to(len(took.changes) - 1, None)
    end, again = tape.content(root), tape.content(player.folder)
    assert {k for k in end | again if end.get(k, 0) != again.get(k, 0)} == set(), \
        "the tape has missed a change"
    made.mkdir()
    (new / "tape").rename(made / "tape")
    shutil.rmtree(new)
