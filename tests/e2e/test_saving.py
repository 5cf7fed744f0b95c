# SPDX-License-Identifier: Apache-2.0
"""Saving while life goes on: the rest of a notice's window, saves that outrun the store, the
bandwidth limit, parts that are shipped ahead, early hints, and disks that fill up."""
import signal
import subprocess
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


@pytest.fixture
def notice(hf):
    class Notice:
        path = hf.tmp / "notice"

        def give(self, text):
            scratch = hf.tmp / "notice.tmp"
            scratch.write_text(text)
            scratch.rename(self.path)
    return Notice()


# --- the rest of the window -----------------------------------------------------------------------


def test_b11_training_goes_on_after_the_save_and_a_second_one_follows(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}")
    notice.give("9s")
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


@pytest.mark.parametrize("how", ["told so", "signal", "file without a time"])
def test_the_window_is_not_used(hf, notice, how):
    """Told so; or nobody told a deadline: who sends a signal waits, and may lose patience."""
    child = hf.run_start("--grace=20s", f"--notice-file={notice.path}",
                         "--no-use-window" if how == "told so" else "--use-window",
                         command=FOREVER)
    hf.waits_for("first-step")
    begun = time.monotonic()
    if how == "signal":
        child.kill(signal.SIGTERM)
    else:
        notice.give("20s" if how == "told so" else "")
    assert child.wait() == 75
    assert time.monotonic() - begun < 8
    assert len(hf.events("request")) == 1


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


def test_a_second_save_that_fails_leaves_the_first_as_the_verdict(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}", command=trainer(
        "loop.py", "--steps", STEPS, "--step-ms", 5, "--stick-at", 400))
    notice.give("9s")
    assert child.wait() == 75
    first = hf.events("verdict")[0]
    assert [e["reason"] for e in hf.events("request")] == ["notice", "window"]
    assert hf.events("request-ended")[1]["how"] in ("canceled", "expired")
    status = hf.status()["save"]
    assert status["verdict"] == "local" and status["step"] == first["step"]
    assert "the first one stands" in child.err
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"
    assert hf.left() == []


def test_a_training_that_ends_in_the_window_is_finished(hf, notice):
    child = in_window(hf, f"--notice-file={notice.path}",
                      command=trainer("loop.py", "--steps", 500, "--step-ms", 5))
    notice.give("15s")
    assert child.wait() == 0
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert f"digest {loop_digest(500)}" in child.out


# --- saves that outrun the store ------------------------------------------------------------------


def save_folders(hf):
    return sorted(p.name for p in hf.dir().glob("save/*"))


def test_e7_n4_saves_faster_than_the_store_takes_them(hf):
    """A save every 300 ms and four seconds of upload for each: one in flight, one waits, the newest
    wins; what gave way leaves the disk at once; and a notice lifts the limit (E8: the save that it
    asks for is shipped though another is on its way)."""
    child = hf.run_start("--limit-rate=250000", "--block-size=64KiB", "--every=0", "--grace=15s",
                         command=trainer("loop.py", "--steps", STEPS, "--step-ms", 30,
                                         "--own-every", 10, "--noise", "--pad", 1000000))
    hf.waits_for("verdict", deadline=60)
    most = 0
    begun = time.monotonic()
    while len(hf.events("verdict")) < 2:
        most = max(most, len(save_folders(hf)))
        assert time.monotonic() - begun < 30
    first, second = hf.events("verdict")[:2]
    assert first["took_ms"] > 2500, "the rate was kept"
    assert most <= 6, "being written, reported, waiting, sent, committed, and one being removed"
    skipped = [e["step"] for e in hf.events("save-skipped")]
    assert len(skipped) >= 4 and sorted(skipped) == skipped
    assert second["step"] not in skipped and second["tried_step"] == second["step"]
    assert hf.step() > second["step"] + 5, "training never waited"
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    final = hf.events("verdict")[-1]
    assert final["reason"] == "notice" and final["step"] == hf.events("saved")[-1]["step"]
    assert final["took_ms"] < 3000, "no limit while a notice stands"
    assert hf.ckpt()[-1]["step"] == final["step"]
    assert len(save_folders(hf)) == 1


def test_a_notice_lifts_the_limit_in_the_middle_of_an_upload(hf):
    """At that rate the save that is on its way would take minutes."""
    child = hf.run_start("--limit-rate=20000", "--block-size=64KiB", "--grace=15s",
                         command=trainer("loop.py", "--steps", STEPS, "--step-ms", 5,
                                         "--own-every", 20, "--noise", "--pad", 3000000))
    hf.waits_for("saved")
    assert not hf.events("verdict")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert hf.events("verdict")[-1]["kind"] == "local"
    assert hf.ckpt()[-1]["step"] == hf.events("saved")[-1]["step"]


