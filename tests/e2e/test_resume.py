# SPDX-License-Identifier: Apache-2.0
"""What comes back after a preemption: the very state, at the very path, the newest that is whole,
and nothing of it over what a person has there."""
import json
import os
import shutil

import pytest

from support import PYTHON, loop_digest, shell, trainer, tree_digest, until


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


def attempt_of(hf, run="r"):
    return hf.events("claimed", run=run)[-1]["attempt"]


def restored(hf):
    """The checkpoint that the newest attempt started from."""
    return hf.events("restored", attempt=attempt_of(hf))[0]


# --- nothing is lost ----------------------------------------------------------------------------


@pytest.mark.parametrize("times", [1, 3])
def test_the_weights_are_those_of_an_uninterrupted_training(hf, times):
    out = hf.tmp / "weights"
    trace = hf.tmp / "trace"
    command = looped(100, "--out", out, "--trace", trace, "--pad", 100000)
    store = f"--store=file://{hf.tmp}/store"
    for _ in range(times):
        child = hf.preempt(command, store, after=5)
        assert child.status == 75
        assert hf.events("verdict")[-1]["kind"] == "local"
        hf.new_machine()
    child = hf.run(store, command=command)
    assert child.status == 0
    assert out.read_text() == loop_digest(100)
    done = [int(line.split()[2]) for line in trace.read_text().splitlines()]
    assert done == list(range(100)), "no step twice, none lost"


def test_ranks_save_the_same_step_however_unequal_they_are(hf):
    both = " & ".join(
        f"RANK={rank} WORLD_SIZE=2 $0 $1 --steps 120 --step-ms {ms} --save-ms {save} "
        f"--out $2/out.{rank}" for rank, ms, save in ((0, 7, 0), (1, 8, 150)))
    command = ["sh", "-c", f"{both} & wait %1; a=$?; wait %2; b=$?; exit $((a > b ? a : b))",
               *trainer("loop.py"), str(hf.tmp)]
    command = ["sh", "-c", command[2], PYTHON, command[4], str(hf.tmp)]
    store = f"--store=file://{hf.tmp}/store"
    child = hf.preempt(command, store, after=10)
    assert child.status == 75
    row = hf.ckpt()[-1]
    shown = hf.json("ckpt", "show", "r", f"{row['attempt']}-{row['number']}")["checkpoints"][0]
    names = {entry["path"] for entry in shown["content"] if entry["kind"] == "file"}
    assert names == {"rank0.json", "rank1.json"}
    hf.new_machine()
    assert hf.run(store, command=command).status == 0
    for rank in (0, 1):
        assert (hf.tmp / f"out.{rank}").read_text() == loop_digest(120, rank)


def test_a_checkpoint_never_lacks_a_rank(hf):
    """Two ranks are declared and one comes: nothing is published, and it is said."""
    command = shell("RANK=0 WORLD_SIZE=2 exec $1 $2 --steps 100000", *trainer("loop.py"))
    child = hf.preempt(command)
    assert child.status == 75
    assert hf.ckpt() == []
    assert "no checkpoint" in child.err


def test_d4_a_program_that_does_not_load_is_warned_of(hf):
    command = looped(90, "--no-load")
    assert hf.preempt(command, after=40).status == 75
    child = hf.run(command=command)
    assert "did not load it" in child.err
    doubt = hf.events("resume-not-proven")
    assert len(doubt) == 1 and doubt[0]["step"] < doubt[0]["checkpoint_step"]
    loads_nothing = [PYTHON, "-c", (
        "import holdfast\nrun = holdfast.init()\nrun.resume(lambda path: 0)\n"
        "for step in range(5): run.step(step)\nrun.done()")]
    assert hf.preempt(looped(1000), run="s").status == 75
    child = hf.run("--resume", command=loads_nothing, run="s")
    assert "did not load it" in child.err


# --- when it is saved ---------------------------------------------------------------------------


