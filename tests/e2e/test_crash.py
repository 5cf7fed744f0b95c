# SPDX-License-Identifier: Apache-2.0
"""Crashes of the command, the supervisor, the keeper: what is tried again, what goes on, what is
found again."""
import json
import os
import signal
import time

import pytest

from support import alive, loop_digest, shell, trainer, until


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


def ended(hf):
    return [e["outcome"] for e in hf.events("attempt-ended")]


# --- the command --------------------------------------------------------------------------------


def test_a_crash_after_progress_is_tried_again_and_finishes(hf):
    child = hf.run(command=looped(40, "--own-every", 5, "--crash-at", 22,
                                  "--crash-once", hf.tmp / "once"))
    assert child.status == 0
    assert f"digest {loop_digest(40)}" in child.out
    assert ended(hf) == ["failed", "finished"]
    assert hf.events("restored", attempt=2)[0]["step"] == 19
    assert hf.events("relaunch")[0]["crashes"] == 0, "with progress it does not count"
    assert "attempt 1 failed" in child.err


def test_a_crash_beyond_the_start_is_tried_again_without_a_checkpoint(hf):
    child = hf.run(command=looped(30, "--crash-at", 10, "--crash-once", hf.tmp / "once"))
    assert child.status == 0
    assert f"digest {loop_digest(30)}" in child.out
    assert ended(hf) == ["failed", "finished"]


@pytest.mark.parametrize("script, status", [("exit 3", 3), ("kill -SEGV $$", 139)])
def test_a_crash_before_the_first_step_is_passed_on_at_once(hf, script, status):
    child = hf.run(command=shell(script))
    assert child.status == status
    assert ended(hf) == ["failed"]
    assert "not tried again" in child.err


def test_crashes_in_a_row_without_progress_have_an_end(hf):
    child = hf.run("--max-crashes=2", command=looped(30, "--crash-at", 4, "--step-ms", 5))
    assert child.status == 7
    assert ended(hf) == ["failed"] * 3
    assert hf.status()["exit_status"] == 7


def test_progress_makes_the_count_start_again(hf):
    """It crashes at every 7th step; each time it got further."""
    script = ("import os, sys\n"
              "n = len(os.listdir(sys.argv[1]))\n"
              "open(os.path.join(sys.argv[1], str(n)), 'w').close()\n"
              "crash = 7 * (n + 1) if n < 3 else -1\n"
              "sys.argv = ['loop.py', '--steps', '30', '--own-every', '3', '--step-ms', '10',\n"
              "            '--crash-at', str(crash)]\n"
              f"sys.path.insert(0, {os.path.dirname(trainer('loop.py')[1])!r})\n"
              "import loop\n"
              "loop.main()\n")
    starts = hf.tmp / "starts"
    starts.mkdir()
    child = hf.run("--max-crashes=1", command=[trainer("")[0], "-c", script, str(starts)])
    assert child.status == 0
    assert ended(hf) == ["failed"] * 3 + ["finished"]
    assert f"digest {loop_digest(30)}" in child.out


def test_preemptions_do_not_count(hf):
    command = looped(200, "--step-ms", 5)
    for _ in range(3):
        assert hf.preempt(command, "--max-crashes=0").status == 75
    child = hf.run("--max-crashes=0", command=command)
    assert child.status == 0
    assert f"digest {loop_digest(200)}" in child.out
    assert ended(hf) == ["preempted"] * 3 + ["finished"]


def test_75_of_its_own_is_start_me_again(hf):
    child = hf.run(command=shell("exit 75"))
    assert child.status == 75
    assert ended(hf) == ["preempted"]
    assert hf.run(command=shell("exit 75")).status == 75, "the run is not finished"


def test_no_relaunch_after_a_notice(hf):
    """The crash comes while a notice stands: the machine is going, nothing is started here."""
    child = hf.run_start(command=looped(1000, "--own-every", 4, "--save-ms", 300, "--crash-at", 11))
    until(lambda: hf.step() >= 8, "progress")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert len(hf.events("claimed")) == 1


def test_a_person_during_the_pause_before_the_next_attempt(hf):
    child = hf.run_start(command=looped(30, "--crash-at", 5))
    hf.waits_for("relaunch")
    child.kill(signal.SIGINT)
    assert child.wait(5) != 0
    assert len(hf.events("claimed")) == 1


# --- the supervisor -----------------------------------------------------------------------------


def orphan(hf, command, *options):
    """A run whose supervisor was killed after some steps; the pid of its command."""
    child = hf.run_start(*options, command=command)
    pid = hf.command_pid()
    until(lambda: hf.step() >= 5, "five steps")
    child.kill(signal.SIGKILL)
    child.wait()
    return child, pid


