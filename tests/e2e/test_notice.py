# SPDX-License-Identifier: Apache-2.0
"""Notices: from signals, a file and a metadata service in every mood; what follows; and what does
not follow when they are withdrawn."""
import datetime
import random
import signal
import subprocess
import threading
import time

import pytest

from imds import Hole, Imds
from support import TOP, TRAINERS, PYTHON, alive, loop_digest, shell, trainer, until

STEPS = 100000
FOREVER = trainer("loop.py", "--steps", STEPS, "--step-ms", 5)


@pytest.fixture
def imds():
    service = Imds()
    yield service
    service.close()


def left_by_notice(hf, child, source, deadline=60):
    """It saved for the notice, left, and what it tells adds up."""
    assert child.wait(deadline) == 75
    notice = hf.events("notice")[0]
    verdict = hf.events("verdict")[-1]
    assert notice["source"] == source
    assert verdict["kind"] == "local" and verdict["reason"] == "notice"
    assert 0 < verdict["spare_ms"] < notice["left_ms"]
    assert verdict["step"] == verdict["tried_step"] == hf.events("saved")[-1]["step"]
    ended = hf.events("attempt-ended")[-1]
    assert ended["outcome"] == "preempted" and ended["exit_code"] == 75 and ended["recorded"]
    status = hf.status()
    assert status["outcome"] == "preempted" and status["exit_status"] == 75
    assert status["save"]["verdict"] == "local" and status["save"]["step"] == verdict["step"]
    assert "to spare" in child.err and "the same command goes on" in child.err
    assert hf.left() == []
    return notice, verdict


def started(hf, *options, command=FOREVER, **more):
    child = hf.run_start(*options, command=command, **more)
    hf.waits_for("first-step")
    return child


@pytest.mark.parametrize("sig, options", [
    (signal.SIGTERM, []), (signal.SIGHUP, []), (signal.SIGUSR1, []),
    (signal.SIGUSR2, ["--notice-signal=USR2"]), (signal.SIGRTMIN + 3, ["--notice-signal=RTMIN+3"]),
], ids=str)
def test_a_signal_is_a_notice(hf, sig, options):
    child = started(hf, "--grace=20s", *options)
    child.kill(sig)
    notice, _ = left_by_notice(hf, child, "signal")
    assert 19000 < notice["left_ms"] <= 20000


def test_hang_up_under_nohup_is_nothing(hf):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    child = started(hf, command=trainer("loop.py", "--steps", 60), preexec_fn=ignore,
                    restore_signals=False)
    child.kill(signal.SIGHUP)
    assert child.wait() == 0
    assert not hf.events("notice")


def test_the_old_notice_signal_is_the_commands_when_another_was_named(hf):
    child = hf.run_start("--notice-signal=USR2", command=shell(
        "trap 'echo usr1; exit 6' USR1; echo ready; while :; do sleep 0.05; done"))
    child.waits_for_output("ready")
    child.kill(signal.SIGUSR1)
    assert child.wait() == 6
    assert not hf.events("notice")


@pytest.mark.parametrize("text, low, high", [
    ("", 24000, 25000), ("20s\n", 19000, 20000), ("1m30s", 89000, 90000),
    ("nonsense", 24000, 25000),
])
def test_a_file_is_a_notice_and_may_say_how_long(hf, text, low, high):
    file = hf.tmp / "notice"
    child = started(hf, f"--notice-file={file}")
    scratch = hf.tmp / "notice.tmp"
    scratch.write_text(text)
    scratch.rename(file)
    notice, _ = left_by_notice(hf, child, "file")
    assert low < notice["left_ms"] <= high


def test_a_file_with_a_time_of_day(hf):
    file = hf.tmp / "notice"
    child = started(hf, f"--notice-file={file}")
    scratch = hf.tmp / "notice.tmp"
    scratch.write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ\n", time.gmtime(time.time() + 60)))
    scratch.rename(file)
    notice, _ = left_by_notice(hf, child, "file")
    assert 57000 < notice["left_ms"] <= 60000