def test_a_save_that_is_on_its_way_becomes_the_final_one(hf):
    """Time is measured to be too short for another: none is asked for, the ranks are told to leave,
    and the one that was under way is what stands."""
    notice = hf.tmp / "notice"
    child = hf.run_start(f"--notice-file={notice}", "--block-size=4KiB", "--lanes=1", "--every=0",
                         command=trainer("loop.py", "--steps", STEPS, "--step-ms", 20,
                                         "--own-every", 200, "--noise", "--pad", 8000000))
    took = hf.waits_for("verdict", deadline=60)["took_ms"]
    if took < 500:
        pytest.skip("this store is too fast to be short of time")
    until(lambda: len(hf.events("saved")) == 2, "the next save")
    scratch = hf.tmp / "scratch"
    scratch.write_text(f"{int(took * 1.8)}ms")
    scratch.rename(notice)
    assert child.wait() == 75
    assert not hf.events("request")
    pending = hf.events("final-pending")[0]
    assert hf.events("attempt-ended")[0]["exit_code"] in (75, -1)
    last = hf.events("verdict")[-1]
    assert last["tried_step"] == pending["step"] == hf.events("saved")[1]["step"]
    assert last["kind"] == "local" and last["step"] == pending["step"]


# --- parts that are shipped ahead -----------------------------------------------------------------


def test_parts_of_a_save_are_shipped_while_the_rest_is_written(hf):
    """Two ranks, one of which takes two seconds longer for its part: the other's is in the store
    before the save is whole, and the commit names what is there."""
    ranks = ("RANK=0 WORLD_SIZE=2 $1 $2 --steps 100000 --step-ms 5 --noise --pad 2000000 & "
             "RANK=1 WORLD_SIZE=2 $1 $2 --steps 100000 --step-ms 5 --save-ms 2000 & wait")
    child = hf.run_start("--grace=20s", "--block-size=64KiB", command=[
        "sh", "-c", ranks, "sh", *trainer("loop.py")])
    until(lambda: len(hf.events("joined")) == 2 and hf.step() >= 3, "steps of both")
    child.kill(signal.SIGTERM)
    until(lambda: len(list(hf.state.glob("**/data/000001-000001-*/*/*"))) >= 3,
          "blocks of the first part")
    assert not hf.events("saved"), "the save is not whole yet"
    assert child.wait() == 75
    verdict = hf.events("verdict")[0]
    assert verdict["kind"] == "local" and verdict["bytes"] > 2000000
    assert "whole" in hf.call("ckpt", "verify", "r").out


# --- how often ------------------------------------------------------------------------------------


def test_every_auto_follows_what_is_measured(hf):
    child = hf.run_start("--every=auto", command=trainer(
        "loop.py", "--steps", STEPS, "--step-ms", 5, "--own-every", 20))
    every = hf.waits_for("every")
    assert every["every_ms"] == 60000 and every["notices"] == 0, "saves are cheap: the least"
    assert 3 * 3600000 <= every["mean_ms"] < 4 * 3600000
    until(lambda: hf.status()["every_ms"] == 60000, "the status")
    assert "a checkpoint is asked for every 1m" in child.err
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    again = hf.run_start("--every=auto", command=child.args[child.args.index("--") + 1:])
    every = hf.waits_for("every", 2)
    assert every["notices"] == 1 and every["mean_ms"] < 2 * 3600000, "it has been preempted once"
    again.kill(signal.SIGTERM)
    assert again.wait() == 75


# --- early hints ----------------------------------------------------------------------------------


@pytest.fixture
def imds():
    service = Imds()
    yield service
    service.close()


def test_a_recommendation_asks_for_one_save_and_nothing_else(hf, imds):
    imds.hint = "2026-10-27T08:22:00Z"
    child = hf.run_start("--provider=aws", f"--metadata-endpoint={imds.url}", "--poll=50ms",
                         "--every=0", command=FOREVER)
    hint = hf.waits_for("hint")
    assert hint["source"] == "aws"
    assert hf.waits_for("request")["reason"] == "hint"
    assert hf.waits_for("verdict")["reason"] == "hint"
    seen = len(imds.statuses(imds.hint_path))
    until(lambda: len(imds.statuses(imds.hint_path)) > seen, "it is told again", 15)
    until(lambda: hf.status()["state"] == "running", "running")
    assert len(hf.events("hint")) == len(hf.events("request")) == 1, "once a recommendation"
    assert not hf.events("notice")
    assert "may be taken soon" in child.err
    imds.give_notice(20)
    assert child.wait() == 75
    assert [e["reason"] for e in hf.events("request")] == ["hint", "notice"]


def test_metadata_that_is_disabled_is_not_asked(hf):
    env = {**hf.env, "AWS_EC2_METADATA_DISABLED": "true",
           "AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    child = hf.run("--provider=aws", command=trainer("loop.py", "--steps", 30), env=env)
    assert child.status == 0
    assert "AWS_EC2_METADATA_DISABLED" in child.err
    assert not hf.events("watch")


# --- disks that fill up ---------------------------------------------------------------------------


@pytest.fixture
def disk(hf, root):
    folder = hf.tmp / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "none", folder], check=True)
    yield folder
    hf.clean_up()
    subprocess.run(["umount", folder], check=True)


