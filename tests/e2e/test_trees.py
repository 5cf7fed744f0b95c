# SPDX-License-Identifier: Apache-2.0
"""Process trees as people make them: shells, wrappers, launchers, pipelines. The request reaches
the ranks, the save happens, and the whole tree ends in its time."""
import importlib.util
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import PYTHON, TRAINERS, alive, loop_digest, process, shell, trainer, until

END_S = 2  # beyond the grace


def words(command):
    return " ".join(f"'{w}'" for w in command)


def plain(hf, *options):
    folder = hf.work / "out"
    folder.mkdir(exist_ok=True)
    return trainer("plain.py", "--dir", folder, *options)


def end_record(hf, attempt=1, run="r"):
    path = hf.state / "store" / run / "attempts" / f"{attempt:06d}.end.json"
    return json.loads(path.read_text())


def walks(mode):
    """How Holdfast is started so that it has, or has not, a cgroup for the command."""
    if mode == "cgroup":
        return []
    return ["unshare", "-m", "sh", "-c",
            "awk '$3 == \"cgroup2\" {print $2}' /proc/mounts | xargs -r umount -l; "
            "exec \"$@\"", "sh"]


def signals(hf, why):
    return [e for e in hf.events("signal") if e["why"] == why]


# --- wrappers ------------------------------------------------------------------------------------


def wrapped(hf, how, command):
    script = hf.work / "run.sh"
    wrapper = hf.work / "conda.py"
    if how == "sh -c":
        return shell(words(command) + "; true")
    if how == "bash run.sh":
        script.write_text(f"cd .\n{words(command)}\necho after\n")
        return ["bash", str(script)]
    if how == "two shells deep":
        script.write_text(words(command) + "; true\n")
        return shell("sh \"$1\"; true", script)
    if how == "like conda run":
        script.write_text(words(command) + "\n")
        wrapper.write_text("import subprocess, sys\n"
                           f"sys.exit(subprocess.call(['bash', {str(script)!r}]))\n")
        return [PYTHON, str(wrapper)]
    if how == "| tee":
        return shell(words(command) + " | tee copy")
    assert how == "pid 1"
    return ["unshare", "-pf", "--mount-proc", *command]


WRAPPERS = ["sh -c", "bash run.sh", "two shells deep", "like conda run", "| tee", "pid 1"]


