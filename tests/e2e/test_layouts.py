# SPDX-License-Identifier: Apache-2.0
"""Checkpoints as the real frameworks write them, whole, damaged, and as a kill at any moment of the
writing leaves them: `ckpt inspect` must tell which are whole. Layouts of frameworks that are too
large to install are simulated, and called so."""
import fnmatch
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

import producers
import tape
from support import BIN, LONG

MOMENTS = None if LONG else 60  # of the hundreds that a save has
SIMULATED = ("composer,ultralytics,megatron,megatron-legacy,nemo,lightning-sharded,mindformers,"
             "mindspore,paddle")
RUNS = {
    "torch": ("torch_plain", "--kind=numbered,inplace"),
    "dcp": ("dcp", "--steps=4", "--every=2"),
    "fsdp": ("dcp", "--steps=4", "--every=2", "--kind=fsdp"),
    "trainer": ("hf_trainer", "--steps=6", "--every=2", "--keep=2"),
    "trainer2": ("hf_trainer_2", "--steps=6", "--every=2", "--keep=2"),
    "accelerate": ("accelerate_loop", "--steps=6", "--every=2", "--keep=2"),
    "accelerate2": ("accelerate_loop_2", "--steps=6", "--every=2", "--keep=2"),
    "lightning": ("lightning_loop", "--kind=copy,link"),
    "deepspeed": ("deepspeed_loop", "--steps=4", "--every=2", "--kind=zero0,zero1,zero3"),
    "orbax": ("orbax_loop", "--kind=sync,async", "--keep=2"),
    "keras": ("keras_loop", "--steps=3", "--kind=backup,double,model"),
    "timm": ("timm_loop", "--steps=3"),
    "simulated": ("simulated", "--kind=" + SIMULATED),
}
# These say no more than the others of their framework.
ONLY_LONG = {"dcp", "trainer", "accelerate"}


@dataclass
class Case:
    run: str
    layout: str
    name: str  # what a resume would name
    step: int | None
    folder: str = ""  # below OUT
    ranks: int = 0  # of the job; 0: the folder alone is looked at
    world: int | None = None  # as it is told
    state: str = "whole"


# Damage that cannot be seen, or does not matter: (layout, file, damage, why).
BLIND = [
    ("hf-trainer", "*config.json", "removed", "the model is made by the script, not from it"),
    ("hf-trainer", "training_args.bin", "removed", "the Trainer resumes without it"),
    ("hf-trainer", "*.json", "cut", "the last byte is a newline"),
    ("accelerate", "scheduler.bin", "removed", "a script without a schedule has none"),
    ("orbax", "*commit_success.txt", "emptied cut half", "its being there is the sign"),
    ("orbax", "*/_sharding", "removed", "written only where arrays are sharded"),
    ("orbax", "*/array_metadatas/*", "removed", "written only for some arrays"),
    ("orbax", "*/ocdbt.process_0/manifest.ocdbt", "removed", "merged into the manifest above it"),
    ("orbax", "*/d/*", "removed cut half", "named by a tree inside the database; a folder that has "
     "its name is complete, for it is renamed as a whole"),
    ("paddle", "*.pdparams", "cut half", "tells no length; the mark is written after it"),
    ("paddle", "*.pdopt", "cut half", "as above"),
    ("paddle", "scheduler.pdparams", "removed", "a script without a schedule has none"),
    ("unknown", "net-1_8.ckpt", "cut half", "MindSpore's file tells no length: it counts only when "
     "quiet"),
]
# They name the newest, or are a second copy: what they name is whole without them.
BESIDE = ("latest", "last.ckpt", "latest-rank*.pt", "*.bkp")


