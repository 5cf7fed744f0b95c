# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of odd shapes, damaged records, and what is kept and removed by hand."""
import json
import os
import signal

import pytest

from support import loop_digest, trainer, until


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


def newest(folder, kind):
    return max(folder.glob(f"*.{kind}"), default=None)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 4
    path.chmod(0o600)
    path.write_bytes(data)


def preempted(hf, *options):
    """A preempted run with at least two checkpoints; its command."""
    command = looped(60, "--own-every", 4, "--pad", 30000)
    notice = hf.tmp / "notice"
    child = hf.run_start("--keep=5", *options, f"--notice-file={notice}", command=command)
    until(lambda: len(hf.events("verdict")) >= 2, "two checkpoints")
    notice.touch()
    assert child.wait() == 75
    notice.unlink()
    return command


def test_a_socket_and_links_in_a_checkpoint(hf):
    out = hf.work / "out"
    # A whole checkpoint with a socket, a pipe, links of every kind, and odd names.
    script = """
import os, socket, sys, time
out, tmp = sys.argv[1], sys.argv[1] + "/.tmp"
os.makedirs(tmp + "/sub")
open(tmp + "/state.json", "w").write("{}")
socket.socket(socket.AF_UNIX).bind(tmp + "/s")
os.mkfifo(tmp + "/sub/p")
for name, to in [("in", "state.json"), ("out", "/etc/passwd"), ("gone", "nowhere"), ("me", "me")]:
    os.symlink(to, tmp + "/" + name)
for name in [b"sp ace", b"new\\nline", "\\u4e2d\\U0001f680".encode(), b"\\xff\\xfe", b"n" * 255]:
    open(tmp.encode() + b"/" + name, "wb").write(name)
os.rename(tmp, out + "/step_1")
time.sleep(1.5)
"""
    out.mkdir()
    child = hf.run(f"--checkpoint-dir={out}", "--every=0", command=["python3", "-c", script, out])
    assert child.status == 0, child.err
    left = [line for line in child.warnings if "left out" in line]
    assert len(left) == 1 and "step_1/s" in left[0], child.err
    verdict = hf.events("verdict")[-1]
    assert verdict["kind"] == "local" and "left out" in verdict["why"]
    row = hf.ckpt()[-1]
    shown = hf.json("ckpt", "show", "r", f"{row['attempt']}-{row['number']}")["checkpoints"][0]
    kinds = {f["path"] if isinstance(f["path"], str) else bytes.fromhex(f["path"]["hex"]):
             f["kind"] for f in shown["content"]}
    assert {k for k, v in kinds.items() if v == "link"} == {"in", "out", "gone", "me"}
    assert kinds[b"\xff\xfe"] == "file" and kinds["n" * 255] == "file"
    assert "s" not in kinds and "sub/p" not in kinds
    manifest = json.loads(newest(hf.state / "store/r/checkpoints", "json").read_text())
    assert len(manifest["left_out"]) == 2
    assert hf.call("ckpt", "verify", "r").out.count("whole") == 1


@pytest.mark.parametrize("harm", [flip, lambda p: os.truncate(p, 300),
                                  lambda p: os.truncate(p, 0)], ids=["flipped", "cut", "emptied"])
def test_c7_a_damaged_manifest_is_stepped_back_from_once_and_for_all(hf, harm):
    command = preempted(hf)
    rows = hf.ckpt()
    last, before = rows[-1], rows[-2]
    victim = hf.state / "store/r/checkpoints" / ("%06d-%06d.json" % (last["attempt"],
                                                                     last["number"]))
    harm(victim)
    shown = hf.json("ckpt", "ls", "r")["checkpoints"]
    assert [row for row in shown if row["kind"] == "damaged"]
    assert "DAMAGED" in hf.call("ckpt", "verify", "r", status=1).out
    child = hf.preempt(command)
    assert "cannot be read" in child.err and "stepping back" in child.err
    restored = hf.events("restored")[-1]
    assert (restored["from_attempt"], restored["number"]) == (before["attempt"], before["number"])
    # The second start has a good one of its own, and does not meet the damage at all.
    child = hf.run("--keep=1", command=command)
    assert child.status == 0 and f"digest {loop_digest(60)}" in child.out
    assert "cannot be read" not in child.err
    assert hf.events("restored")[-1]["from_attempt"] == 2