@pytest.fixture
def may_unshare():
    if subprocess.run(["unshare", "-pf", "--mount-proc", "true"], check=False,
                      stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("needs the right to make namespaces")


@pytest.mark.parametrize("how", WRAPPERS)
def test_a1_a2_the_hook_is_reached_through_any_wrapper(hf, how, may_unshare):
    """A1, A2: shells, two shells deep, PID 1 of a namespace, a wrapper, a pipeline."""
    command = wrapped(hf, how, trainer("loop.py", "--steps", 100000))
    child = hf.preempt(command, "--grace=10s")
    assert child.status == 75, child.err
    saved = hf.waits_for("saved")
    assert hf.waits_for("verdict", kind="local")["step"] == saved["step"]
    assert not hf.events("signal"), "ranks with a hook leave by themselves"
    assert not hf.left()


@pytest.mark.parametrize("how", WRAPPERS)
def test_a1_a2_the_save_signal_reaches_the_trainer_through_any_wrapper(hf, how, may_unshare):
    command = wrapped(hf, how, plain(hf, "--save-on", "USR1", "--leave-on", "TERM",
                                     "--left", hf.work / "left"))
    notice = hf.work / "notice"
    child = hf.run_start("--save-signal=USR1", f"--checkpoint-dir={hf.work}/out", "--grace=10s",
                         f"--notice-file={notice}", command=command)
    child.waits_for_output("start 0")
    begun = time.monotonic()
    notice.touch()
    assert child.wait() == 75, child.err
    assert time.monotonic() - begun < 8
    assert len(hf.ckpt()) == 1
    assert [len(e["pids"]) for e in signals(hf, "save")] == [1]
    assert [len(e["pids"]) for e in signals(hf, "stop")] == [1]
    assert (hf.work / "left").exists(), "it had its stop signal and the time to leave"
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"
    assert not hf.left()


@pytest.mark.parametrize("sig", ["USR2", "INT", "TERM"])
def test_a3_any_signal_may_be_the_one_to_save_and_to_stop(hf, sig):
    """A3: nothing hangs on one signal's name."""
    stop = "TERM" if sig != "TERM" else "INT"
    child = hf.run_start(f"--save-signal={sig}", f"--stop-signal={stop}", "--grace=10s",
                         f"--checkpoint-dir={hf.work}/out",
                         command=plain(hf, "--save-on", sig, "--leave-on", stop))
    child.waits_for_output("start 0")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75, child.err
    assert len(hf.ckpt()) == 1
    assert "leaves" in child.out
    assert signals(hf, "save")[0]["signal"] == sig
    assert signals(hf, "stop")[0]["signal"] == stop


def test_a_save_signal_that_is_not_caught_is_not_sent(hf):
    """Its default action would kill the trainer."""
    child = hf.run_start("--save-signal=USR1", f"--checkpoint-dir={hf.work}/out", "--grace=2s",
                         command=plain(hf, "--save-every", 5))
    child.waits_for_output("start 0")
    hf.waits_for("found")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert "no rank catches SIGUSR1 (--save-signal): it was not sent" in child.err
    assert signals(hf, "save")[0]["pids"] == []


def test_the_save_command_runs_with_the_runs_environment(hf):
    out = hf.work / "out"
    script = ('test "$HOLDFAST_RUN" = r && kill -0 "$HOLDFAST_COMMAND_PID" && '
              'test "$HOLDFAST_DEADLINE" -ge "$(date +%s)" && '
              f'echo 41 >{out}/.t && mv {out}/.t {out}/step_41')
    save = hf.work / "save.sh"
    save.write_text(script)
    child = hf.run_start(f"--save-command=sh {save}", f"--checkpoint-dir={out}", "--grace=10s",
                         command=plain(hf))
    child.waits_for_output("start 0")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert [row["step"] for row in hf.ckpt()] == [41]
    assert "the save command exited with 0" in child.err
    again = hf.run("--resume", f"--checkpoint-dir={out}", command=plain(hf, "--steps", 50))
    assert again.status == 0 and "start 42" in again.out


@pytest.mark.parametrize("command, why", [
    ("sh -c 'exit 3'", "the save command exited with 3"),
    ("sh -c 'kill -9 $$'", "the save command was killed by signal 9"),
    ("sh -c 'sleep 1000 & wait'", "the save command did not end in its time: killed"),
    ("/no/such/program", "the save command '/no/such/program' was not started"),
])
def test_a_save_command_that_fails_is_told(hf, command, why):
    child = hf.run_start(f"--save-command={command}", f"--checkpoint-dir={hf.work}/out",
                         "--grace=2s", command=plain(hf))
    child.waits_for_output("start 0")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 2 + END_S
    assert why in child.err
    assert not hf.left()


# --- launchers -----------------------------------------------------------------------------------


def torchrun(*command, restarts=0):
    if importlib.util.find_spec("torch") is None:
        pytest.skip("avoidable: torch is not installed")
    return [PYTHON, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            f"--max-restarts={restarts}",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", *map(str, command)]


def test_a8_torchruns_data_loader_workers_live_until_the_save_is_made(hf):
    """A8: two ranks over gloo, each with a worker process that would take its rank with it."""
    hf.env["OMP_NUM_THREADS"] = "1"
    child = hf.preempt(torchrun(TRAINERS / "loader.py"), "--grace=20s", after=3)
    assert child.status == 75, child.err
    assert hf.events("request-ended")[0]["how"] == "saved"
    assert hf.events("saved")[0]["ranks"] == 2
    assert "killed by signal" not in child.out + child.err
    assert not hf.left()


def test_torchruns_own_restart_goes_on_from_the_newest_checkpoint(hf):
    """Within one attempt: not from what the attempt began with."""
    command = torchrun(TRAINERS / "loop.py", "--steps", 40, "--own-every", 10, "--crash-at", 25,
                       "--crash-once", hf.work / "crashed", restarts=1)
    child = hf.run(command=command, deadline=120)
    assert child.status == 0, child.err
    assert len(hf.events("claimed")) == 1
    starts = [line for line in child.out.splitlines() if line.startswith("start ")]
    assert sorted(starts) == ["start 0", "start 0", "start 20", "start 20"]
    for rank in range(2):
        assert f"digest {loop_digest(40, rank)}" in child.out


LAUNCHER = """import os, subprocess, sys
ranks = [subprocess.Popen(sys.argv[2:], env={**os.environ, "RANK": str(i),
         "OUT": f"{sys.argv[1]}.{i}"}) for i in range(8)]
print("up", flush=True)
sys.exit(max(abs(r.wait()) for r in ranks))
"""


def test_a13_every_rank_gets_the_grace_at_the_same_time(hf):
    """A13: eight ranks that each need 3 s to leave; their launcher and their workers are left
    alone. Order: stop, gone, recorded."""
    launcher = hf.work / "launcher.py"
    launcher.write_text(LAUNCHER)
    one = 'exec "$@" --left "$OUT"'
    rank = ["sh", "-c", one, "sh", *plain(hf, "--leave-on", "TERM", "--leave-s", 3, "--workers", 1)]
    child = hf.run_start("--grace=12s",
                         command=[PYTHON, str(launcher), str(hf.work / "left"), *rank])
    until(lambda: child.out.count("start 0") == 8, "eight ranks")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 3 + 4, "not one after the other"
    assert sorted(p.name for p in hf.work.glob("left.*")) == [f"left.{i}" for i in range(8)]
    sent = signals(hf, "stop")[0]
    assert sent["found_by"] == "rank" and len(sent["pids"]) == 8
    assert "was killed" not in child.out, "no worker was signalled"
    order = [e["event"] for e in hf.events()]
    assert order.index("signal") < order.index("tree-gone") < order.index("attempt-ended")
    assert not hf.events("attempt-ended")[0]["forced"]


def test_a9_a_program_that_takes_usr1_for_itself_is_saved_all_the_same(hf):
    """A9: the notice comes by the hook's files, whatever becomes of signals; SIGUSR1 is Holdfast's
    own notice signal here."""
    code = ("import os, runpy, signal, sys; "
            "signal.signal(signal.SIGUSR1, lambda *_: os._exit(3)); "
            "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
    command = [PYTHON, "-c", code, *trainer("loop.py", "--steps", 100000)[1:]]
    child = hf.run_start("--grace=10s", command=command)
    hf.waits_for("first-step")
    child.kill(signal.SIGUSR1)
    assert child.wait() == 75
    assert hf.events("request-ended")[0]["how"] == "saved"
    assert hf.events("command-exited")[0]["exit_code"] == 75


# --- no answer -----------------------------------------------------------------------------------


def test_a10_a_hook_that_does_not_answer(hf):
    """A10: said, and the last good checkpoint is what stands."""
    child = hf.run_start("--grace=2s",
                         command=trainer("loop.py", "--own-every", 10, "--stick-at", 25))
    hf.waits_for("verdict", step=19)
    until(lambda: hf.step() == 24, "the step before the one that never ends")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 2 + END_S
    assert "not acknowledged: the training program did not save for the notice" in child.err
    assert [row["step"] for row in hf.ckpt()][-1] == 19
    assert "the local checkpoint of step 19 stands" in child.err
    assert hf.events("attempt-ended")[0]["forced"]


def test_a10_a_save_signal_that_is_not_answered(hf):
    child = hf.run_start("--grace=2s", "--save-signal=USR1", f"--checkpoint-dir={hf.work}/out",
                         command=plain(hf, "--save-every", 5, "--stick-at", 7, "--deaf-to", "USR1"))
    found = hf.waits_for("verdict", kind="local")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert "not acknowledged: no complete checkpoint followed" in child.err
    assert [row["step"] for row in hf.ckpt()] == [found["step"]] == [4]


def test_the_stop_signal_comes_once(hf):
    """First with the time that is left, then the time is over: the handler runs once."""
    child = hf.run_start("--grace=5s",
                         command=plain(hf, "--leave-on", "TERM", "--leave-s", 3.6,
                                       "--count", hf.work / "count", "--left", hf.work / "left"))
    child.waits_for_output("start 0")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert (hf.work / "count").read_text() == "asked\n"
    assert (hf.work / "left").exists()


# --- ending --------------------------------------------------------------------------------------


def pids_of(book):
    return [int(line) for line in book.read_text().split()]


@pytest.mark.parametrize("mode", ["cgroup", "walk"])
def test_a4_nothing_of_a_tree_is_left(hf, root, mode):
    """A4: a session of its own, a double fork, no environment, stopped; with a cgroup to kill and
    without one."""
    book = hf.work / "book"
    kinds = ["stopped", "setsid", "double-fork", "no-environment"]
    command = shell("\"$@\"; true", *trainer("tree.py", book, *kinds))
    child = hf.run_start("--grace=1s", command=command, before=walks(mode))
    child.waits_for_output("up")
    facts = json.loads((hf.dir() / "1" / "keeper.json").read_text())
    if mode == "walk":
        assert facts["cgroup"] == ""
    pids = pids_of(book)
    assert len(pids) == len(kinds) and all(alive(pid) for pid in pids)
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 1 + END_S
    assert [pid for pid in pids if alive(pid)] == []
    assert hf.events("attempt-ended")[0]["forced"] and end_record(hf)["forced"]
    assert facts["cgroup"] == "" or not os.path.exists(facts["cgroup"])


def cgroup_of(hf):
    folder = json.loads((hf.dir() / "1" / "keeper.json").read_text())["cgroup"]
    if not folder:
        pytest.skip("this machine lets nobody make a cgroup2")
    return folder


def test_a4_a_tree_that_forks_faster_than_it_can_be_listed(hf):
    """Killed at one stroke, by its cgroup."""
    book = hf.work / "book"
    child = hf.run_start("--grace=1s", command=trainer("tree.py", book, "chain"))
    child.waits_for_output("up")
    folder = cgroup_of(hf)
    until(lambda: os.path.exists(f"{book}.chain"), "the first of the chain")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 1 + END_S
    assert not os.path.exists(folder)


def test_a4_what_a_killed_keeper_left_is_ended_by_its_cgroup(hf):
    """Without environment and without a parent, nothing else leads to it when keeper and
    supervisor are both gone."""
    book = hf.work / "book"
    command = trainer("tree.py", book, "no-environment", "double-fork")
    child = hf.run_start(command=command)
    child.waits_for_output("up")
    folder = cgroup_of(hf)
    pids = pids_of(book)
    child.kill()
    child.wait()
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    again = hf.run_start("--grace=1s", command=command)
    again.waits_for_output("up")
    assert [pid for pid in pids if alive(pid)] == []
    assert not os.path.exists(folder)
    again.kill(signal.SIGTERM)
    assert again.wait() == 75


@pytest.mark.parametrize("options", [
    ["--deaf-to", "TERM"],
    ["--leave-on", "TERM", "--leave-s", 1000],
], ids=["deaf", "slow"])
def test_a5_what_does_not_leave_is_killed_and_reported(hf, options):
    """A5"""
    child = hf.run_start("--grace=2s", command=plain(hf, *options))
    child.waits_for_output("start 0")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 2 + END_S
    ended = hf.events("attempt-ended")[0]
    assert ended["outcome"] == "preempted" and ended["forced"] and ended["signal"] == signal.SIGKILL
    assert "killed by holdfast (SIGKILL)" in child.err.splitlines()[-1]
    assert not hf.left()


@pytest.fixture
def freezer(hf, root):
    """Simulates a process that hangs in the kernel: a frozen cgroup of version 1 puts it into
    state D, and no SIGKILL ends it."""
    top = Path("/sys/fs/cgroup/freezer")
    if not (top / "cgroup.procs").exists():
        pytest.skip("no version 1 freezer is mounted here")
    folder = top / f"hf-{os.getpid()}"
    folder.mkdir()
    yield folder
    (folder / "freezer.state").write_text("THAWED")
    until(lambda: not (folder / "cgroup.procs").read_text(), "its processes gone")
    folder.rmdir()


def test_a6_a_process_in_the_kernel_is_named_and_left(hf, freezer):
    """A6"""
    child = hf.run_start("--grace=2s", command=shell("sleep 1000 & echo pid $!; wait"))
    child.waits_for_output("pid")
    pid = int(child.out.split()[1])
    until(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"), "its exec")
    (freezer / "cgroup.procs").write_text(str(pid))
    (freezer / "freezer.state").write_text("FROZEN")
    until(lambda: process(pid)[0] == "D", "state D")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    took = time.monotonic() - begun
    assert process(pid)[0] == "D", "it is still there"
    assert f"sleep 1000 (state D, cannot be ended) (pid {pid})" in child.err
    assert took < 2 + END_S


def test_a7_workers_do_not_outlive_a_killed_trainer(hf):
    """A7: also those that are deaf to SIGTERM; gone before the next attempt starts."""
    child = hf.run_start("--max-crashes=0",
                         command=plain(hf, "--workers", 2, "--deaf-workers", "--save-every", 5))
    child.waits_for_output("start 0")
    pid = hf.command_pid()
    until(lambda: len(children_of(pid)) == 2, "two workers")
    workers = children_of(pid)
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    until(lambda: not any(alive(w) for w in workers), "no worker", 5)
    assert child.wait() == 137
    assert time.monotonic() - begun < 5


def children_of(pid):
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


# --- outcomes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("script, notice, outcome, code, sig, status, words_of_it", [
    ("kill -9 $$", False, "failed", -1, 9, 137, "killed by signal 9 (SIGKILL)"),
    ("kill -15 $$", False, "failed", -1, 15, 143, "killed by signal 15 (SIGTERM)"),
    ("exit 1", False, "failed", 1, 0, 1, "exited with 1"),
    ("exit 0", False, "finished", 0, 0, 0, "exited with 0"),
    ("trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", True, "preempted", 0, 0, 75,
     "exited with 0"),
    ("echo up; exec sleep 1000", True, "preempted", -1, 9, 75, "killed by holdfast (SIGKILL)"),
])
def test_a16_q5_outcomes(hf, script, notice, outcome, code, sig, status, words_of_it):
    """A16: each recorded as what it was. Q5: exit 0 on a notice, without a word that training is
    done, is no success."""
    child = hf.run_start("--max-crashes=0", "--grace=2s", command=shell(script))
    if notice:
        child.waits_for_output("up")
        child.kill(signal.SIGTERM)
    assert child.wait() == status
    ended = hf.events("attempt-ended")[0]
    record = end_record(hf)
    assert (ended["outcome"], ended["exit_code"], ended["signal"]) == (outcome, code, sig)
    assert record["outcome"] == outcome
    assert (record["exit_code"], record["signal"]) == (None if code < 0 else code, sig or None)
    assert ended["forced"] == record.get("forced", False) == ("holdfast" in words_of_it)
    assert words_of_it in child.err.splitlines()[-1]


def test_a16_vanished_without_a_status(hf):
    child = hf.run_start("--max-crashes=0", command=shell("echo up; exec sleep 1000"))
    child.waits_for_output("up")
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    assert child.wait() == 125
    assert hf.events("attempt-ended")[0]["outcome"] == end_record(hf)["outcome"] == "vanished"
    assert "vanished (ended without a status)" in child.err.splitlines()[-1]


def test_an_exit_0_before_the_notice_is_a_finish(hf):
    """The notice comes while what it left behind lingers."""
    child = hf.run_start("--linger=600s", "--grace=3s",
                         command=shell("sleep 1000 & echo over; exit 0"))
    hf.waits_for("command-exited")
    child.kill(signal.SIGTERM)
    assert child.wait() == 0
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"


# --- ranks outside of the tree -------------------------------------------------------------------


def start_outside(hf, child, *options):
    """A trainer of this run that the command did not start, as `docker run` or an srun step."""
    command = trainer("loop.py", "--steps", 100000, *options)
    env = dict(line.split("=", 1) for line in child.out.splitlines()
               if line.startswith("HOLDFAST_"))
    del env["HOLDFAST_TOKEN"]
    other = subprocess.Popen(command, env={**hf.env, **env}, stdout=subprocess.DEVNULL, cwd=hf.tmp)
    hf.waits_for("first-step")
    assert hf.waits_for("outside")["pid"] == other.pid
    return other


def test_a_rank_outside_of_the_tree_is_asked_and_leaves(hf):
    child = hf.run_start("--grace=10s",
                         command=shell("env; until test -e go; do sleep 0.02; done"))
    child.waits_for_output("HOLDFAST_SOCKET")
    other = start_outside(hf, child)
    child.kill(signal.SIGTERM)
    assert other.wait(5) == 75, "by the hook"
    (hf.work / "go").touch()
    assert child.wait() == 75
    assert hf.events("request-ended")[0]["how"] == "saved"
    assert "left" not in end_record(hf)
    assert not [e for e in hf.events("signal") if other.pid in e["pids"]]


def test_a_rank_outside_that_does_not_leave_is_named(hf):
    """Never signalled; and the end says what it does not know to be over."""
    child = hf.run_start("--grace=2s", command=shell("env; exec sleep 1000"))
    child.waits_for_output("HOLDFAST_SOCKET")
    other = start_outside(hf, child)
    other.send_signal(signal.SIGSTOP)
    child.kill(signal.SIGTERM)
    begun = time.monotonic()
    assert child.wait() == 75
    assert time.monotonic() - begun < 2 + END_S
    assert f"cannot be stopped from here: pid {other.pid} '" in child.err
    assert f"pid {other.pid} '" in end_record(hf)["left"]
    assert process(other.pid)[0] == "T", "it lives, as it was"
    other.kill()
    other.wait()


# --- two of one name -----------------------------------------------------------------------------


def test_a_second_supervisor_is_told_of_the_first(hf):
    first = hf.run_start(command=shell("echo up; exec sleep 1000"))
    first.waits_for_output("up")
    second = hf.run(command=shell("echo up; exec sleep 1000"))
    assert second.status == 125
    said = next(line for line in second.err.splitlines() if "supervised by another" in line)
    assert f"pid {first.pid}" in said and "since 20" in said and "attempt 1" in said
    assert second.out == ""


def test_a_notice_at_the_moment_of_adoption(hf):
    """A supervisor was killed; the next one takes its command over while a notice stands."""
    notice = hf.work / "notice"
    options = ["--grace=10s", f"--notice-file={notice}"]
    command = trainer("loop.py", "--steps", 100000)
    child = hf.run_start(*options, command=command)
    hf.waits_for("first-step")
    pid = hf.command_pid()
    child.kill()
    child.wait()
    notice.touch()
    again = hf.run_start(*options, command=command)
    assert again.wait() == 75
    assert len(hf.events("claimed")) == 1 and len(hf.events("adopted")) == 1
    assert not alive(pid)
    ended = hf.events("attempt-ended")
    assert [e["outcome"] for e in ended] == ["preempted"]
    assert hf.events("request-ended")[-1]["how"] == "saved"
    assert hf.ckpt()[-1]["step"] == hf.events("saved")[-1]["step"]


# --- hangs ---------------------------------------------------------------------------------------


def test_a_hang_is_told_and_restarted_from_the_last_good_checkpoint(hf):
    """It does not answer the request either."""
    child = hf.run("--hang-after=1s", "--grace=1s",
                   command=trainer("loop.py", "--steps", 40, "--own-every", 10, "--stick-at", 25))
    assert child.status == 0, child.err
    hang = hf.events("hang")
    assert len(hang) == 1 and hang[0]["step_ms"] >= 1000 and hang[0]["cpu_ms"] >= 1000
    assert "the command hangs: no step for" in child.err
    assert "not acknowledged: the command that hangs did not save" in child.err
    assert [e["outcome"] for e in hf.events("attempt-ended")] == ["hung", "finished"]
    assert end_record(hf)["outcome"] == "hung"
    assert "start 20\n" in child.out
    assert f"digest {loop_digest(40)}" in child.out


def test_a_hang_that_still_saves_loses_nothing(hf):
    """Its signal handler runs though its loop does not."""
    child = hf.run("--hang-after=1s", "--save-signal=USR1", f"--checkpoint-dir={hf.work}/out",
                   command=plain(hf, "--steps", 30, "--save-on", "USR1", "--save-every", 10,
                                 "--stick-at", 25))
    assert child.status == 0, child.err
    assert [e["outcome"] for e in hf.events("attempt-ended")] == ["hung", "finished"]
    assert "start 25 " in child.out, "from the save that was made for the hang"


def test_a_hang_may_be_told_alone(hf):
    child = hf.run_start("--hang-after=500ms", "--on-hang=tell", "--grace=1s",
                         command=plain(hf, "--stick-at", 5, "--leave-on", "TERM"))
    hf.waits_for("hang")
    until(lambda: hf.status()["state"] == "running", "a status")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert len(hf.events("hang")) == 1
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"


def test_hangs_count_as_crashes(hf):
    """The same step hangs each time, and nothing is saved between."""
    script = ("import os, runpy, sys; os.environ['HOLDFAST_ATTEMPT'] = '1'; "
              "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")
    command = [PYTHON, "-c", script, *trainer("loop.py", "--stick-at", 7)[1:]]
    child = hf.run("--hang-after=500ms", "--grace=500ms", "--max-crashes=1", command=command)
    assert child.status == 137
    assert [e["outcome"] for e in hf.events("attempt-ended")] == ["hung"] * 2
    assert "tried often enough" in child.err.splitlines()[-1]


@pytest.mark.parametrize("script", [
    "i=0; while [ $i -lt 60 ]; do echo line; sleep 0.05; i=$((i+1)); done",
    "end=$(($(date +%s) + 3)); while [ $(date +%s) -lt $end ]; do :; done",
], ids=["output", "cpu"])
def test_one_sign_of_life_is_enough(hf, script):
    child = hf.run("--hang-after=1s", command=["sh", "-c", script])
    assert child.status == 0
    assert not hf.events("hang")
