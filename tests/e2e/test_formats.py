# SPDX-License-Identifier: Apache-2.0
"""Stores that the real thing wrote, read by a reader that knows docs/formats.md alone (reader.py):
it accepts all of them, and restores what the trainer saved, byte for byte."""
import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess

import pytest

import doctables
import reader
from reader import Damaged, Newer, Reader
from support import PYTHON, TOP, TRAINERS, loop_digest, shell, trainer, until

DATA = TOP / "tests" / "data"
NONE = f"{os.devnull}/none"


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


def snapshot(folder):
    """{name: (kind, mode, content or target)} of a tree, its top included."""
    top, found = os.fsencode(str(folder)), {}
    places = [top]
    for at, dirs, files in os.walk(top):
        places += [os.path.join(at, name) for name in dirs + files]
    for place in places:
        st, name = os.lstat(place), os.path.relpath(place, top)
        if stat.S_ISLNK(st.st_mode):
            found[name] = ("link", 0, os.readlink(place))
        elif stat.S_ISDIR(st.st_mode):
            found[name] = ("dir", st.st_mode & 0o1777, b"")
        else:
            with open(place, "rb") as f:
                found[name] = ("file", st.st_mode & 0o1777, f.read())
    return found


def differences(a, b):
    return [(n, a.get(n, NONE)[:2], b.get(n, NONE)[:2])
            for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)]


def accepted(hf, store=None, run="r"):
    """The reader finds nothing, and what it makes of the store is what the product shows."""
    seen = Reader(store or hf.state / "store", run)
    assert not seen.findings, "\n".join(map(str, seen.findings))
    rows = [{k: v for k, v in row.items() if k not in ("at", "at_age_s")}
            for row in hf.json("ckpt", "ls", run)["checkpoints"]]
    assert rows == list(seen.rows())
    newest = seen.newest()
    assert newest == seen.newest_whole()
    if newest:
        shown = hf.json("ckpt", "show", run, "%d-%d" % newest)["checkpoints"]
        m = seen.attempts[newest[0]].row[newest[1]]
        assert [(row["attempt"], row["number"]) for row in shown] == [newest]
        assert [as_shown(m, f) for f in m["files"]] == shown[0]["content"]
    live = [row for row in rows if row["kind"] == "checkpoint" and not row["retired"]]
    if live:
        checked = hf.json("ckpt", "verify", run)["checkpoints"]
        assert [(r["attempt"], r["number"], r["whole"]) for r in checked] == \
            [(r["attempt"], r["number"], True) for r in live]
    check_status(hf, run)
    return seen


def as_shown(m, f):
    """A file of a manifest as docs/ckpt.md says that `show --json` has it."""
    kind = {"dir": "folder"}.get(f["kind"], f["kind"])
    return {"root": m["roots"][f["root"]]["path"], "path": f["path"], "kind": kind,
            "bytes": f.get("size", 0)}


def check_status(hf, run="r"):
    status = hf.status(run)
    assert not list(doctables.status_faults(status, True))
    ages = {k.removesuffix("_age_s") for k in status if k.endswith("_age_s")}
    assert ages == set(doctables.TIMES)
    check_journals(hf.dir(run))


# --- the state folder ---------------------------------------------------------------------------

EXACT = type
KEEPER = {"pid": int, "start": int, "boot_id": str, "command_pid": int, "command_start": int,
          "cgroup": str}
EXIT = {"status": int, "exec_errno": int, "forced": bool, "at_wall_ms": int,
        "log_dropped_bytes": int}
SAVED = {"type": str, "serial": int, "request": int, "life": int, "step": int, "world": int,
         "ranks": list, "reason": str, "strategy": str, "resume_path": (str, dict),
         "roots": list, "held": list, "stamps": list}
STAMP = {"path": (str, dict), "size": int, "mtime_ns": str, "inode": str}
KNOWN = {"path": (str, dict), "step": int, "prints": str}
RUN = {"format": int, "name": str, "store": str, "default_store": bool}