def test_the_command_and_its_output_live_on(hf):
    child, pid = orphan(hf, shell("$1 $2 --steps 60; echo the end; exit 5", *looped(60)[:2]))
    assert alive(pid)
    before = hf.step()
    until(lambda: hf.step() > before, "training goes on")
    keeper = hf.keeper_pid()
    until(lambda: not alive(keeper), "the end of the tree")
    log = hf.call("logs", "r").out
    assert f"digest {loop_digest(60)}\nthe end\n" in log
    status = json.loads((hf.dir() / "1" / "exit").read_text())["status"]
    assert os.waitstatus_to_exitcode(status) == 5


def test_the_next_start_adopts_and_passes_the_status_on(hf):
    command = shell("$1 $2 --steps 100; echo the end; exit 5", *looped(100)[:2])
    _, pid = orphan(hf, command)
    second = hf.run_start(command=command)
    hf.waits_for("adopted")
    assert alive(pid)
    assert second.wait() == 5
    assert "goes on" in second.err
    assert f"digest {loop_digest(100)}\nthe end\n" in second.out
    assert len(hf.events("claimed")) == 1
    assert ended(hf) == ["finished"], "training was done; what it did afterwards failed"


def test_after_an_adoption_a_notice_still_saves(hf):
    command = looped(100000, "--step-ms", 5)
    _, pid = orphan(hf, command)
    second = hf.run_start(command=command)
    hf.waits_for("adopted")
    until(lambda: len(hf.events("joined")) == 2, "the trainer is back")
    second.kill(signal.SIGTERM)
    assert second.wait() == 75
    assert not alive(pid)
    verdict = hf.events("verdict")[-1]
    assert verdict["reason"] == "notice" and verdict["kind"] == "local"
    assert hf.ckpt()[-1]["step"] == verdict["step"]
    done = hf.run("--resume", command=looped(verdict["step"] + 20))
    assert done.status == 0
    assert f"digest {loop_digest(verdict['step'] + 20)}" in done.out


