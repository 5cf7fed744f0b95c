# SPDX-License-Identifier: Apache-2.0
"""Which run a command belongs to: names, the same command again, another command, finished runs,
two supervisors, and being started once for each rank."""
import json
import signal

import pytest

from support import alive, loop_digest, shell, trainer

LOOP = trainer("loop.py", "--steps", 30)


def leave_one(hf, run="r", command=None, *options):
    """A run that was preempted after some steps."""
    notice = hf.tmp / f"notice-{run}"
    child = hf.run_start(f"--notice-file={notice}", *options, run=run, command=command or LOOP)
    hf.waits_for("first-step", run=run)
    notice.touch()
    assert child.wait() == 75
    return child


@pytest.mark.parametrize("name", ["", ".x", "-x", "_x", "a/b", "a b", "a" * 65, "ä", "a\n"])
def test_bad_names_are_refused(hf, name):
    child = hf.start("run", f"--run={name}", "--provider=none", "--", "true")
    assert child.wait() == 125
    assert "--run" in child.err or "run" in child.err
    assert not (hf.state / "store").exists()


@pytest.mark.parametrize("name", ["a", "0", "A.b_c-d", "a" * 64])
def test_good_names_are_taken(hf, name):
    assert hf.run(run=name, command=["true"]).status == 0
    assert hf.status(name)["run"] == name


def test_long_names_fit_into_a_usual_home(hf):
    """Sockets lie in the run's folder, and a socket's path has 107 bytes at most."""
    home = hf.tmp / "home" / "some.body"
    home.mkdir(parents=True)
    hf.state = home / ".local" / "state" / "holdfast"
    env = {k: v for k, v in hf.env.items() if k not in ("HOLDFAST_STATE_DIR", "XDG_STATE_HOME")}
    hf.env = {**env, "HOME": str(home)}
    names = ["n" * 63 + end for end in "ab"]
    for name in names:
        store = f"--store=file://{hf.tmp}/store" if name[-1] == "b" else "--every=1h"
        child = hf.run(store, run=name, command=trainer("loop.py", "--steps", 3))
        assert child.status == 0, child.err
        assert hf.events("done", run=name) or name[-1] == "b"
    assert sorted(run["run"] for run in hf.json("status")["runs"]) == names


def test_a_state_folder_of_any_depth(hf):
    """A socket's address holds 107 bytes; the folder's path may be longer."""
    deep = hf.tmp / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    hf.state = deep / "state"
    hf.env["HOLDFAST_STATE_DIR"] = str(hf.state)
    command = trainer("loop.py", "--steps", 60)
    assert hf.preempt(command).status == 75
    assert hf.events("joined", 1) and hf.ckpt()
    child = hf.run_start(command=command)
    hf.waits_for("first-step", 2)
    child.kill()
    child.wait()
    again = hf.run(command=command)
    assert again.status == 0, again.err
    assert len(hf.events("adopted")) == 1
    assert f"digest {loop_digest(60)}" in again.out


def test_the_name_is_derived_from_the_folder_and_printed(hf):
    first = hf.call("run", "--provider=none", "--", "sh", "-c", "exit 0")
    names = [run["run"] for run in hf.json("status")["runs"]]
    assert len(names) == 1
    assert f"run '{names[0]}'" in first.err
    assert names[0].startswith("work-")
    other = hf.tmp / "other" / "work"
    other.mkdir(parents=True)
    hf.call("run", "--provider=none", "--", "sh", "-c", "exit 0", cwd=other)
    assert len(hf.json("status")["runs"]) == 2, "another folder of the same name is another run"


def test_the_name_by_environment(hf):
    hf.call("run", "--provider=none", "--", "true", env={**hf.env, "HOLDFAST_RUN_NAME": "named"})
    assert hf.status("named")["outcome"] == "finished"


def test_a_store_needs_a_name(hf):
    child = hf.call("run", f"--store=file://{hf.tmp}/s", "--provider=none", "--", "true",
                    status=125)
    assert "--run" in child.err
    assert not (hf.tmp / "s").exists()