def same_members(value, kinds, where):
    assert value.keys() == kinds.keys(), (where, value.keys() ^ kinds.keys())
    for name, kind in kinds.items():
        assert EXACT(value[name]) in (kind if isinstance(kind, tuple) else (kind,)), (where, name)


def check_journals(folder):
    """Every file in a run's state folder has a name and the members that docs/formats.md says."""
    same_members(json.loads((folder / "run.json").read_text()), RUN, folder)
    for attempt in folder.iterdir():
        if not attempt.name.isdigit():
            assert attempt.name in ("run.json", "lock", "status.json", "events.jsonl", "save",
                                    "supervisor.log", "supervisor.log.1"), attempt
            continue
        for path in attempt.iterdir():
            check_journal(path, int(attempt.name))


def check_journal(path, attempt):
    if re.fullmatch(r"log\.\d{15}(\.times)?|[ksc]|leaving", path.name):
        if path.name.endswith(".times"):
            assert re.fullmatch(r"(\d{13} \d{15}\n)*", path.read_text())
        return
    if path.name == "saves.jsonl":
        check_saves(path)
        return
    value = json.loads(path.read_text())
    if path.name == "claim.json":
        assert reader.read(path.read_bytes(), ("claim",))["attempt"] == attempt
    elif path.name == "watched.json":
        same_members(value, {"format": int, "known": list}, path)
        for one in value["known"]:
            same_members(one, KNOWN, path)
            assert re.fullmatch("([0-9a-f]{16})+", one["prints"])
    else:
        same_members(value, {"keeper.json": KEEPER, "exit": EXIT}[path.name], path)


def check_saves(path):
    lines = path.read_text().split("\n")
    assert not any(lines[0::2]), "each line has an empty one before it"
    saved, shipped = [], []
    for line in filter(None, lines):
        value = json.loads(line)
        if value["type"] == "shipped":
            same_members(value, {"type": str, "serial": int}, path)
            shipped.append(value["serial"])
            continue
        same_members(value, SAVED, path)
        saved.append(value["serial"])
        assert len(value["held"]) in (0, len(value["roots"]))
        for stamp in value["stamps"]:
            same_members(stamp, STAMP, path)
            assert stamp["mtime_ns"].isdigit() and stamp["inode"].isdigit()
    assert saved == sorted(set(saved)) and set(shipped) <= set(saved)


# --- the document and the reader ----------------------------------------------------------------


def test_every_member_that_the_reader_knows_is_in_the_document():
    text = doctables.FORMATS[:doctables.FORMATS.index("## A file by hand")]
    for name, (needed, may) in reader.RECORDS.items():
        assert f"`{name}`" in text
        for member in [*needed, *may]:
            assert f"`{member}`" in text, f"{name}: {member}"
    for kind in (reader.FILE, *reader.OF_KIND.values()):
        assert all(f"`{member}`" in text for member in kind)
    for members in (KEEPER, EXIT, SAVED, STAMP, KNOWN, RUN):
        assert all(f"`{member}`" in doctables.FORMATS for member in members), members


def test_every_documented_event_is_looked_for_by_a_test():
    """What no test asks for by its name is said here, so that it does not pass unseen."""
    tests = "".join(p.read_text() for p in sorted((TOP / "tests").rglob("test_*.py"))
                    if p != TOP / "tests/e2e/test_formats.py") + SEEN_HERE
    unseen = {name for name in doctables.EVENTS if f'"{name}"' not in tests}
    assert unseen == UNSEEN
    types = set().union(*(event.may for event in doctables.EVENTS.values()))
    assert types == doctables.MEMBERS.keys(), "each member has a type, and each type a member"


SEEN_HERE = '"save-command"'  # test_a_save_command_that_fails
# They need a disk that is full at the right moment; tests/unit has what raises them.
UNSEEN = {"held-dropped", "log-dropped"}