def test_a_file_that_is_removed_withdraws_its_notice(hf):
    """While the save goes on: the trainer saves, is told to go on, and finishes."""
    file = hf.tmp / "notice"
    child = started(hf, f"--notice-file={file}",
                    command=trainer("loop.py", "--steps", 60, "--save-ms", 1500))
    file.touch()
    hf.waits_for("request")
    file.unlink()
    hf.waits_for("notice-withdrawn")
    assert child.wait() == 0
    assert f"digest {loop_digest(60)}" in child.out
    assert len(hf.events("claimed")) == 1
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert hf.status()["notice"] is None


def test_after_a_withdrawn_notice_the_next_one_counts(hf):
    file = hf.tmp / "notice"
    child = started(hf, f"--notice-file={file}",
                    command=trainer("loop.py", "--steps", STEPS, "--save-ms", 1000))
    file.touch()
    hf.waits_for("request")
    file.unlink()
    hf.waits_for("notice-withdrawn")
    hf.waits_for("request-ended")
    until(lambda: hf.status()["state"] == "running", "running")
    file.touch()
    assert child.wait() == 75
    assert hf.events("verdict")[-1]["reason"] == "notice"
    assert hf.ckpt()[-1]["step"] == hf.events("saved")[-1]["step"]


def test_another_notice_only_brings_the_deadline_nearer(hf):
    file = hf.tmp / "notice"
    child = started(hf, f"--notice-file={file}", "--grace=30s",
                    command=trainer("loop.py", "--steps", STEPS, "--stick-at", 40))
    until(lambda: hf.status()["ranks"]["step"] == 39, "the step that never ends")
    scratch = hf.tmp / "tmp"
    scratch.write_text("6s")
    scratch.rename(file)
    hf.waits_for("notice", source="file")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    second = hf.waits_for("notice", source="signal")
    assert second["left_ms"] <= 6000
    assert child.wait() == 75
    assert time.monotonic() - begun < 8


def test_a_notice_before_the_start_starts_nothing(hf):
    file = hf.tmp / "notice"
    file.touch()
    child = hf.run(f"--notice-file={file}", command=FOREVER)
    assert child.status == 75
    assert child.out == ""


def test_a_notice_before_the_handshake(hf):
    file = hf.tmp / "notice"
    child = hf.run_start(f"--notice-file={file}", command=trainer(
        "loop.py", "--steps", STEPS, "--late-s", 100))
    hf.waits_for("command-started")
    file.touch()
    assert child.wait() == 75
    assert "no checkpoint" in child.err
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"
    assert hf.left() == []
    file.unlink()
    assert hf.run(command=FOREVER[:2] + ["--steps", "5"], run="other").status == 0