def test_d3_the_same_command_starts_clean_and_then_resumes(hf):
    """D3: nothing has to be said differently the first time, when there is no checkpoint yet, and
    what the preemption saved is what the second start takes."""
    command = looped(300)
    first = hf.preempt(command, after=10)
    assert "start 0\n" in first.out
    saved = hf.events("verdict", 1)[-1]
    assert saved["reason"] == "notice"
    second = hf.run(command=command)
    assert f"start {saved['step'] + 1}\n" in second.out
    assert f"digest {loop_digest(300)}" in second.out


def test_saves_in_between(hf):
    child = hf.run("--every=150ms", command=looped(60, "--step-ms", 20))
    assert child.status == 0
    verdicts = hf.events("verdict")
    assert len(verdicts) >= 3
    assert {(v["kind"], v["reason"], v["spare_ms"]) for v in verdicts} == {("local", "every", None)}
    steps = [v["step"] for v in verdicts]
    assert steps == sorted(set(steps))
    assert "holdfast: local" not in child.err, "routine is not told"


def test_never_in_between(hf):
    assert hf.run("--every=0", command=looped(20)).status == 0
    assert not hf.events("request")


def test_saves_of_its_own(hf):
    child = hf.run("--keep=0", command=looped(25, "--own-every", 5, "--step-ms", 40))
    assert child.status == 0
    rows = hf.ckpt()
    assert [row["reason"] for row in rows] == ["own"] * len(rows)
    assert [row["step"] for row in rows][-1] == 24
    told = [e["step"] for e in hf.events("verdict")]
    told += [e["step"] for e in hf.events("save-skipped")]
    assert sorted(told) == [4, 9, 14, 19, 24], "each save is shipped or said to be skipped"


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_how_many_are_kept(hf, keep):
    command = looped(40, "--own-every", 4, "--step-ms", 30, "--pad", 5000)
    child = hf.run(f"--keep={keep}", command=command)
    assert child.status == 0
    rows = hf.ckpt()
    live = [row for row in rows if not row["retired"]]
    data = list((hf.state / "store/r/data").iterdir())
    assert live[-1] == rows[-1], "the newest stays"
    if keep == 0:
        assert live == rows and len(rows) > 3
    else:
        # What is committed while others are being removed, or after the command's end, stays.
        assert len(live) <= keep + 2
        assert len(live) < len(rows)
    assert len(data) <= len(live) + (1 if keep else 0)
    assert hf.call("ckpt", "verify", "r").out.count("whole") == len(live)


def test_a_store_that_survives_is_durable(hf):
    child = hf.preempt(looped(1000), f"--store=file://{hf.tmp}/store", "--store-survives")
    assert child.status == 75
    assert hf.events("verdict")[-1]["kind"] == "durable"
    assert hf.status()["store_kind"] == "durable"
    assert hf.status()["save"]["verdict"] == "durable"
    assert "holdfast: durable: step" in child.err


def test_a_state_folder_is_local(hf):
    child = hf.run(command=["true"])
    assert "(local)" in child.err.splitlines()[0]
    assert "(local)" in hf.call("status", "r").out
    assert "safe" not in child.err and "durable" not in child.err


# --- how the command learns of it ---------------------------------------------------------------


def told(hf, *options):
    """argv and environment of a command that runs after a checkpoint was made, and of the first."""
    script = ("import json, os, sys\n"
              "with open(sys.argv[1], 'a') as f:\n"
              "    print(json.dumps([sys.argv[2:], {k: v for k, v in os.environ.items()\n"
              "                                     if k.startswith('HOLDFAST_')}]), file=f)\n"
              "sys.argv = [sys.argv[0], '--steps', '60']\n"
              f"sys.path.insert(0, {os.path.dirname(trainer('loop.py')[1])!r})\n"
              "import loop\n"
              "loop.main()\n")
    log = hf.tmp / "told"
    command = [PYTHON, "-c", script, log, "user's own", ""]
    command = [str(word) for word in command]
    assert hf.preempt(command, *options).status == 75
    assert hf.run(*options, command=command).status == 0
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_the_environment_says_what_to_resume_from(hf):
    (_, first), (_, second) = told(hf)
    assert not any(name.startswith("HOLDFAST_RESUME") for name in first)
    saved = hf.ckpt()[0]
    assert second["HOLDFAST_RESUME"] == saved["resume_path"]
    assert second["HOLDFAST_RESUME_DIR"] == os.path.dirname(saved["resume_path"])
    assert second["HOLDFAST_RESUME_STEP"] == str(saved["step"])
    assert (first["HOLDFAST_ATTEMPT"], second["HOLDFAST_ATTEMPT"]) == ("1", "2")
    assert first["HOLDFAST_TOKEN"] != second["HOLDFAST_TOKEN"]