def test_the_same_command_goes_on(hf):
    leave_one(hf)
    child = hf.run(command=LOOP)
    assert child.status == 0
    assert f"digest {loop_digest(30)}" in child.out
    assert "start 0" not in child.out
    assert "attempt 2" in child.err and "from the checkpoint of step" in child.err


def test_another_command_is_refused_with_both_shown(hf):
    leave_one(hf)
    before = hf.status()
    child = hf.run(command=[*LOOP, "--step-ms", "1"])
    assert child.status == 125
    assert child.out == ""
    assert " ".join(LOOP) + "\n" in child.err
    assert " ".join(LOOP) + " --step-ms 1\n" in child.err
    for remedy in ("--resume", "--run", "--fresh"):
        assert remedy in child.err
    assert len(hf.events("claimed")) == 1
    after = hf.status()
    assert after["outcome"] == before["outcome"] == "preempted"
    assert after["save"]["step"] == before["save"]["step"]


def test_resume_goes_on_with_the_new_command(hf):
    leave_one(hf)
    new = [*LOOP, "--step-ms", "1"]
    child = hf.run("--resume", command=new)
    assert child.status == 0
    assert f"digest {loop_digest(30)}" in child.out
    assert "start 0" not in child.out


def test_after_resume_the_new_command_is_the_one_to_compare_with(hf):
    leave_one(hf)
    new = [*LOOP, "--step-ms", "15"]
    leave_one(hf, "r", new, "--resume")
    assert hf.run(command=LOOP).status == 125
    assert hf.run(command=new).status == 0


def test_fresh_starts_over_and_deletes_nothing(hf):
    leave_one(hf)
    before = hf.ckpt()
    child = hf.run("--fresh", command=LOOP)
    assert child.status == 0
    assert "start 0\n" in child.out
    assert f"digest {loop_digest(30)}" in child.out
    after = hf.ckpt()
    for row in [*before, *after]:
        del row["at_age_s"]
    assert after[:len(before)] == before
    base = json.loads((hf.state / "store/r/attempts/000002.base.json").read_text())
    assert "step" not in base or base["step"] in (None, -1)
    assert hf.call("ckpt", "verify", "r").out.count("whole") == len(hf.ckpt())


def test_fresh_may_have_another_command(hf):
    leave_one(hf)
    assert hf.run("--fresh", command=["true"]).status == 0


def test_a_crash_after_fresh_goes_on_from_its_own_saves(hf):
    """Not from the beginning again, and not from what was before --fresh."""
    command = trainer("loop.py", "--steps", 30, "--own-every", 4, "--crash-at", 14,
                      "--crash-once", hf.tmp / "crashed")
    leave_one(hf, "r", trainer("loop.py", "--steps", 30))
    child = hf.run("--fresh", command=command)
    assert child.status == 0
    assert f"digest {loop_digest(30)}" in child.out
    restored = [e for e in hf.events("restored") if e["any"]]
    assert [(e["from_attempt"], e["step"]) for e in restored] == [(2, 11)]


def test_a_finished_run_says_so_and_exits_0(hf):
    assert hf.run(command=LOOP).status == 0
    again = hf.run(command=LOOP)
    assert again.status == 0
    assert again.out == ""
    assert "finished" in again.err and "--fresh" in again.err
    assert hf.status()["outcome"] == "finished"
    assert hf.status()["ranks"]["step"] == 29
    fresh = hf.run("--fresh", command=LOOP)
    assert fresh.status == 0
    assert f"digest {loop_digest(30)}" in fresh.out


def test_a_failed_run_is_tried_again_from_its_checkpoint(hf):
    command = trainer("loop.py", "--steps", 30, "--own-every", 5, "--crash-at", 17)
    first = hf.run("--max-crashes=0", command=command)
    assert first.status == 7
    again = hf.run("--max-crashes=0", command=command)
    assert again.status == 7
    assert "start 15\n" in again.out


def test_registered_runs_need_no_store(hf):
    store = f"--store=file://{hf.tmp}/elsewhere"
    notice = hf.tmp / "notice"
    child = hf.run_start(f"--notice-file={notice}", store, command=LOOP)
    hf.waits_for("first-step")
    notice.touch()
    assert child.wait() == 75
    assert (hf.tmp / "elsewhere" / "r" / "run.json").exists()
    assert hf.status()["store"] == f"file://{hf.tmp}/elsewhere"
    assert len(hf.ckpt()) == 1
    assert "whole" in hf.call("ckpt", "verify", "r").out
    assert hf.call("logs", "r").out == child.out
    assert hf.run(store, command=LOOP).status == 0
    assert hf.call("logs", "r", "--attempt=1").out == child.out