CASES = {
    "torch in place": Case("torch", "torch", "ckpt.pt", None, "inplace"),
    "torch numbered": Case("torch", "torch", "step-8.pt", 8, "numbered"),
    "dcp": Case("dcp", "dcp", "step-4", 4),
    "fsdp": Case("fsdp", "dcp", "step-4", 4),
    "trainer": Case("trainer", "hf-trainer", "checkpoint-6", 6, world=1),
    "trainer of 2": Case("trainer2", "hf-trainer", "checkpoint-6", 6, ranks=2),
    "accelerate": Case("accelerate", "accelerate", "checkpoint_2", 2, "checkpoints", world=1),
    "accelerate of 2": Case("accelerate2", "accelerate", "checkpoint_2", 2, "checkpoints", 2),
    "lightning": Case("lightning", "lightning", "step=8.ckpt", 8, "link"),
    "lightning last": Case("lightning", "lightning", "last.ckpt", None, "copy"),
    "zero 0": Case("deepspeed", "deepspeed", "global_step4", 4, "zero0", state="unsure"),
    "zero 1": Case("deepspeed", "deepspeed", "global_step4", 4, "zero1", 2),
    "zero 3": Case("deepspeed", "deepspeed", "global_step4", 4, "zero3", 2),
    "orbax": Case("orbax", "orbax", "8", 8, "sync"),
    "orbax async": Case("orbax", "orbax", "8", 8, "async"),
    "keras backup": Case("keras", "keras-backup", "latest.weights.h5", None, "backup"),
    "keras double": Case("keras", "keras-backup", "latest.weights.h5", None, "double"),
    "keras model": Case("keras", "keras", "epoch-0003.keras", 3, "model"),
    "timm": Case("timm", "timm", "checkpoint-2.pth.tar", 2),
    "timm last": Case("timm", "timm", "last.pth.tar", None),
    "simulated composer": Case("simulated", "composer", "ep0-ba8-rank0.pt", 8, "composer", 2),
    "simulated ultralytics": Case("simulated", "torch", "last.pt", None, "ultralytics"),
    "simulated megatron": Case("simulated", "megatron", "iter_0000008", 8, "megatron"),
    "simulated megatron legacy": Case("simulated", "megatron", "iter_0000008", 8,
                                      "megatron-legacy"),
    "simulated nemo": Case("simulated", "lightning", "model--step=8-last.ckpt", 8, "nemo"),
    "simulated sharded lightning": Case("simulated", "lightning-sharded", "step=8.ckpt", 8,
                                        "lightning-sharded"),
    "simulated mindformers": Case("simulated", "mindformers", "iteration_00000008", 8,
                                  "mindformers"),
    "simulated mindspore": Case("simulated", "unknown", "net-1_8.ckpt", 8, "mindspore",
                                state="unsure"),
    "simulated paddle": Case("simulated", "paddle", "checkpoint-8", 8, "paddle"),
}