def test_a_damaged_claim_has_a_way_past_it(hf):
    store = f"--store=file://{hf.tmp}/store"
    command = preempted(hf, store)
    step = hf.ckpt()[-1]["step"]
    flip(hf.tmp / "store/r/attempts/000001.json")
    # Its own machine has a copy of the claim: nobody is asked.
    child = hf.preempt(command, store)
    assert "claim of attempt 1 is damaged" in child.err
    assert hf.events("restored")[-1]["step"] == step
    # On another machine a person has to say that the last attempt is over.
    flip(hf.tmp / "store/r/attempts/000002.json")
    hf.new_machine()
    child = hf.run(store, command=command)
    assert child.status == 125
    assert "claim of attempt 2, the last, is damaged" in child.err and "--resume" in child.err
    child = hf.run(store, "--resume", command=command)
    assert child.status == 0, child.err
    assert f"digest {loop_digest(60)}" in child.out
    assert hf.events("restored")[-1]["from_attempt"] == 2


def test_a_damaged_end_record_is_an_end(hf):
    command = preempted(hf)
    flip(hf.state / "store/r/attempts/000001.end.json")
    child = hf.run(command=command)
    assert child.status == 0, child.err
    assert hf.events("restored")[-1]["from_attempt"] == 1


def test_c8_keep_minus_one_keeps_all(hf):
    child = hf.run("--keep=-1", command=looped(30, "--own-every", 5, "--step-ms", 20))
    assert child.status == 0, child.err
    assert not [row for row in hf.ckpt() if row["retired"]]


def test_pin_rm_and_gc(hf):
    command = preempted(hf)
    rows = hf.ckpt()
    first, last = rows[0], rows[-1]
    name = {id(r): f"{r['attempt']}-{r['number']}" for r in rows}
    one, newest_name = name[id(first)], name[id(last)]
    assert f"{one}: pinned" in hf.call("ckpt", "pin", "r", one).out
    assert hf.ckpt()[0]["pinned"] and "(pinned)" in hf.call("ckpt", "ls", "r").out
    refused = hf.call("ckpt", "rm", "r", one, status=1)
    assert "is pinned" in refused.err and "unpin" in refused.err
    refused = hf.call("ckpt", "rm", "r", newest_name, status=1)
    assert "last good one" in refused.err and "--even-last" in refused.err
    # Retention goes around the pin, while the run goes on.
    child = hf.preempt(command, "--keep=1", after=12)
    assert child.status == 75, child.err
    assert not hf.ckpt()[0]["retired"]
    hf.call("ckpt", "unpin", "r", one)
    told = hf.json("ckpt", "rm", "r", one)
    assert told["blocks"] > 0 and told["removed"][0]["attempt"] == 1
    assert hf.ckpt()[0]["retired"]
    assert "removed" in hf.call("ckpt", "pin", "r", one, status=1).err
    # What an upload left behind.
    data = hf.state / "store/r/data/000001-000099-01234567/ab"
    data.mkdir(parents=True)
    (data / ("ab" * 32 + ".raw")).write_bytes(b"x" * 1000)
    dry = hf.json("ckpt", "gc", "r", "--dry-run")
    assert (dry["blocks"], dry["bytes"]) == (1, 1000)
    assert data.exists()
    assert "removed: 1 blocks, 1000 bytes" in hf.call("ckpt", "gc", "r").out
    assert not data.exists()
    assert hf.call("ckpt", "verify", "r").out.count("whole") >= 1
    child = hf.run(command=command)
    assert child.status == 0 and f"digest {loop_digest(60)}" in child.out


def test_rm_while_the_run_goes_on(hf):
    """C6: what a running attempt builds upon is refused; the rest goes under its feet."""
    child = hf.run_start("--keep=0", "--block-size=64KiB",
                         command=looped(100000, "--own-every", 3, "--step-ms", 5, "--pad", 200000))
    until(lambda: len(hf.events("verdict")) >= 4, "four checkpoints")
    for row in hf.ckpt()[:3]:
        hf.call("ckpt", "rm", "r", f"{row['attempt']}-{row['number']}")
    hf.call("ckpt", "gc", "r")
    child.kill(signal.SIGTERM)
    child.wait()
    rows = hf.ckpt()
    assert [row["retired"] for row in rows[:4]] == [True, True, True, False]
    assert hf.call("ckpt", "verify", "r").out.count("whole") == len(rows) - 3


@pytest.mark.parametrize("words", [["rm", "r"], ["rm", "r", "x"], ["rm", "r", "1-0"],
                                   ["gc", "r", "1-1"], ["gc"], ["pin", "r", "1-1", "--dry-run"],
                                   ["unpin", "r", "1-1", "--even-last"]])
def test_wrong_words(hf, words):
    hf.call("ckpt", *words, status=64)