@pytest.mark.parametrize("name", ["claim", "end", "abort", "seal", "manifest"])
def test_golden_records_and_every_bit_of_them(name):
    """One flipped bit anywhere is damage, and so is a cut anywhere."""
    data = (DATA / f"{name}-1.json").read_bytes().removesuffix(b"\n")
    value = reader.read(data, (name,))
    if name == "manifest":
        reader.check_manifest(value)
    for at in range(len(data)):
        for bit in range(8) if name == "abort" else [at % 8]:
            hurt = bytearray(data)
            hurt[at] ^= 1 << bit
            with pytest.raises(Damaged):
                reader.read(bytes(hurt), (name,))
        with pytest.raises(Damaged):
            reader.read(data[:at], (name,))


def resealed(data, **members):
    """The record with these members changed, and a right sum."""
    value = {**json.loads(data), **members}
    value.pop("sum", None)
    text = json.dumps(value, separators=(",", ":")).encode()
    return text[:-1] + b',"sum":"' + hashlib.sha256(text[:-1]).hexdigest().encode() + b'"}'


def test_a_newer_record_is_told_from_a_damaged_one():
    data = (DATA / "seal-1.json").read_bytes().removesuffix(b"\n")
    reader.read(resealed(data), ("seal",))
    for members in ({"format": 2}, {"features": ["packs"]}, {"format": 2, "nonce": 7}):
        with pytest.raises(Newer):
            reader.read(resealed(data, **members), ("seal",))
    for members in ({"nonce": "x"}, {"by_attempt": 0}, {"by_attempt": 1.0}, {"extra": 1},
                    {"type": "abort"}, {"format": 0.5}, {"features": None}):
        with pytest.raises(Damaged):
            reader.read(resealed(data, **members), ("seal",))


# --- watched folders: odd trees -----------------------------------------------------------------

ODD_NAMES = [b"sp ace", b"new\nline", "中\U0001f680".encode(), b"\xff\xfe", b"n" * 255, b"-",
             b"..a", b"a-b", b"a", b"a.b", b"quo\"te\\", b"\x01\x7f", b"e\xcc\x81", b"~"]


class Saver:
    """Plays a program that knows nothing of Holdfast: it renames whole trees into a watched
    folder. The real `holdfast run` watches it; a copy of each tree is kept for comparison."""

    def __init__(self, hf, *options):
        self.hf, self.out, self.kept = hf, hf.work / "out", hf.tmp / "kept"
        self.out.mkdir()
        self.kept.mkdir()
        self.stop = hf.tmp / "stop"
        self.command = shell('until [ -e "$1" ]; do sleep 0.02; done; exit 75', self.stop)
        self.options = [f"--checkpoint-dir={self.out}", "--every=0", *options]

    @contextlib.contextmanager
    def running(self):
        self.stop.unlink(missing_ok=True)
        before = len(self.hf.events("command-started"))
        child = self.hf.run_start(*self.options, command=self.command)
        until(lambda: len(self.hf.events("command-started")) > before, "the command")
        yield
        self.stop.touch()
        assert child.wait() == 75, child.err

    def save(self, step, make):
        """make(folder) builds the tree."""
        name = f"step_{step}"
        make(self.out / ".scratch")
        subprocess.run(["cp", "-a", self.out / ".scratch", self.kept / name], check=True)
        os.rename(self.out / ".scratch", self.out / name)
        self.hf.waits_for("verdict", step=step)

    def steps(self, seen):
        return {m["step"]: at for at in seen.candidates()
                if (m := seen.attempts[at[0]].row[at[1]])}

    def compare(self, seen):
        """The reader's restore of every checkpoint is what was saved."""
        for step, at in self.steps(seen).items():
            to = self.hf.tmp / "restored" / str(step)
            assert str(seen.restore(*at, to)) == f"{to}{self.out}/step_{step}"
            saved = snapshot(self.kept / f"step_{step}")
            assert not differences(saved, snapshot(f"{to}{self.out}/step_{step}")), step
            shutil.rmtree(to)

    def product_restores(self, step):
        """The newest one goes back to its place, as it was saved, when the run goes on."""
        shutil.rmtree(self.out)
        self.out.mkdir()
        with self.running():
            pass
        assert os.listdir(self.out) == [f"step_{step}"]
        assert not differences(snapshot(self.kept / f"step_{step}"),
                               snapshot(self.out / f"step_{step}"))


