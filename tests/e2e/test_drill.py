# SPDX-License-Identifier: Apache-2.0
"""`holdfast drill`: it passes programs that survive, tells the others why they do not, and leaves a
person's files as they were; as root and as somebody else."""
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest

import support
from support import loop_digest, processes_with, shell, tree_digest, until

NOBODY = 65534


def python_for(who):
    """An interpreter that another user may run."""
    for path in (sys.executable, getattr(sys, "_base_executable", ""), "/usr/bin/python3"):
        # A shell between: what setpriv itself executes is looked up with its old rights.
        test = [*who, "sh", "-c", 'exec "$0" -c ""', path]
        if path and subprocess.run(test, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return path
    pytest.skip("no Python here that another user may run")


@pytest.fixture(params=["root", "nobody"])
def drill(hf, request):
    """Starts drills as that user, in a folder with some of that user's own files."""
    hf.who = []
    python = support.PYTHON
    trainers, program = support.TRAINERS, support.BIN
    if request.param == "root":
        request.getfixturevalue("root")
    elif os.geteuid() == 0:
        # What it needs, where it can read it.
        tools = hf.tmp / "tools"
        shutil.copytree(support.TOP / "hooks/python/holdfast", tools / "holdfast")
        shutil.copytree(trainers, tools / "trainers")
        shutil.copy(program, tools / "bin")
        trainers, program = tools / "trainers", tools / "bin"
        hf.env["PYTHONPATH"] = str(tools)
        hf.env["PATH"] = "/usr/local/bin:/usr/bin:/bin"
        hf.who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        python = python_for(hf.who)
    own = hf.work / "own"
    own.mkdir()
    (hf.work / "notes.txt").write_text("mine\n")
    (own / "deep").mkdir()
    (own / "deep" / "data").write_bytes(bytes(range(256)) * 100)
    (own / "link").symlink_to("deep/data")
    (own / "empty").mkdir(mode=0o750)
    if hf.who:
        for root, dirs, files in os.walk(hf.tmp):
            for name in dirs + files + ["."]:
                os.lchown(os.path.join(root, name), NOBODY, NOBODY)
    before = tree_digest(hf.work)

    def run(*options, command, wait=True, **popen):
        options = [str(o) for o in options]
        for name, other, value in (("--notice", "--no-notice", "6s"), ("--poll", None, "50ms"),
                                   ("--after", "--at-step", "200ms")):
            if not any(o.split("=")[0] in (name, other) for o in options):
                options.append(f"{name}={value}")
        env = {**hf.env, "PYTHONDONTWRITEBYTECODE": "1"}
        child = hf.start("drill", *options, "--", *command, env=env, before=hf.who,
                         program=program, **popen)
        if wait:
            child.status = child.wait(120)
            assert tree_digest(hf.work) == before, "the person's folder is as it was"
            assert hf.left() == []
            assert not os.path.exists(hf.state / "drills") or not os.listdir(hf.state / "drills")
        return child

    def looped(steps, *more, name="loop.py"):
        return [python, str(trainers / name), "--steps", str(steps), *map(str, more)]

    run.looped, run.before, run.program, run.trainers = looped, before, program, trainers
    run.python = python
    return run


def table(child):
    """The table's rows: name -> one cell a preemption."""
    rows = {}
    for line in child.out.splitlines():
        match = re.match(r"(notice seen after|request answered|bytes durable|"
                         r"seconds to spare|second save|"
                         r"step saved|step resumed at|steps lost|time to first step) +(.*)", line)
        if match:
            rows[match[1]] = re.split(r"  +", match[2].strip())
    return rows


def passed(child):
    assert child.status == 0, child.out + child.err
    assert child.out.splitlines()[-1] == "drill: PASS"
    return table(child)


def failed(child, pattern):
    assert child.status == 1, child.out + child.err
    last = child.out.splitlines()[-1]
    assert re.match(rf"drill: FAIL: .*{pattern}", last), last
    return table(child)


def test_a_program_that_survives(drill):
    rows = passed(drill(command=drill.looped(100000)))
    assert re.fullmatch(r"\d+ ms", rows["notice seen after"][0])
    assert int(rows["notice seen after"][0].split()[0]) < 3000
    assert re.fullmatch(r"\d+ ms", rows["request answered"][0])
    assert int(rows["bytes durable"][0]) > 50
    assert 0 < float(rows["seconds to spare"][0]) <= 6
    saved, resumed = int(rows["step saved"][0]), int(rows["step resumed at"][0])
    assert resumed == saved + 1
    assert rows["steps lost"] == ["0"]
    assert re.fullmatch(r"\d+ ms", rows["time to first step"][0])


def test_the_step_of_the_notice(drill):
    rows = passed(drill("--at-step=25", command=drill.looped(100000)))
    assert 25 <= int(rows["step saved"][0]) < 60


def test_without_a_notice_what_was_saved_in_between_helps(drill):
    rows = passed(drill("--no-notice", "--every=200ms", "--after=3s",
                        command=drill.looped(100000)))
    assert rows["notice seen after"] == ["no notice"] and rows["seconds to spare"] == ["no notice"]
    saved, resumed = int(rows["step saved"][0]), int(rows["step resumed at"][0])
    assert resumed == saved + 1 and int(rows["steps lost"][0]) < 100


def test_twice_and_to_the_end_with_nothing_lost(drill, hf):
    child = drill("--times=2", "--at-step=20", "--until=finished",
                  command=drill.looped(90, "--pad", 200000))
    rows = passed(child)
    assert f"digest {loop_digest(90)}\n" in child.out
    assert rows["steps lost"] == ["0", "0"]
    assert int(rows["step saved"][1]) >= 40
    assert int(rows["step resumed at"][1]) == int(rows["step saved"][1]) + 1


def test_checkpoints_in_a_folder_of_the_persons(drill, hf):
    """Without a hook; made in the working folder, hidden between attempts, gone at the end."""
    child = drill("--checkpoint-dir=out", "--after=1s", "--until=finished",
                  command=[drill.python, str(drill.trainers / "files.py"), "out", "--steps", "150"])
    rows = passed(child)
    assert f"digest {loop_digest(150)}\n" in child.out
    starts = [int(n) for n in re.findall(r"^start (\d+)$", child.out, re.M)]
    assert starts[0] == 0 and len(starts) == 2 and starts[1] > 0
    assert int(rows["step saved"][0]) == starts[1] - 1


def test_files_that_the_command_changes_are_put_back(drill, hf):
    """It appends to one, removes one, replaces one, and makes others; each attempt sees the
    person's own at first."""
    script = ("import os, sys\n"
              "assert open('notes.txt').read() == 'mine\\n', 'a fresh machine'\n"
              "assert not os.path.exists('made')\n"
              "open('notes.txt', 'a').write('more')\n"
              "os.remove('own/link')\n"
              "os.rename('own/deep/data', 'own/deep/moved')\n"
              "os.mkdir('made'); open('made/x', 'w').write('x')\n"
              "sys.argv = ['loop.py', '--steps', '100000']\n"
              f"sys.path.insert(0, {str(drill.trainers)!r})\n"
              "import loop\n"
              "loop.main()\n")
    passed(drill(command=[drill.python, "-c", script]))


def test_what_the_command_is_told(drill):
    script = "env; exec \"$@\""
    child = drill(command=shell(script, *drill.looped(100000)))
    passed(child)
    env = child.out
    assert env.count("HOLDFAST_DRILL=1\n") == 2
    assert "169.254" not in env and "http://127.0.0.1" not in env
    assert "METADATA" not in env.upper().replace("HOLDFAST_", "")


# --- programs that do not survive ---------------------------------------------------------------


def test_chaos_at_the_metadata_service(drill):
    """401s, 5xx, hangs and lost connections all the while: the notice is seen in time, training
    is not touched."""
    child = drill("--chaos", "--notice=20s", command=drill.looped(100000))
    rows = passed(child)
    assert "the metadata service fails at random" in child.err
    assert int(rows["notice seen after"][0].split()[0]) < 15000
    child = drill("--chaos", "--no-notice", command=drill.looped(100000))
    assert child.status == 125 and "leave one out" in child.err


def test_one_that_saves_nothing_is_told_at_once(drill):
    """Not after the notice: there is nothing to wait for."""
    child = drill("--handshake-timeout=500ms", "--after=600s", command=shell("exec sleep 1000"))
    failed(child, "it saves nothing")


def test_one_that_saves_but_does_not_resume(drill):
    rows = failed(drill(command=drill.looped(100000, "--no-load")), "it saves but does not resume")
    assert rows["step resumed at"][0] in ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_one_that_saves_too_slowly(drill):
    child = drill("--notice=2s", command=drill.looped(100000, "--save-ms", 60000))
    rows = failed(child, "too slowly")
    assert "a fresh one starts" not in child.err  # the answer does not wait for another machine
    assert rows["seconds to spare"] == ["unknown"] and rows["bytes durable"] == ["unknown"]


def test_one_whose_steps_are_too_long(drill):
    child = drill("--notice=2s", command=drill.looped(100000, "--stick-at", 3, "--step-ms", 100))
    failed(child, "(too slowly|did not save|the save was not made)")


def test_one_that_exits_0_on_the_notice_without_saving(drill):
    script = ("import os, signal, sys\n"
              "signal.signal(signal.SIGTERM, lambda *_: os._exit(0))\n"
              "import holdfast, time\n"
              "run = holdfast.init()\n"
              "run.resume()\n"
              "for step in range(100000):\n"
              "    time.sleep(0.02)\n"
              "    if run.step(step): os._exit(0)\n")
    failed(drill(command=[drill.python, "-c", script]), "exited 0 on the notice without saving")


def test_one_without_hook_that_exits_0_on_the_notice(drill):
    child = drill("--checkpoint-dir=out", "--after=500ms", command=shell(
        "mkdir -p out; trap 'exit 0' TERM; while :; do sleep 0.05; done"))
    failed(child, "exited 0 on the notice without saving")


def test_one_that_ends_before_the_notice(drill):
    failed(drill("--after=600s", command=drill.looped(5)), "ended by itself before the notice")


def test_one_that_cannot_be_executed(drill):
    failed(drill(command=["no-such-command-here"]), "exit status 127")


def test_one_that_crashes_when_it_resumes(drill):
    script = ("import os, sys\n"
              "if 'HOLDFAST_RESUME' in os.environ: sys.exit(9)\n"
              "sys.argv = ['loop.py', '--steps', '100000']\n"
              f"sys.path.insert(0, {str(drill.trainers)!r})\n"
              "import loop\n"
              "loop.main()\n")
    failed(drill(command=[drill.python, "-c", script]),
           "(failed: exit status 9|never reached a step)")


# --- interruptions ------------------------------------------------------------------------------


def test_a_person_who_wants_out(drill, hf):
    child = drill("--after=600s", wait=False, command=shell(
        "echo made >made; echo more >>notes.txt; exec \"$@\"", *drill.looped(100000)))
    child.waits_for_output("start 0")
    child.kill(signal.SIGINT)
    assert child.wait(30) == 1
    assert child.out.splitlines()[-1].startswith("drill: FAIL: stopped by a person")
    assert tree_digest(hf.work) == drill.before
    assert hf.left() == []


@pytest.mark.parametrize("by_hand", [True, False], ids=["recover", "next drill"])
def test_a_drill_that_was_killed_is_undone(drill, hf, by_hand):
    child = drill("--after=600s", wait=False, command=shell(
        "echo made >made; echo more >>notes.txt; rm own/link; exec \"$@\"",
        *drill.looped(100000)))
    child.waits_for_output("start 0")
    child.kill(signal.SIGKILL)
    child.wait()
    for pid in processes_with(hf.state):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not processes_with(hf.state), "no process of the drill")
    if by_hand:
        again = hf.start("drill", "--recover", before=hf.who, program=drill.program)
        assert again.wait() == 0
        told = again.err
    else:
        again = drill(command=drill.looped(100000), wait=False)
        assert again.wait(60) == 0
        told = again.err
    assert "undone" in told
    kept = re.findall(r"left files of yours in '(.+)'", told)
    for folder in kept:
        assert os.path.isdir(folder)
        if folder.startswith(str(hf.work)):
            shutil.rmtree(folder)
    assert tree_digest(hf.work) == drill.before
    once_more = hf.start("drill", "--recover", before=hf.who, program=drill.program)
    assert once_more.wait() == 0