def test_a_store_can_be_read_where_the_run_is_not_registered(hf):
    leave_one(hf, "r", LOOP, f"--store=file://{hf.tmp}/s")
    other = ["--state-dir", str(hf.tmp / "other"), f"--store=file://{hf.tmp}/s"]
    assert "whole" in hf.call("ckpt", "verify", "r", *other).out
    assert '"checkpoint"' in hf.call("ckpt", "ls", "r", "--json", *other).out


def test_unknown_runs_are_named(hf):
    assert hf.run(run="known", command=["true"]).status == 0
    for args in (["status", "other"], ["logs", "other"], ["ckpt", "ls", "other"]):
        child = hf.start(*args)
        assert child.wait() != 0
        assert "other" in child.err and "known" in child.err


def test_two_supervisors_of_one_run(hf):
    first = hf.run_start(command=shell("echo on; exec sleep 1000"))
    first.waits_for_output("on")
    pid = hf.command_pid()
    before = hf.supervisor_pid()
    second = hf.run(command=shell("echo on; exec sleep 1000"))
    assert second.status == 125
    assert "supervised by another" in second.err
    assert hf.supervisor_pid() == before
    assert alive(pid) and first.proc.poll() is None
    other = hf.run(run="another", command=["true"])
    assert other.status == 0
    first.kill(signal.SIGTERM)
    assert first.wait() == 75


def test_one_store_two_state_folders(hf):
    """As two machines would: while the first one's attempt lives the second starts nothing."""
    store = f"--store=file://{hf.tmp}/s"
    first = hf.run_start(store, "--heartbeat=50ms", command=shell("echo on; exec sleep 1000"))
    first.waits_for_output("on")
    second = hf.run(store, f"--state-dir={hf.tmp}/state2", "--dead-after=1s",
                    command=shell("echo on; exec sleep 1000"))
    assert second.status == 125
    assert "taken" in second.err
    assert second.out == ""
    first.kill(signal.SIGTERM)
    assert first.wait() == 75


@pytest.mark.parametrize("env", [
    {"SLURM_NTASKS": "8", "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"},
    {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "0"},
    {"PMI_SIZE": "2", "PMI_RANK": "1"},
    {"WORLD_SIZE": "2", "RANK": "0"},
], ids=lambda env: next(iter(env)))
def test_started_once_a_rank(hf, env):
    child = hf.start("run", "--run=r", "--provider=none", "--", "true", env={**hf.env, **env})
    assert child.wait() == 125
    assert "holdfast run -- " in child.err, "the right way round"
    assert not hf.state.exists()


@pytest.mark.parametrize("env", [
    {"SLURM_NTASKS": "8"},
    {"SLURM_NTASKS": "1", "SLURM_STEP_ID": "0"},
    {"WORLD_SIZE": "8"},
    {"WORLD_SIZE": "1", "RANK": "0"},
], ids=str)
def test_a_batch_script_or_a_single_rank_is_no_rank_of_several(hf, env):
    child = hf.start("run", "--run=r", "--provider=none", "--", "true", env={**hf.env, **env})
    assert child.wait() == 0


def test_a_command_that_never_got_anywhere_can_be_corrected(hf):
    """Misspelt, or failed before its first step with nothing saved: there is nothing to go on
    with, so the corrected command is no other run's."""
    assert hf.run(command=["pyhton", "train.py"]).status == 127
    assert hf.run(command=shell("exit 3")).status == 3
    assert hf.run(command=shell("echo right")).out == "right\n"


def test_a_failed_command_that_had_saved_cannot_be_mistaken(hf):
    crash = trainer("loop.py", "--steps", 50, "--own-every", 3, "--crash-at", 10)
    child = hf.run("--max-crashes=0", command=crash)
    assert child.status == 7
    other = hf.run(command=shell("echo other"))
    assert other.status == 125 and "has another command" in other.err and other.out == ""