def odd_tree(top):
    """One of each: names, kinds, modes, links of every sort, holes, sizes around a block's."""
    os.makedirs(top / "deep" / "er" / "empty")
    for i, name in enumerate(ODD_NAMES):
        place = os.path.join(os.fsencode(top), name)
        with open(place, "wb") as f:
            f.write(name * i)
        os.chmod(place, [0o644, 0o600, 0o4755, 0o2711, 0o1640, 0o000, 0o777][i % 7])
        os.mkdir(os.path.join(os.fsencode(top / "deep"), name), 0o700)
    for size in (0, 1, 65535, 65536, 65537, 200000):
        (top / f"size{size}").write_bytes(random.Random(size).randbytes(size))
    for to in (b"size1", b"../../etc", b"/etc/passwd", b"nowhere", b"\xff", b"self"):
        os.symlink(to, os.path.join(os.fsencode(top), b"self" if to == b"self" else
                                    b"to_" + hashlib.sha256(to).hexdigest()[:8].encode()))
    os.link(top / "size65537", top / "deep" / "hard")
    for name, holes in [("hole", [0]), ("middle", [1 << 20]), ("all", [])]:
        with open(top / name, "wb") as f:
            f.truncate(2 << 20)
            for at in holes:
                f.seek(at)
                f.write(b"data")
    (top / "zeros").write_bytes(bytes(1 << 17))
    os.chmod(top / "deep", 0o750)
    os.chmod(top / "deep" / "er", 0o1777)


def test_odd_trees_come_back_by_both_hands(hf):
    saver = Saver(hf, "--block-size=64KiB", "--keep=0")
    with saver.running():
        saver.save(1, odd_tree)
        saver.save(2, lambda top: top.write_bytes(b"1"))
        saver.save(3, lambda top: top.write_bytes(b"x" + bytes(1 << 18) + b"y"))
        saver.save(4, odd_tree)
    seen = accepted(hf)
    saver.compare(seen)
    m = seen.attempts[1].row[4]
    assert m["step"] == 4 and m["bytes_sent"] > 0, "its parent is step 3 alone: all is sent again"
    at = saver.steps(seen)[4]
    whole = seen.restore(*at, hf.tmp / "again")
    for name in ("hole", "middle", "all", "zeros"):
        assert os.stat(whole / name).st_blocks * 512 <= (1 << 17), f"{name} has lost its holes"
    saver.product_restores(4)
    for name in ("hole", "middle", "all", "zeros"):
        assert os.stat(saver.out / "step_4" / name).st_blocks * 512 <= (1 << 17), name
    accepted(hf)


def random_change(dice, top):
    """A tree that is a little different from the one before."""
    for _ in range(dice.randrange(1, 5)):
        place = top / dice.choice("abcdef")
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        kind = dice.randrange(5)
        if kind == 0:
            place.symlink_to(dice.choice(["a", "..", "/x", "f/g"]))
        elif kind == 1:
            place.mkdir()
            (place / dice.choice("xyz")).write_bytes(dice.randbytes(dice.randrange(3)))
        elif kind == 2:
            place.write_bytes(bytes([dice.randrange(3)]) * dice.choice([1, 65536, 150000]))
        elif kind == 3:
            place.write_bytes(dice.randbytes(dice.choice([10, 65536, 70000])))
            place.chmod(dice.choice([0o600, 0o755, 0o444]))