def test_resume_args_are_split_as_shell_words_and_only_with_a_checkpoint(hf):
    (first, _), (second, _) = told(
        hf, "--resume-args=--load {checkpoint} \"a  b\" 'it''s' c\\ d --x={checkpoint}/y ''")
    own = ["user's own", ""]
    path = hf.ckpt()[0]["resume_path"]
    assert first == own
    assert second == [*own, "--load", path, "a  b", "its", "c d", f"--x={path}/y", ""]


def test_resume_args_that_cannot_be_split_are_refused(hf):
    child = hf.run("--resume-args=--load 'open", command=["true"])
    assert child.status == 125
    assert "resume-args" in child.err


# --- folders that are watched -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_checkpoints_that_are_renamed_into_a_folder(hf, kind):
    folder = hf.work / "out"
    folder.mkdir()
    options = [f"--store=file://{hf.tmp}/store", "--checkpoint-dir=out"]
    command = trainer("files.py", folder, "--kind", kind, "--steps", 80)
    child = hf.run_start(*options, command=command)
    until(lambda: any(e["step"] >= 9 for e in hf.events("verdict")), "a checkpoint")
    child.kill(2)
    assert child.wait() == 130
    assert hf.status()["protected_by"] == "watch"
    saved = hf.ckpt()[-1]
    assert saved["resume_path"] == str(folder / f"step_{saved['step']}")
    path = folder / f"step_{saved['step']}"
    content = tree_digest(path) if kind == "folder" else None
    shutil.rmtree(folder)
    hf.new_machine()
    again = hf.run(*options, command=command)
    assert again.status == 0
    assert f"start {saved['step'] + 1}\n" in again.out
    assert f"digest {loop_digest(80)}" in again.out
    if kind == "folder":
        assert tree_digest(path) == content


def test_a_folder_that_appears_later_is_watched(hf):
    folder = hf.work / "later"
    child = hf.run("--checkpoint-dir", folder, "--keep=0", command=trainer(
        "files.py", folder, "--steps", 30, "--step-ms", 40))
    assert child.status == 0
    assert hf.ckpt()[-1]["step"] == 29


def test_by_resume_args_alone(hf):
    folder = hf.work / "out"
    folder.mkdir()
    options = [f"--checkpoint-dir={folder}", "--resume-args=--load {checkpoint}"]
    command = ["env", "-u", "HOLDFAST_RESUME", *trainer("files.py", folder, "--steps", 60)]
    child = hf.run_start(*options, command=command)
    until(lambda: any(e["step"] >= 9 for e in hf.events("verdict")), "a checkpoint")
    child.kill(15)
    assert child.wait() == 75
    again = hf.run(*options, command=command)
    assert f"digest {loop_digest(60)}" in again.out
    assert "start 0\n" not in again.out


def test_d1_the_newest_is_not_the_highest_name(hf):
    """Names sort as text, change their width, and lie; one that comes later is newer."""
    folder = hf.work / "out"
    folder.mkdir()
    names = ["step_9000", "step_10000", "0900000", "handpicked", "9"]
    child = hf.run_start(f"--checkpoint-dir={folder}", "--keep=0", command=shell("sleep 1000"))
    hf.waits_for("command-started")
    for n, name in enumerate(names):
        (folder / ".t").write_text(name)
        (folder / ".t").rename(folder / name)
        until(lambda n=n: len(hf.events("verdict")) == n + 1, name)
    child.kill(15)
    assert child.wait() == 75
    again = hf.run("--resume", f"--checkpoint-dir={folder}",
                   command=shell('echo "$HOLDFAST_RESUME"; echo "$HOLDFAST_RESUME_STEP"'))
    assert again.out == f"{folder}/9\n9\n"


