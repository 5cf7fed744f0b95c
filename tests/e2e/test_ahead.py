# SPDX-License-Identifier: Apache-2.0
"""A watched checkpoint of several files is put ahead while it is still being written: by the time
its last file is there, the rest is in the store."""
import os
import shutil
import signal
import time

import pytest

from support import shell, until

SHARD = 1 << 20


class Writer:
    """Plays the program that saves; the real supervisor watches. Each shard is closed at once."""

    def __init__(self, hf, *options):
        self.hf, self.folder = hf, hf.work / "out" / "step_5"
        self.folder.mkdir(parents=True)
        self.bytes = {}
        self.child = hf.run_start(
            f"--checkpoint-dir={hf.work}/out", "--checkpoint-quiet=4s", "--every=0",
            "--block-size=64KiB", *options,
            command=shell('until [ -e "$1" ]; do sleep 0.05; done; exit 75', hf.tmp / "stop"))
        hf.waits_for("command-started")

    def shard(self, name):
        self.bytes[name] = os.urandom(SHARD)
        (self.folder / name).write_bytes(self.bytes[name])

    def blocks(self):
        return [p for p in (self.hf.state / "store" / "r" / "data").rglob("*.raw")]

    def are_ahead(self, shards):
        until(lambda: len(self.blocks()) >= shards * SHARD >> 16, f"{shards} shards ahead")
        assert not self.hf.events("found") and not self.hf.events("verdict")

    def is_shipped(self, blocks):
        verdict = self.hf.waits_for("verdict")
        assert (verdict["kind"], verdict["step"]) == ("local", 5)
        assert len(self.blocks()) == blocks
        assert "whole" in self.hf.call("ckpt", "verify", "r").out
        (self.hf.tmp / "stop").touch()
        assert self.child.wait() == 75
        shutil.rmtree(self.folder)
        again = self.hf.run(f"--checkpoint-dir={self.hf.work}/out", "--resume",
                            command=shell("exit 0"))
        assert again.status == 0, again.err
        assert {p.name: p.read_bytes() for p in self.folder.iterdir()} == self.bytes


def test_shards_are_sent_while_others_are_written(hf):
    w = Writer(hf)
    w.shard("a")
    w.shard("b")
    w.are_ahead(2)
    before = set(w.blocks())
    w.shard("c")
    w.is_shipped(3 * SHARD >> 16)
    assert before < set(w.blocks())


def test_a_shard_that_changes_after_all_is_sent_anew(hf):
    w = Writer(hf)
    w.shard("a")
    w.shard("b")
    w.are_ahead(2)
    w.shard("a")
    w.shard("c")
    assert hf.waits_for("verdict")["bytes_sent"] == 4 * SHARD
    until(lambda: len(w.blocks()) == 3 * SHARD >> 16, "what it was before is swept")
    w.is_shipped(3 * SHARD >> 16)


def test_an_open_file_is_not_put_ahead(hf):
    """Its writer pauses; nobody knows what is still to come."""
    folder = hf.work / "out" / "step_5"
    folder.mkdir(parents=True)
    writer = ('exec 3>"$1/a"; head -c 200000 /dev/urandom >&3; '
              'head -c 200000 /dev/urandom >"$1/b"; '
              'until [ -e "$2" ]; do sleep 0.05; done; echo end >&3')
    child = hf.run_start(f"--checkpoint-dir={hf.work}/out", "--checkpoint-quiet=1s", "--every=0",
                         "--debug", command=shell(writer, folder, hf.tmp / "go"))
    until((folder / "b").exists, "the files")
    data = hf.state / "store" / "r" / "data"
    until(lambda: time.time() > os.stat(folder / "b").st_mtime + 3, "three seconds")
    assert not list(data.rglob("*.raw"))
    (hf.tmp / "go").touch()
    assert child.wait() == 0, child.err
    assert hf.ckpt()[-1]["bytes"] == 400004


def test_what_is_never_completed_is_swept(hf):
    """SIGKILL of the supervisor while parts are ahead: the next attempt's sweep takes them."""
    w = Writer(hf)
    w.shard("a")
    w.shard("b")
    w.are_ahead(2)
    os.kill(hf.command_pid(), signal.SIGKILL)
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    w.child.kill(signal.SIGKILL)
    w.child.wait()
    shutil.rmtree(w.folder)
    child = hf.run("--resume", "--keep=1", command=shell("exit 0"))
    assert child.status == 0, child.err
    hf.call("ckpt", "gc", "r")
    assert not w.blocks()


@pytest.mark.parametrize("whole", [False, True])
def test_the_notice_comes_in_between(hf, whole):
    """What is whole by then is shipped; what is not is said not to be."""
    w = Writer(hf, "--grace=8s", f"--notice-file={hf.tmp}/notice")
    w.shard("a")
    w.shard("b")
    w.are_ahead(2)
    if whole:
        w.folder.rename(w.folder.with_name("step_6"))
        hf.waits_for("verdict", step=6)
        assert len(w.blocks()) == 2 * SHARD >> 16, "under its new name nothing is sent again"
    (hf.tmp / "notice").touch()
    (hf.tmp / "stop").touch()
    assert w.child.wait() == 75, w.child.err
    assert ("local checkpoint" in w.child.err) == whole