def test_random_trees_over_attempts_with_pins_rm_and_gc(hf):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    dice = random.Random(seed)
    saver = Saver(hf, "--block-size=64KiB", "--keep=3")
    tree = hf.tmp / "tree"
    tree.mkdir()
    step = 0
    for _ in range(3):
        with saver.running():
            for _ in range(dice.randrange(2, 6)):
                step += 1
                random_change(dice, tree)
                (tree / "data").write_bytes(dice.randbytes(9))  # without one it is no checkpoint
                saver.save(step, lambda top: shutil.copytree(tree, top, symlinks=True))
                shutil.rmtree(saver.out / f"step_{step - 1}", ignore_errors=True)
        seen = accepted(hf)
        saver.compare(seen)
        live = ["%d-%d" % at for at in seen.candidates()]
        for name in dice.sample(live[1:], min(2, len(live) - 1)):
            words = dice.choice([["pin"], ["unpin"], ["rm"], ["pin", "unpin", "rm"], ["gc"]])
            for word in words:
                hf.start("ckpt", word, "r", *([] if word == "gc" else [name])).wait()
        hf.call("ckpt", "gc", "r")
        seen = accepted(hf)
        named = {(b["where"], b["id"]) for at in seen.candidates()
                 for b in seen.attempts[at[0]].row[at[1]]["blocks"] if b["codec"] == "raw"}
        assert named == set(seen.blocks), "gc leaves what is named, and nothing else"
    saver.product_restores(step)


# --- hooks --------------------------------------------------------------------------------------


def test_several_ranks_several_attempts_and_an_end(hf):
    script = 'RANK=1 WORLD_SIZE=2 "$@" & a=$!; RANK=0 WORLD_SIZE=2 "$@"; s=$?; wait $a; exit $s'
    command = shell(script, *looped(60, "--own-every", 6, "--pad", 70000, "--step-ms", 10))
    notice = hf.tmp / "notice"
    for attempt in (1, 2):
        child = hf.run_start("--keep=2", "--block-size=64KiB", f"--notice-file={notice}",
                             command=command)
        hf.waits_for("verdict", attempt=attempt)
        notice.touch()
        assert child.wait() == 75, child.err
        notice.unlink()
        seen = accepted(hf)
        n, j = seen.newest()
        m = seen.attempts[n].row[j]
        assert (m["world"], m["ranks"], m["strategy"]) == (2, [0, 1], "hook")
        where = seen.restore(n, j, hf.tmp / f"by-reader-{attempt}")
        for rank in (0, 1):
            state = json.loads((where / f"rank{rank}.json").read_text())
            assert state["digest"] == loop_digest(m["step"] + 1, rank)
    child = hf.run("--keep=1", command=command)
    assert child.status == 0, child.err
    seen = accepted(hf)
    assert seen.attempts[4].claim["kind"] == "finished"
    for n, last in ((1, "preempted"), (2, "preempted"), (3, "finished")):
        assert seen.attempts[n].end["outcome"] == last
        assert seen.output(n).decode() == hf.call("logs", "r", f"--attempt={n}").out
    assert any(a.retired for a in seen.attempts.values())


def test_a_save_command_that_fails(hf):
    saver = Saver(hf, "--save-command=sh -c 'exit 3'")
    notice = hf.tmp / "notice"
    child = hf.run_start(*saver.options, f"--notice-file={notice}", command=saver.command)
    hf.waits_for("command-started")
    saver.save(1, odd_tree)
    notice.write_text("3s")
    hf.waits_for("save-command", exit_code=3, signal=0, late=False)
    saver.stop.touch()
    assert child.wait() == 75
    accepted(hf)


def copier(hf):
    """Puts what was restored aside, where a test can look at it."""
    return shell('cp -a "$HOLDFAST_RESUME" "$1"', hf.tmp / "by-product")