def test_c3_what_is_neither_renamed_nor_at_rest_is_no_checkpoint(hf):
    """Empty folders with a number, half a file, a folder that is not finished."""
    folder = hf.work / "out"
    folder.mkdir()
    (folder / "77777").mkdir()
    script = """
        mkdir $1/99999
        echo half >$1/88888
        mkdir $1/.t; echo x >$1/.t/f; mv $1/.t $1/4
        mkdir $1/u; echo x >$1/u/f; mv $1/u $1/5.tmp
        sleep 0.5
        exit 3"""
    child = hf.run(f"--checkpoint-dir={folder}", "--max-crashes=0", command=shell(script, folder))
    assert child.status == 3
    assert [row["step"] for row in hf.ckpt()] == [4]


# --- where files go back to ---------------------------------------------------------------------


def test_files_come_back_at_the_same_absolute_path(hf):
    """With odd names, modes, times, links and empty things."""
    folder = hf.work / "out"
    folder.mkdir()
    script = """
        set -e
        t="$1/.scratch"
        mkdir "$t" "$t/empty" "$t/sub dir"
        printf '' >"$t/nothing"
        printf 'abc' >"$t/sub dir/a b"
        printf 'x' >"$t/$(printf 'raw\\377name')"
        head -c 3000000 /dev/urandom >"$t/big"
        ln -s /nowhere "$t/dangling"
        ln -s big "$t/link"
        chmod 750 "$t/sub dir"; chmod 711 "$t/nothing"; chmod 400 "$t/big"
        mv "$t" "$1/ckpt-7"
        echo saved
        sleep 1000"""
    options = [f"--store=file://{hf.tmp}/store", f"--checkpoint-dir={folder}", "--block-size=1MiB"]
    child = hf.run_start(*options, command=shell(script, folder))
    hf.waits_for("verdict")
    want = tree_digest(folder)
    assert not (folder / ".holdfast-held").exists()
    child.kill(15)
    assert child.wait() == 75
    shutil.rmtree(folder)
    hf.new_machine()
    again = hf.run("--resume", *options, command=shell("exit 0"))
    assert again.status == 0
    assert tree_digest(folder) == want


def test_what_is_in_the_way_is_moved_aside(hf):
    store = f"--store=file://{hf.tmp}/store"
    save = f"--save-dir={hf.work}/save"
    command = looped(60)
    assert hf.preempt(command, store, save).status == 75
    path = hf.ckpt()[-1]["resume_path"]
    assert path.startswith(str(hf.work / "save"))
    with open(path + "/rank0.json") as f:
        good = f.read()
    with open(path + "/rank0.json", "w") as f:
        f.write("a person's own work")
    with open(path + "/extra", "w") as f:
        f.write("more of it")
    child = hf.run(store, save, command=command)
    assert child.status == 0
    assert f"digest {loop_digest(60)}" in child.out
    with open(path + "/rank0.json") as f:
        assert f.read() == good
    assert "moved aside" in child.err
    found = {}
    for root, _, files in os.walk(hf.work / "save"):
        for name in files:
            with open(os.path.join(root, name)) as f:
                found[f.read()] = os.path.join(root, name)
    assert "a person's own work" in found and "more of it" in found
    assert found["a person's own work"] != path + "/rank0.json"


def test_equal_files_stay(hf):
    command = looped(60, "--pad", 2000000)
    assert hf.preempt(command).status == 75
    path = hf.ckpt()[-1]["resume_path"]
    before = os.stat(path + "/pad0.bin")
    assert hf.run(command=command).status == 0
    event = restored(hf)
    assert event["bytes_kept"] > 2000000 and event["bytes"] == 0
    after = os.stat(path + "/pad0.bin")
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


# --- damage -------------------------------------------------------------------------------------