def test_a_command_that_exits_0_on_the_notice_was_preempted(hf):
    """A01: the shell between Holdfast and the trainer; its SIGTERM handler exits 0."""
    child = hf.run_start(command=shell(
        "trap 'echo term; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
    child.waits_for_output("ready")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert child.out == "ready\nterm\n"
    ended = hf.events("attempt-ended")[0]
    assert ended["outcome"] == "preempted" and ended["exit_code"] == 0


@pytest.mark.parametrize("script", ["$PY $LOOP --steps 100000; true",
                                    "sh -c '$PY $LOOP --steps 100000'; exit $?"])
def test_trainers_below_shells_save(hf, script):
    script = script.replace("$PY", PYTHON).replace("$LOOP", str(TRAINERS / "loop.py"))
    child = started(hf, command=shell(script))
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert len(hf.ckpt()) == 1
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"


def test_a_command_that_ignores_everything_is_ended_at_the_deadline(hf):
    child = hf.run_start("--grace=4s", command=shell(
        "trap '' TERM HUP INT; setsid sh -c 'trap \"\" TERM; while :; do sleep 0.1; done' & "
        "echo ready; while :; do sleep 0.1; done"))
    child.waits_for_output("ready")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 6
    assert hf.left() == []
    assert hf.events("attempt-ended")[0]["signal"] == signal.SIGKILL


def test_a_step_that_never_ends_is_said_and_the_last_checkpoint_stands(hf):
    child = started(hf, "--grace=4s", command=trainer(
        "loop.py", "--steps", STEPS, "--own-every", 5, "--stick-at", 13, "--step-ms", 5))
    hf.waits_for("verdict", step=9)
    until(lambda: hf.status()["ranks"]["step"] == 12, "the step that never ends")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 6
    assert "did not save for the notice" in child.err
    assert "checkpoint of step 9 stands" in child.err
    assert hf.events("request-ended")[-1]["how"] in ("canceled", "expired")
    assert hf.ckpt()[-1]["step"] == 9


def test_a_training_that_is_done_before_the_deadline_is_finished(hf):
    child = started(hf, command=trainer("loop.py", "--steps", 40, "--step-ms", 20, "--late-s", 0))
    until(lambda: hf.events("done"), "done")
    child.kill(signal.SIGTERM)
    assert child.wait() in (0, 75)
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert hf.run(command=child.args[child.args.index("--") + 1:]).status == 0


# --- no hook -----------------------------------------------------------------------------------


def test_unprotected_is_said_once_and_shown(hf):
    child = hf.run_start("--handshake-timeout=200ms", command=shell("exec sleep 1000"))
    child.waits_for_error("unprotected")
    hf.waits_for("unprotected")
    status = until(lambda: (s := hf.status())["unprotected"] and s, "the status")
    assert status["protected_by"] is None
    assert "unprotected" in hf.call("status", "r").out
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert child.err.count("unprotected") == 1


def test_a_handshake_later_on_ends_it(hf):
    child = hf.run_start("--handshake-timeout=200ms", command=trainer(
        "loop.py", "--steps", STEPS, "--late-s", 1))
    child.waits_for_error("unprotected")
    hf.waits_for("joined")
    until(lambda: not hf.status()["unprotected"], "protected")
    assert hf.status()["protected_by"] == "hook"
    child.kill(signal.SIGTERM)
    assert child.wait() == 75


def test_protected_is_not_warned_of(hf):
    folder = hf.work / "ckpts"
    folder.mkdir()
    child = hf.run_start("--handshake-timeout=100ms", f"--checkpoint-dir={folder}",
                         command=shell("sleep 1.5"), run="watched")
    assert child.wait() == 0
    assert "unprotected" not in child.err
    hooked = hf.run("--handshake-timeout=5s", command=trainer("loop.py", "--steps", 10))
    assert "unprotected" not in hooked.err


# --- the metadata service -----------------------------------------------------------------------


def on_aws(imds, *more):
    return ["--provider=aws", f"--metadata-endpoint={imds.url}", "--poll=50ms", *more]


def test_aws(hf, imds):
    child = started(hf, *on_aws(imds))
    until(lambda: 404 in imds.statuses(), "a calm answer")
    until(lambda: hf.status()["watch"]["health"] == "seeing", "seeing")
    begun = time.monotonic()
    imds.give_notice(120)
    hf.waits_for("notice")
    assert time.monotonic() - begun < 3
    notice, _ = left_by_notice(hf, child, "aws")
    assert notice["action"] == "terminate"
    assert 117000 < notice["left_ms"] <= 120000
    assert 401 not in imds.statuses()
    assert [s for m, _, s in imds.requests if m == "PUT"] == [200], "one token is enough"


def test_aws_by_its_own_variable(hf, imds):
    env = {**hf.env, "AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url + "/"}
    child = started(hf, "--provider=aws", "--poll=50ms", env=env)
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")


def test_proxies_are_not_asked(hf, imds):
    env = {**hf.env, **{name: "http://127.0.0.1:9" for name in (
        "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")}}
    child = started(hf, *on_aws(imds), env=env)
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")


def test_b1_tokens_that_expire_all_the_time(hf, imds):
    imds.token_uses = 1
    child = started(hf, *on_aws(imds))
    until(lambda: imds.statuses().count(401) >= 3 and imds.statuses().count(404) >= 3,
          "tokens that were refused and renewed")
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")
    assert not [line for line in child.warnings if "blind" in line]


def test_b2_errors_of_the_service_are_survived(hf, imds):
    imds.script = [503] * 5
    child = started(hf, *on_aws(imds))
    until(lambda: 404 in imds.statuses(), "a calm answer after 503s")
    imds.script = [500, 502, 503, 504, 429]
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")
    assert hf.status()["watch"]["server_errors"] >= 9


def test_a_withdrawn_notice_of_aws(hf, imds):
    child = started(hf, *on_aws(imds),
                    command=trainer("loop.py", "--steps", 60, "--save-ms", 1500))
    imds.give_notice(60)
    hf.waits_for("request")
    imds.notice = None
    hf.waits_for("notice-withdrawn")
    assert child.wait() == 0
    assert f"digest {loop_digest(60)}" in child.out


def test_a_notice_that_comes_nearer(hf, imds):
    child = started(hf, *on_aws(imds), command=trainer(
        "loop.py", "--steps", STEPS, "--stick-at", 30, "--step-ms", 5))
    until(lambda: hf.status()["ranks"]["step"] == 29, "the step that never ends")
    imds.give_notice(100)
    hf.waits_for("notice")
    imds.give_notice(5)
    assert child.wait(15) == 75


def test_a_service_that_is_not_there_and_then_is(hf):
    gone = Imds()
    port = gone.server.server_address[1]
    gone.close()
    child = started(hf, *on_aws(gone))
    watch = until(lambda: (w := hf.status()["watch"])["health"] == "blind" and w, "blind")
    assert watch["why"] and watch["last_ok"] is None and watch["refused"] >= 3
    assert "blind" in hf.call("status", "r").out
    hf.waits_for("watch", health="blind")
    assert len([line for line in child.warnings if "blind" in line]) == 1
    imds = Imds(port=port)
    hf.waits_for("watch", health="seeing")
    until(lambda: hf.status()["watch"]["health"] == "seeing", "seeing")
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")
    imds.close()


def test_b8_a_black_hole_delays_nothing(hf):
    hole = Hole()
    begun = time.monotonic()
    child = hf.run_start("--provider=aws", f"--metadata-endpoint={hole.url}", "--poll=50ms",
                         command=FOREVER)
    hf.waits_for("command-started")
    assert time.monotonic() - begun < 2
    watch = until(lambda: (w := hf.status()["watch"])["health"] == "blind" and w, "blind")
    assert watch["timeouts"] >= 1
    assert len([line for line in child.warnings if "blind" in line]) == 1
    before = hf.status()["ranks"]["step"]
    until(lambda: hf.status()["ranks"]["step"] > before, "training goes on")
    child.kill(signal.SIGTERM)
    left_by_notice(hf, child, "signal")
    hole.close()


def test_b7_a_hop_limit_is_named(hf, imds):
    imds.mute_tokens = True
    child = started(hf, *on_aws(imds))
    child.waits_for_error("hop limit", 45)
    assert len([line for line in child.warnings if "hop limit" in line]) == 1
    assert "HttpPutResponseHopLimit" in child.err
    assert alive(hf.command_pid())


def test_b1_tokens_that_are_refused_at_random(hf, imds):
    """Whatever token the service has just forgotten, the notice is seen within one poll."""
    over = threading.Event()

    def forget():
        while not over.wait(random.uniform(0.005, 0.08)):
            with imds.lock:
                imds.tokens.clear()
    forgetting = threading.Thread(target=forget)
    forgetting.start()
    try:
        child = started(hf, "--provider=aws", f"--metadata-endpoint={imds.url}", "--poll=200ms")
        until(lambda: imds.statuses().count(401) >= 5 and 404 in imds.statuses(), "refused tokens")
        imds.give_notice(60)
        begun = time.monotonic()
        hf.waits_for("notice")
        assert time.monotonic() - begun < 0.2 + 0.8, "one poll, and what a busy machine adds"
    finally:
        over.set()
        forgetting.join()
    left_by_notice(hf, child, "aws")
    assert not [line for line in child.warnings if "blind" in line]


def test_b6_four_answers_give_four_numbers(hf, imds):
    """404 is calm, 200 a notice, 5xx a fault of the service, and silence a time-out."""
    def watch():
        return hf.status()["watch"]
    child = started(hf, *on_aws(imds, "--use-window", "--grace=60s"))
    calm = until(lambda: (w := watch())["ok"] >= 3 and w, "calm answers")
    assert (calm["noticed"], calm["server_errors"], calm["timeouts"]) == (0, 0, 0)
    imds.script = [500] * 3
    broken = until(lambda: (w := watch())["server_errors"] >= 3 and w, "errors")
    assert (broken["noticed"], broken["timeouts"]) == (0, 0)
    imds.mute = True
    silent = until(lambda: (w := watch())["timeouts"] >= 1 and w, "a time-out")
    assert (silent["noticed"], silent["server_errors"]) == (0, broken["server_errors"])
    imds.mute = False
    imds.give_notice(30)
    noticed = until(lambda: (w := watch())["noticed"] >= 1 and w, "a notice")
    assert noticed["server_errors"] == broken["server_errors"]
    child.kill(signal.SIGINT)
    child.kill(signal.SIGINT)
    child.wait()


def test_m4_a_service_that_fails_for_long_leaves_training_alone(hf, imds):
    """Shortened: seconds instead of ten minutes of 500. One warning, every step made, and the
    first good answer counts again."""
    child = started(hf, *on_aws(imds))
    until(lambda: 404 in imds.statuses(), "a calm answer")
    imds.script = [500] * 1000000
    until(lambda: hf.status()["watch"]["health"] == "blind", "blind")
    before, begun = hf.step(), time.monotonic()
    until(lambda: hf.status()["watch"]["server_errors"] >= 6, "many errors")
    rate = (hf.step() - before) / (time.monotonic() - begun)
    assert rate > 30, "steps of 5 ms go on"
    assert len([line for line in child.warnings if "blind" in line]) == 1
    assert len(hf.events("claimed")) == 1 and not hf.events("notice")
    imds.script = []
    until(lambda: hf.status()["watch"]["health"] == "seeing", "seeing")
    imds.give_notice(60)
    left_by_notice(hf, child, "aws")


@pytest.fixture
def clock(hf):
    """Moves the wall clock of what the environment is given to."""
    library, file = hf.tmp / "shift.so", hf.tmp / "shift"
    source = TRAINERS.parent / "shift_clock.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-I", TOP, "-o", library, source],
                   check=True)

    class Clock:
        env = {**hf.env, "LD_PRELOAD": str(library), "SHIFT_CLOCK": str(file)}

        def shift(self, seconds):
            (hf.tmp / "shift.tmp").write_text(str(seconds))
            (hf.tmp / "shift.tmp").rename(file)
    return Clock()


@pytest.mark.parametrize("before, during", [(3600, -3600), (-3600, 3600)])
def test_g3_the_wall_clock_is_stepped_during_a_notice(hf, imds, clock, before, during):
    """It is an hour off when the notice comes, and two more while it stands: the deadline is the
    service's own, and moves for neither."""
    clock.shift(before)
    child = started(hf, *on_aws(imds, "--use-window"), env=clock.env)
    imds.give_notice(10)
    notice = hf.waits_for("notice")
    assert 8000 < notice["left_ms"] <= 10000
    told = datetime.datetime.fromisoformat(notice["ts"].replace("Z", "+00:00")).timestamp()
    assert abs(told - time.time() - before) < 60, "the clock is off indeed"
    due = hf.waits_for("window")["second_in_ms"] / 1000
    begun = time.monotonic()
    clock.shift(during)
    until(lambda: len(hf.events("request")) == 2, "the second save")
    assert abs(time.monotonic() - begun - due) < 1
    assert child.wait() == 75
    assert 0 < hf.events("verdict")[-1]["spare_ms"] < 10000
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"


def test_what_is_no_metadata_service_is_not_trusted(hf, imds):
    """A web server answers 404 to everything: no token, and that is no calm."""
    imds.script = [404] * 100000
    started(hf, *on_aws(imds))
    until(lambda: hf.status()["watch"]["health"] == "blind", "blind")


def test_eight_ranks_get_the_time_together(hf):
    """Each needs a second for its save: that is one second, not eight."""
    both = " ".join(f"RANK={rank} WORLD_SIZE=8 $1 $2 --steps 100000 --save-ms 1000 &"
                    for rank in range(8))
    child = hf.run_start("--grace=20s", command=shell(f"{both} wait", *trainer("loop.py")))
    hf.waits_for("joined", rank=7)
    until(lambda: len(hf.events("joined")) == 8 and hf.step() >= 3, "steps of all")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    request, saved = hf.events("request")[0], hf.events("saved")[0]
    assert saved["ranks"] == 8
    assert int(saved["ns"]) - int(request["ns"]) < 4e9
    assert len(hf.ckpt()) == 1