def test_periodic_saves_go_on_after_an_adoption(hf):
    command = looped(150, "--step-ms", 20)
    orphan(hf, command, "--every=200ms")
    second = hf.run_start("--every=200ms", command=command)
    hf.waits_for("adopted")
    before = len(hf.ckpt())
    until(lambda: len(hf.ckpt()) > before + 1, "more checkpoints")
    assert second.wait() == 0
    numbers = [row["number"] for row in hf.ckpt()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert f"digest {loop_digest(150)}" in second.out


def test_an_adoption_by_another_command_is_refused(hf):
    """It would run something else than what was asked for."""
    _, pid = orphan(hf, looped(100000))
    second = hf.run(command=looped(99999))
    assert second.status == 125
    assert "--resume" in second.err or "has another command" in second.err
    assert alive(pid)


def test_a_command_that_ended_alone_is_passed_on(hf):
    """It ended while no supervisor lived: finished is finished."""
    command = looped(40)
    orphan(hf, command)
    until(lambda: not alive(hf.keeper_pid()), "the end of the tree")
    again = hf.run(command=command)
    assert again.status == 0
    assert "finished" in again.err
    assert len(hf.events("claimed")) == 1


def test_a_crash_while_alone_goes_on_from_the_newest_checkpoint(hf):
    command = looped(60, "--own-every", 5, "--crash-at", 38, "--crash-once", hf.tmp / "once")
    orphan(hf, command)
    until(lambda: not alive(hf.keeper_pid()), "the end of the tree")
    again = hf.run(command=command)
    assert again.status == 0
    assert f"digest {loop_digest(60)}" in again.out
    assert "start 0\n" not in again.out


def test_a_save_that_was_not_shipped_is_found_again(hf):
    """The trainer saved, said so, and the supervisor died before a block was written."""
    command = looped(60, "--own-every", 20, "--pad", 40000000)
    child = hf.run_start("--block-size=64KiB", "--lanes=1", command=command)
    hf.waits_for("saved", step=19)
    until(lambda: '"step":19' in (hf.dir() / "1/saves.jsonl").read_text(), "its journal line")
    child.kill(signal.SIGKILL)
    child.wait()
    shipped = bool(hf.events("verdict"))
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    again = hf.run(command=command)
    assert again.status == 0
    assert f"digest {loop_digest(60)}" in again.out
    if not shipped:
        assert hf.events("recovered")[0]["step"] >= 19
        assert "had not been shipped" in again.err
    assert hf.events("restored", attempt=2)[0]["step"] >= 19
    assert all(row["attempt"] == 1 for row in hf.ckpt() if row["step"] == 19)
    assert hf.call("ckpt", "verify", "r").out


def test_one_who_was_told_to_leave_is_not_adopted_for_ever(hf):
    """SIGKILL of the supervisor in the middle of leaving: the next start goes on with the run."""
    command = looped(60, "--save-ms", 1200)
    child = hf.run_start(command=command)
    until(lambda: hf.step() >= 5, "five steps")
    child.kill(signal.SIGTERM)
    hf.waits_for("request")
    child.kill(signal.SIGKILL)
    child.wait()
    begun = time.monotonic()
    again = hf.run(command=command)
    assert again.status == 0
    assert time.monotonic() - begun < 15, "nobody is held for what the dead one wanted"
    assert f"digest {loop_digest(60)}" in hf.call("logs", "r").out


# --- the keeper ---------------------------------------------------------------------------------


def test_the_keeper_killed_with_its_tree_ended_and_the_attempt_tried_again(hf):
    command = looped(80, "--own-every", 5)
    child = hf.run_start(command=command)
    pid = hf.command_pid()
    hf.waits_for("verdict", step=9)
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    hf.waits_for("keeper-lost")
    assert child.wait() == 0
    assert not alive(pid)
    assert ended(hf) == ["vanished", "finished"]
    assert f"digest {loop_digest(80)}" in child.out
    assert "keeper of attempt 1 was killed" in child.err
    assert hf.left() == []


def test_the_keeper_killed_before_any_progress_is_reported(hf):
    child = hf.run_start(command=shell("sleep 1000 & setsid sleep 1000 & echo up; exec sleep 1000"))
    child.waits_for_output("up")
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    assert child.wait(15) == 125
    assert ended(hf) == ["vanished"]
    assert hf.left() == []


def test_supervisor_and_keeper_killed_the_next_start_ends_what_is_left(hf):
    command = looped(80, "--own-every", 5)
    child = hf.run_start(command=command)
    pid = hf.command_pid()
    hf.waits_for("verdict", step=9)
    child.kill(signal.SIGKILL)
    os.kill(hf.keeper_pid(), signal.SIGKILL)
    child.wait()
    again = hf.run(command=command)
    assert again.status == 0
    assert not alive(pid)
    assert f"digest {loop_digest(80)}" in again.out


def test_the_trainer_killed_is_a_crash(hf):
    child = hf.run_start(command=looped(80, "--own-every", 5))
    pid = hf.command_pid()
    hf.waits_for("verdict", step=9)
    os.kill(pid, signal.SIGKILL)
    assert child.wait() == 0
    assert hf.events("command-exited")[0]["signal"] == signal.SIGKILL
    assert ended(hf) == ["failed", "finished"]
    assert f"digest {loop_digest(80)}" in child.out


def test_a_notice_that_still_stands_is_seen_by_the_next_supervisor(hf):
    """The request that the dead one raised becomes the next one's."""
    file = hf.tmp / "notice"
    child = hf.run_start(f"--notice-file={file}", command=looped(100000, "--save-ms", 1200))
    until(lambda: hf.step() >= 5, "five steps")
    file.touch()
    hf.waits_for("request")
    child.kill(signal.SIGKILL)
    child.wait()
    again = hf.run(f"--notice-file={file}", command=looped(100000, "--save-ms", 1200))
    assert again.status == 75
    assert "no save could be asked for" not in again.err
    assert hf.events("verdict")[-1]["step"] == hf.ckpt()[-1]["step"] >= 5
    assert hf.events("attempt-ended")[-1]["outcome"] == "preempted"
    assert hf.left() == []


def test_what_a_killed_trainer_leaves_is_gone_before_the_next_attempt(hf):
    """As data-loader workers do that hold a GPU's memory."""
    script = """
        if [ -e "$1/worker" ]; then
            kill -0 $(cat "$1/worker") 2>/dev/null && echo "the worker lives"
            exec "$2" "$3" --steps 20
        fi
        sleep 1000 & echo $! >"$1/worker"
        setsid sleep 1000 &
        exec "$2" "$3" --steps 100000"""
    child = hf.run_start("--linger=300ms", command=shell(script, hf.tmp, *trainer("loop.py")))
    until(lambda: hf.step() >= 3, "three steps")
    os.kill(hf.command_pid(), signal.SIGKILL)
    assert child.wait() == 0
    assert "the worker lives" not in child.out
    assert ended(hf) == ["failed", "finished"]
    assert len(hf.events("straggler", attempt=1)) >= 2
    assert hf.left() == []