def blocks_of(hf, row, store):
    prefix = "%06d-%06d-" % (row["attempt"], row["number"])
    return sorted(p for p in (store / "r" / "data").glob(prefix + "*/*/*") if p.is_file())


def two_checkpoints(hf):
    """A preempted run with at least two checkpoints; its command."""
    command = looped(60, "--own-every", 4, "--pad", 300000)
    options = [f"--store=file://{hf.tmp}/store", "--block-size=64KiB"]
    notice = hf.tmp / "notice"
    child = hf.run_start(*options, f"--notice-file={notice}", command=command)
    until(lambda: len(hf.events("verdict")) >= 2, "two checkpoints")
    notice.touch()
    assert child.wait() == 75
    notice.unlink()
    rows = [row for row in hf.ckpt() if not row["retired"]]
    assert len(rows) >= 2
    return command, options, rows


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [flip, os.unlink, lambda p: os.truncate(p, 10)],
                         ids=["flipped", "deleted", "cut"])
def test_a_damaged_newest_is_stepped_back_from(hf, harm):
    command, options, rows = two_checkpoints(hf)
    store = hf.tmp / "store"
    victim = blocks_of(hf, rows[-1], store)
    harm(victim[len(victim) // 2])
    name = f"{rows[-1]['attempt']}-{rows[-1]['number']}"
    verify = hf.call("ckpt", "verify", "r", status=1)
    bad = [line for line in verify.out.splitlines() if "DAMAGED" in line]
    assert len(bad) == 1 and bad[0].startswith(name + ":")
    as_json = hf.call("ckpt", "verify", "r", "--json", status=1)
    whole = {row["number"]: row["whole"] for row in json.loads(as_json.out)["checkpoints"]}
    assert [n for n, ok in whole.items() if not ok] == [rows[-1]["number"]]
    hf.new_machine()
    child = hf.run(*options, command=command)
    assert child.status == 0
    assert f"checkpoint {name} is damaged" in child.err
    assert restored(hf)["number"] == rows[-2]["number"]
    assert restored(hf)["step"] == rows[-2]["step"]
    assert f"digest {loop_digest(60)}" in child.out


def test_all_damaged_is_not_taken_for_nothing(hf):
    """Nothing is started: a job must not begin again at step 0 by itself. --fresh does it."""
    command, options, rows = two_checkpoints(hf)
    for row in rows:
        for block in blocks_of(hf, row, hf.tmp / "store"):
            flip(block)
    hf.new_machine()
    child = hf.run(*options, command=command)
    assert child.status == 125
    assert "every one is damaged" in child.err and "--fresh" in child.err
    assert "start" not in child.out
    child = hf.run(*options, "--fresh", command=command)
    assert child.status == 0
    assert "start 0\n" in child.out
    assert f"digest {loop_digest(60)}" in child.out


def test_verify_of_a_whole_one(hf):
    assert hf.preempt(looped(1000, "--pad", 100000)).status == 75
    row = hf.ckpt()[-1]
    name = f"{row['attempt']}-{row['number']}"
    assert hf.call("ckpt", "verify", "r", name).out.startswith(f"{name}: whole, ")
    missing = hf.call("ckpt", "verify", "r", "9-9", status=1)
    assert "9-9" in missing.err


# --- saves that overlap --------------------------------------------------------------------------


def test_the_last_save_is_shipped_however_many_came_before(hf):
    """It saves faster than blocks can be shipped; what the notice asked for is not passed over."""
    command = looped(100000, "--own-every", 1, "--step-ms", 1, "--pad", 4000000)
    assert hf.preempt(command, "--block-size=64KiB", "--lanes=1", after=15).status == 75
    saved = [e["step"] for e in hf.events("saved")]
    shipped = [e["step"] for e in hf.events("verdict")]
    skipped = [e["step"] for e in hf.events("save-skipped")]
    assert sorted(shipped + skipped) == sorted(saved)
    assert shipped[-1] == saved[-1] == hf.ckpt()[-1]["step"]
    assert hf.events("verdict")[-1]["reason"] == "notice"