def inspect(folder, ranks=0):
    done = subprocess.run([BIN, "ckpt", "inspect", folder, "--json", f"--ranks={ranks}"],
                          capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {os.path.basename(look["path"]): look for look in json.loads(done.stdout)["things"]}


@pytest.fixture
def folder(tmp_path):
    yield tmp_path / "root"
    shutil.rmtree(tmp_path)


@pytest.fixture
def at_end(request, folder):
    """A case, and its folder as the framework left it."""
    case = CASES[request.param]
    played = producers.recorded(*RUNS[case.run])
    played.play(folder).to(len(played.changes) - 1, None)
    return case, folder / "out" / case.folder


def chosen(names):
    return [n for n in names if LONG or CASES[n].run not in ONLY_LONG]


@pytest.mark.parametrize("at_end", chosen(CASES), indirect=True)
def test_what_a_framework_has_finished_is_whole(at_end):
    case, place = at_end
    look = inspect(place, case.ranks)[case.name]
    assert (look["layout"], look["state"], look["step"]) == (case.layout, case.state, case.step)
    assert look["world"] == (case.ranks if case.world is None else case.world)
    assert look["roots"][0] == look["path"] == str(place / case.name)


def beside(name):
    return any(fnmatch.fnmatch(os.path.basename(name), pattern) for pattern in BESIDE)


def files_of(look):
    for root in look["roots"]:
        if os.path.isfile(root) and (root == look["path"] or not beside(root)):
            yield Path(root)
        for parent, _, names in os.walk(root):
            yield from (Path(parent, name) for name in names)


def blind(layout, path, kind):
    return any(layout == of and kind in kinds.split() and
               fnmatch.fnmatch(str(path), f"*{pattern}")
               for of, pattern, kinds, _ in BLIND)


DAMAGE = {
    "removed": lambda data: None,
    "emptied": lambda data: b"",
    "cut": lambda data: data[:-1],
    "half": lambda data: data[:len(data) // 2],
}


@pytest.mark.parametrize("at_end", chosen(CASES), indirect=True)
def test_what_lacks_a_file_or_a_byte_is_not_whole(at_end):
    """Each file of the checkpoint, each damage."""
    case, place = at_end
    missed = []
    for path in sorted(files_of(inspect(place, case.ranks)[case.name])):
        data = path.read_bytes()
        for kind, damage in DAMAGE.items():
            left = damage(data)
            if left == data:
                continue
            path.unlink()
            if left is not None:
                path.write_bytes(left)
            look = inspect(place, case.ranks).get(case.name)
            seen = look is None or look["state"] in ("partial", "foreign") or (
                look["state"] == "unsure" and case.state == "whole")
            if not seen and not blind(case.layout, path, kind):
                missed.append((str(path.relative_to(place)), kind, look["state"]))
            path.write_bytes(data)
    assert not missed, "\n" + "\n".join(map(str, missed))


def part(content, place, look):
    """What the disk holds of a checkpoint: {name: content}, by its roots."""
    names = [str(Path(root).relative_to(place)) for root in look["roots"]]
    names = [name for name in names if str(place / name) == look["path"] or not beside(name)]
    return {key: value for key, value in content.items()
            if value is not None and not blind(look["layout"], key, "removed")
            and any(key == name or key.startswith(name + "/") for name in names)}


def spread(moments, count):
    if count is None or len(moments) <= count:
        return moments
    return [moments[i * len(moments) // count] for i in range(count)]


def killed(played, below):
    """The moments at which something changes below a folder of OUT."""
    out = f"{played.below}/out/{below}" if below else f"{played.below}/out"
    return [m for m in played.moments() if played.changes[m[0]].name.startswith(out + "/")]


PLACES = {f"{case.run} {case.folder}".strip(): (case.run, case.folder, case.ranks)
          for name, case in CASES.items() if name in chosen(CASES)}


@pytest.mark.parametrize("place", PLACES)
def test_what_a_kill_leaves_is_whole_only_if_it_is(folder, place):
    """At no moment is anything called whole that differs from what a finished save left there. At
    the marks of the program, set when no save is in progress, nothing is called unfinished."""
    run, below, ranks = PLACES[place]
    played = producers.recorded(*RUNS[run])
    moments = killed(played, below)
    marks = [i for i, c in enumerate(played.changes) if c.op == "o" and c.name.endswith("/mark")]
    marks = [m for m in marks if m > moments[0][0]] + [len(played.changes) - 1]
    truths, player = [], played.play(folder)
    where = folder / "out" / below
    for mark in dict.fromkeys(marks):
        player.to(mark, None)
        looks = inspect(where, ranks)
        states = {look["state"] for look in looks.values()} - {"foreign"}
        assert states and "partial" not in states, (mark, looks)
        truths.append(tape.content(where))
    player, wrong, partial = played.play(folder), [], 0
    for moment in spread(moments, MOMENTS):
        player.to(*moment)
        now = tape.content(where) if where.is_dir() else {}
        for name, look in (inspect(where, ranks) if where.is_dir() else {}).items():
            partial += look["state"] == "partial"
            mine = part(now, where, look)
            if look["state"] == "whole" and not any(part(t, where, look) == mine for t in truths):
                wrong.append((moment, played.changes[moment[0]].name[len(str(played.below)):],
                              name, look["why"]))
    assert not wrong, "\n" + "\n".join(map(str, wrong))
    assert partial or run != "trainer2", "no moment was in the middle of a save"