def test_n1_a_full_store_is_told_of_before_it_fails_and_harms_nothing_older(hf, disk):
    """Checkpoints of 1.5 MB in 16 MB, none of them removed: the alert comes while there is room for
    at least one more, a later save fails, and what was committed is whole."""
    child = hf.run_start(f"--store=file://{disk}/store", "--keep=0", "--every=0",
                         command=trainer("loop.py", "--steps", STEPS, "--step-ms", 20,
                                         "--own-every", 20, "--noise", "--pad", 1500000))
    alert = hf.waits_for("disk-low")
    assert alert["place"] == "store" and alert["checkpoint"] > 1500000
    committed = [e for e in hf.events("verdict") if e["kind"] == "local"]
    assert alert["free"] >= alert["checkpoint"] and len(committed) >= 5
    failed = until(lambda: [e for e in hf.events("verdict") if e["kind"] == "stale"],
                   "a save that fails", 60)[0]
    assert failed["why"]
    before = hf.step()
    until(lambda: hf.step() > before, "training goes on")
    assert any("nine tenths full" in line or "little room" in line for line in child.warnings)
    whole = [row["step"] for row in hf.ckpt()]
    child.kill(signal.SIGINT)
    child.kill(signal.SIGINT)
    child.wait()
    assert [row["step"] for row in hf.ckpt()][:len(whole)] == whole
    assert "whole" in hf.call("ckpt", "verify", "r").out


def test_the_save_folder_is_looked_at_before_the_first_step(hf, disk):
    """The checkpoint to go on from is 6 MB, and its copy leaves less than twice that."""
    options = [f"--store=file://{hf.tmp}/store", f"--save-dir={disk}/save", "--every=0"]
    command = trainer("loop.py", "--steps", 100, "--own-every", 50, "--noise", "--pad", 6000000)
    assert hf.preempt(command, *options, after=2).status == 75
    child = hf.run(*options, command=command)
    assert child.status == 0
    low = hf.events("disk-low", 2)[0]
    assert low["place"] == "save" and low["free"] < 2 * low["checkpoint"]
    assert int(low["ns"]) < int(hf.waits_for("first-step", 2)["ns"])
    assert len([line for line in child.warnings if "little room" in line]) == 1, "said once"


def test_folders_of_failed_saves_go_when_room_is_short(hf, disk):
    """The store fails for a while: what it did not take lies beside what stands, until the next
    save would not fit any more."""
    store = hf.tmp / "small"
    store.mkdir()
    child = hf.run_start(f"--store=file://{store}/store", f"--save-dir={disk}/save", "--every=0",
                         command=trainer("loop.py", "--steps", STEPS, "--step-ms", 20,
                                         "--own-every", 25, "--noise", "--pad", 3500000))
    hf.waits_for("verdict", kind="local")
    data = next(store.glob("store/*/data"))
    aside = data.with_name("data-aside")
    data.rename(aside)
    data.write_text("in the way")
    at = hf.waits_for("verdict", kind="stale", deadline=60)["tried_step"]
    hf.waits_for("saved", step=hf.events("saved")[-1]["step"] + 125, deadline=60)
    data.unlink()
    aside.rename(data)
    until(lambda: [e for e in hf.events("verdict") if e["kind"] == "local" and e["step"] > at],
          "saves that count again", 60)
    assert child.proc.poll() is None, "the trainer never ran out of room"
    child.kill(signal.SIGTERM)
    assert child.wait() == 75


def test_a_drill_shows_both_saves(hf):
    child = hf.call("drill", "--use-window", "--notice=9s", "--at-step=20", "--", *FOREVER)
    assert child.out.endswith("drill: PASS\n")
    rows = {line[:20].strip(): line[20:].split() for line in child.out.splitlines()}
    second = int(rows["second save"][1])
    assert rows["second save"][0] == "step" and second > 100
    assert int(rows["step saved"][0]) == second
    assert int(rows["step resumed at"][0]) == second + 1


@pytest.mark.long
def test_b11_most_of_two_minutes_is_used(hf):
    """The whole of AWS's window: four fifths of it are trained in."""
    service = Imds()
    child = in_window(hf, "--provider=aws", f"--metadata-endpoint={service.url}", "--poll=200ms",
                      command=trainer("loop.py", "--steps", STEPS, "--step-ms", 20,
                                      "--save-ms", 1000))
    service.give_notice(120)
    assert child.wait(150) == 75
    used = seconds(hf.events("request")[1], hf.events("notice")[0])
    assert used >= 0.8 * 120
    assert hf.events("verdict")[-1]["spare_ms"] > 0
    service.close()
