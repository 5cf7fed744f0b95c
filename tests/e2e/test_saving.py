# SPDX-License-Identifier: Apache-2.0
"""Saving while life goes on: the rest of a notice's window, saves that outrun the store, the
bandwidth limit, parts that are shipped ahead, early hints, and disks that fill up."""
import signal
import time

import pytest

from imds import Imds
from support import loop_digest, trainer, until

STEPS = 100000
FOREVER = trainer("loop.py", "--steps", STEPS, "--step-ms", 5)


def seconds(later, earlier):
    return (int(later["ns"]) - int(earlier["ns"])) / 1e9


def in_window(hf, *options, command=FOREVER, **more):
    child = hf.run_start("--use-window", *options, command=command, **more)
    hf.waits_for("first-step")
    return child


# --- the rest of the window -----------------------------------------------------------------------


def test_b11_training_goes_on_after_the_save_and_a_second_one_follows(hf):
    child = in_window(hf, "--grace=9s")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    first, second = hf.events("verdict")
    assert (first["reason"], second["reason"]) == ("notice", "window")
    assert first["kind"] == second["kind"] == "local"
    assert second["step"] > first["step"] + 20, "it trained on in between"
    window = hf.events("window")[0]
    need = 1.5 * (window["capture_ms"] + window["ship_ms"]) / 1000 + 3 + 2
    asked = seconds(hf.events("request")[1], hf.events("notice")[0])
    assert asked >= 9 - need - 0.2, "as late as is safe"
    assert 0 < second["spare_ms"] < 6000
    assert hf.ckpt()[-1]["step"] == second["step"]
    ended = hf.events("attempt-ended")[0]
    assert ended["outcome"] == "preempted" and ended["exit_code"] == 75
    assert "a second save follows" in child.err
    assert hf.status()["save"]["step"] == second["step"]
    resumed = hf.run("--resume", command=trainer("loop.py", "--steps", second["step"] + 20))
    assert f"start {second['step'] + 1}\n" in resumed.out
    assert f"digest {loop_digest(second['step'] + 20)}" in resumed.out


def test_the_window_is_not_used_when_told_so(hf):
    child = hf.run_start("--grace=20s", "--no-use-window", command=FOREVER)
    hf.waits_for("first-step")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 8
    assert len(hf.events("request")) == 1


@pytest.fixture
def notice(hf):
    class Notice:
        path = hf.tmp / "notice"

        def give(self, text):
            scratch = hf.tmp / "notice.tmp"
            scratch.write_text(text)
            scratch.rename(self.path)
    return Notice()


def test_a_notice_that_is_withdrawn_in_its_window(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}",
                      command=trainer("loop.py", "--steps", 700, "--step-ms", 5))
    notice.give("20s")
    hf.waits_for("window")
    notice.path.unlink()
    hf.waits_for("notice-withdrawn")
    until(lambda: hf.status()["state"] == "running", "running")
    assert child.wait() == 0
    assert f"digest {loop_digest(700)}" in child.out
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert [e["reason"] for e in hf.events("request")] == ["notice"]


def test_a_nearer_deadline_in_the_window(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}", "--grace=8s")
    notice.give("60s")
    assert hf.waits_for("window")["second_in_ms"] > 50000
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 7
    assert [e["reason"] for e in hf.events("request")] == ["notice", "window"]


def test_a_deadline_too_near_for_a_second_save(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}", "--grace=4s")
    notice.give("60s")
    hf.waits_for("window")
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert time.monotonic() - begun < 3
    assert len(hf.events("request")) == 1
    assert hf.events("attempt-ended")[0]["exit_code"] == 75, "it was told to leave, and did"


def test_a_second_save_that_fails_leaves_the_first_as_the_verdict(hf):
    child = in_window(hf, "--grace=9s", command=trainer(
        "loop.py", "--steps", STEPS, "--step-ms", 5, "--stick-at", 400))
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    first = hf.events("verdict")[0]
    assert [e["reason"] for e in hf.events("request")] == ["notice", "window"]
    assert hf.events("request-ended")[1]["how"] in ("canceled", "expired")
    status = hf.status()["save"]
    assert status["verdict"] == "local" and status["step"] == first["step"]
    assert "the first one stands" in child.err
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"
    assert hf.left() == []


def test_a_training_that_ends_in_the_window_is_finished(hf):
    child = in_window(hf, "--grace=15s",
                      command=trainer("loop.py", "--steps", 500, "--step-ms", 5))
    child.kill(signal.SIGTERM)
    assert child.wait() == 0
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert f"digest {loop_digest(500)}" in child.out