def test_a_crash_a_killed_supervisor_a_fresh_start_and_another_machine(hf):
    store = hf.tmp / "store"
    at = f"--store=file://{store}"
    child = hf.run_start(at, command=looped(100000, "--own-every", 5, "--step-ms", 5))
    hf.waits_for("verdict")
    child.kill(signal.SIGKILL)
    child.wait()
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    child = hf.run_start(at, "--resume", command=looped(100000, "--own-every", 7, "--step-ms", 5))
    hf.waits_for("verdict", attempt=2)
    os.kill(hf.command_pid(2), signal.SIGSEGV)
    hf.waits_for("verdict", attempt=3)
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    seen = accepted(hf, store)
    assert [seen.attempts[n].end and seen.attempts[n].end["outcome"] for n in (1, 2, 3)] == \
        ["vanished", "failed", "preempted"]
    n, j = seen.newest()
    hf.new_machine()
    child = hf.run(at, "--resume", command=copier(hf))
    assert child.status == 0, child.err
    assert not differences(snapshot(hf.tmp / "by-product"),
                           snapshot(seen.restore(n, j, hf.tmp / "by-reader")))
    child = hf.run(at, "--fresh", command=looped(20, "--own-every", 10))
    assert child.status == 0 and "start 0\n" in child.out, child.err
    seen = accepted(hf, store)
    fresh = max(n for n, a in seen.attempts.items() if a.claim["fresh"])
    assert {n for n, _ in seen.candidates()} == {fresh}


def test_detached_and_stopped_by_a_person(hf):
    child = hf.run("--detach", command=looped(100000, "--step-ms", 5))
    assert child.status == 0, child.err
    pid = hf.status()["supervisor_pid"]
    hf.waits_for("joined")
    os.kill(pid, signal.SIGTERM)
    until(lambda: hf.status()["state"] == "ended", "the end")
    seen = accepted(hf)
    assert seen.output(1).startswith(b"start 0\n")
    child = hf.run_start(command=looped(100000, "--step-ms", 5), start_new_session=True)
    hf.waits_for("joined", attempt=2)
    for _ in range(2):
        child.kill(signal.SIGINT)
    child.wait()
    assert hf.events("attempt-ended")[-1]["outcome"] == "stopped"
    seen = accepted(hf)
    assert seen.attempts[2].end["outcome"] == "stopped"


@pytest.mark.parametrize("times", [1, 40])
def test_output_in_pieces(hf, times):
    """Some megabytes, lines that are no UTF-8, and no end of line: the pieces are the output."""
    script = ("import sys; w = sys.stdout.buffer\n"
              f"for i in range({times}): w.write(bytes(range(256)) * 300 + b'%d' % i)\n")
    child = hf.run(command=[PYTHON, "-c", script])
    assert child.status == 0
    seen = accepted(hf)
    expected = b"".join(bytes(range(256)) * 300 + b"%d" % i for i in range(times))
    assert seen.output(1) == expected == child.out_path.read_bytes()
    assert len(seen.attempts[1].output) >= len(expected) / (1 << 20)


def test_the_recipe_by_hand_does_what_it_says(hf):
    """The shell commands in docs/formats.md, as they stand there."""
    for tool in ("jq", "sha256sum"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    saver = Saver(hf, "--block-size=64KiB")
    with saver.running():
        saver.save(1, odd_tree)
    text = doctables.FORMATS[doctables.FORMATS.index("## A file by hand"):]
    recipe = re.search(r"```sh\n(.*?)```", text, re.S)[1]
    for old, new in (("/path/to/store/myrun", str(hf.state / "store" / "r")),
                     ("000003-000012", "000001-000001"), ("weights.bin", "size200000")):
        assert old in recipe
        recipe = recipe.replace(old, new)
    done = subprocess.run(["bash", "-ec", recipe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    m = Reader(hf.state / "store", "r").attempts[1].row[1]
    entry = next(f for f in m["files"] if f["path"] == "size200000")
    assert sum(line.endswith(": OK") for line in lines) == len(entry["extents"]) == 4
    assert lines[-1].split()[0] == entry["hash"]
    restored = hf.state / "store" / "r" / "restored"
    assert restored.read_bytes() == (saver.kept / "step_1" / "size200000").read_bytes()


def test_the_reader_alone_as_a_program(hf):
    hf.preempt(looped(1000, "--pad", 1000))
    told = subprocess.run([PYTHON, TRAINERS.parent / "reader.py", hf.state / "store", "r",
                           hf.tmp / "to"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr + told.stdout
    assert "newest (1, 1)" in told.stdout and (hf.tmp / "to").exists()
