# SPDX-License-Identifier: Apache-2.0
"""Hook protocol 1 from the other side of the document: wire.py, which shares no code with hooks/,
trains under the real supervisor. What hostile clients do is in test_hostile.py."""
import os
import re
import signal

import pytest

import wire
from sleeper import Sleeper
from support import PYTHON, loop_digest, until

WIRE = os.path.abspath(wire.__file__)
FOREVER = 10 ** 6


def trained(*options):
    return [PYTHON, WIRE, *map(str, options)]


def digests(child):
    return dict(re.findall(r"rank (\d+) digest (\w+)", child.out))


def expected(steps, ranks):
    return {str(r): loop_digest(steps, r) for r in range(ranks)}


def resumes_to(hf, steps, ranks, *options):
    """The next start goes on from the newest checkpoint, on every rank, and ends as an undisturbed
    training would."""
    newest = hf.ckpt()[-1]["step"]
    child = hf.run("--resume", *options, command=trained("--steps", steps, "--nproc", ranks,
                                                         "--step-ms", 1))
    assert child.status == 0, child.err
    starts = re.findall(r"rank \d+ life 0 start (\d+)\n", child.out)
    assert starts == [str(newest + 1)] * ranks
    assert digests(child) == expected(steps, ranks)


@pytest.mark.parametrize("ranks", [1, 4])
def test_trains_saves_and_finishes(hf, ranks):
    child = hf.run("--keep=0", command=trained("--steps", 60, "--nproc", ranks, "--own-every", 7))
    assert child.status == 0, child.err
    assert digests(child) == expected(60, ranks)
    assert [e["step"] for e in hf.events("saved")] == list(range(6, 60, 7))
    assert {(e["ranks"], e["request"], e["life"]) for e in hf.events("saved")} == {(ranks, 0, 0)}
    assert {(e["rank"], e["world"], e["framework"]) for e in hf.events("joined")} == {
        (r, ranks, "wire") for r in range(ranks)}
    assert sorted((e["rank"], e["step"]) for e in hf.events("resumed")) == [
        (r, 0) for r in range(ranks)]
    assert len(hf.events("done")) == 1
    assert not hf.events("hook-refused") and not child.warnings
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert "whole" in hf.call("ckpt", "verify", "r").out


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_notice_is_answered_at_one_step_by_all(hf, ranks):
    child = hf.run_start(command=trained("--steps", FOREVER, "--nproc", ranks))
    until(lambda: len(hf.events("joined")) == ranks and hf.step() > 10, "all of them train")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert [(e["how"]) for e in hf.events("request-ended")] == ["saved"]
    saved = hf.events("saved")
    assert len(saved) == 1 and saved[0]["ranks"] == ranks and saved[0]["request"] > 0
    assert hf.ckpt()[-1]["step"] == saved[0]["step"]
    assert hf.events("attempt-ended")[0]["exit_code"] == 75
    resumes_to(hf, saved[0]["step"] + 15, ranks)


def test_no_save_without_the_rank_that_joins_late(hf):
    child = hf.run_start("--every=50ms", command=trained(
        "--steps", FOREVER, "--nproc", 2, "--late-s", 0.7))
    hf.waits_for("joined", rank=0)
    until(lambda: hf.step() > 30, "rank 0 trains alone")
    assert not hf.events("joined")[1:] and not hf.events("saved") and not hf.events("request")
    hf.waits_for("joined", rank=1)
    saved = hf.waits_for("saved")
    assert saved["ranks"] == 2
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    resumes_to(hf, hf.ckpt()[-1]["step"] + 10, 2)


def test_no_save_after_a_rank_has_left(hf):
    """It goes on computing, but what it had is in no checkpoint from there on."""
    child = hf.run_start("--every=50ms", command=trained(
        "--steps", FOREVER, "--nproc", 2, "--bye-at", 150))
    hf.waits_for("saved")
    slots = wire.Control(str(hf.dir() / "1" / "c"))
    until(lambda: min(slots.slot(i).step for i in (0, 1)) > 160, "both are beyond the bye")
    before = len(hf.events("request"))
    first = slots.slot(0).step
    until(lambda: slots.slot(0).step > first + 40, "some periods of --every")
    assert len(hf.events("request")) == before
    assert all(e["step"] <= 151 for e in hf.events("saved"))
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert "no save could be asked for: rank 1 has exited" in child.err
    assert hf.ckpt()[-1]["step"] == hf.events("saved")[-1]["step"]


def test_ranks_come_back_to_the_next_supervisor(hf):
    """The same tokens, slots and life; and a notice is answered by all of them."""
    child = hf.run_start(command=trained("--steps", FOREVER, "--nproc", 2, "--own-every", 20))
    hf.waits_for("saved")
    before = hf.events("joined")
    control = wire.Control(str(hf.dir() / "1" / "c"))
    tokens = [control.slot(i).token for i in range(2)]
    epoch = control.head.epoch
    child.kill(signal.SIGKILL)
    child.wait()
    alone = hf.step()
    until(lambda: hf.step() > alone + 25, "it trains alone")
    again = hf.run_start(command=trained("--steps", FOREVER, "--nproc", 2, "--own-every", 20))
    until(lambda: len(hf.events("joined")) == 4, "both are back")
    assert sorted((e["rank"], e["life"]) for e in hf.events("joined")) == [
        (0, 0), (0, 0), (1, 0), (1, 0)]
    assert [control.slot(i).token for i in range(2)] == tokens and control.head.epoch > epoch
    assert len(before) == 2 and not hf.events("hook-refused")
    again.kill(signal.SIGTERM)
    assert again.wait() == 75
    assert [e["how"] for e in hf.events("request-ended")] == ["saved"]
    assert not any(e["step"] for e in hf.events("resumed")), "told again, not changed"
    resumes_to(hf, hf.ckpt()[-1]["step"] + 10, 2)


def test_a_launcher_restarts_its_ranks_inside_the_attempt(hf):
    child = hf.run("--keep=0", command=trained(
        "--steps", 60, "--nproc", 2, "--own-every", 10, "--crash-at", 34,
        "--crash-once", hf.tmp / "once", "--step-ms", 10))
    assert child.status == 0, child.err
    assert digests(child) == expected(60, 2), "nothing of the two lives is mixed"
    assert len(hf.events("claimed")) == 1
    assert sorted((e["life"], e["rank"]) for e in hf.events("joined")) == [
        (0, 0), (0, 1), (1, 0), (1, 1)]
    starts = re.findall(r"rank \d life 1 start (\d+)", child.out)
    assert len(starts) == 2 and len(set(starts)) == 1, "the same checkpoint for all of a life"
    base = int(starts[0]) - 1
    assert base in (19, 29)
    lives = [(e["life"], e["step"]) for e in hf.events("saved")]
    assert lives == sorted(lives) and (1, 59) in lives and (0, 19) in lives
    assert len(hf.events("done")) == 1
    rows = {(r["number"]): r for r in hf.ckpt()}
    assert [rows[n]["step"] for n in sorted(rows)] == [step for _, step in lives]
    assert "whole" in hf.call("ckpt", "verify", "r").out


# --- what the control file and the welcome say ----------------------------------------------------


def test_the_control_file_and_the_welcome_are_as_written(hf):
    s = Sleeper(hf)
    raw = open(s.env["HOLDFAST_CONTROL"], "rb").read()
    assert len(raw) == 24576 and raw[:8] == b"hold" + b"f001"
    assert os.stat(s.env["HOLDFAST_CONTROL"]).st_mode & 0o777 == 0o600
    assert os.stat(s.env["HOLDFAST_SOCKET"]).st_mode & 0o777 == 0o600
    assert "HOLDFAST_RESUME" not in s.env
    head = s.control.head
    assert (head.attempt, head.life, head.world, head.epoch, head.hold_limit_ms) == (1, 0, 0, 1,
                                                                                     2000)
    assert s.state() == (wire.IDLE, 0, 1) and head.resume_step == -1
    assert {(s.control.slot(i).step, s.control.slot(i).last, s.control.slot(i).joined)
            for i in range(128)} == {(-1, -1, 0)}
    rank = s.rank(2, 5, last=99, token="00ff00ff00ff00ff")
    assert rank.welcome == {
        "msg": "welcome", "protocol": 1, "run": "r", "attempt": 1, "life": 0, "resume": None,
        "slot": rank.welcome["slot"], "save_dir": s.env["HOLDFAST_SAVE_DIR"]}
    assert os.path.isabs(rank.welcome["save_dir"])
    slot = rank.slot
    assert (slot.token, slot.rank, slot.pid, slot.life, slot.joined, slot.last, slot.step) == (
        0x00FF00FF00FF00FF, 2, os.getpid(), 0, 1, 99, -1)
    assert head.world == 5


def test_a_higher_protocol_is_answered_by_ours(hf):
    s = Sleeper(hf)
    line = wire.Line(s.env["HOLDFAST_SOCKET"])
    later = wire.Rank(s.env).hello() | {"protocol": 7, "compress": ["zstd"], "client": None}
    line.send(later)
    welcome = line.next()
    assert (welcome["msg"], welcome["protocol"]) == ("welcome", 1)


NO_BARRIER = """
import ctypes, os, struct, sys
call = {"x86_64": 324, "aarch64": 283}[os.uname().machine]
rules = struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, call,
                    6, 0, 0, 0x50026, 6, 0, 0, 0x7FFF0000)
kept = ctypes.create_string_buffer(rules, len(rules))
program = struct.pack("=H6xQ", 4, ctypes.addressof(kept))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p] + [ctypes.c_ulong] * 2
assert libc.prctl(38, 1, None, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("barrier", [True, False], ids=["membarrier", "no membarrier"])
def test_the_target_is_one_or_two_boundaries_away(hf, barrier):
    """Without the system call (a seccomp filter says ENOSYS) nobody may be asked for the next."""
    before = [] if barrier else [PYTHON, "-c", NO_BARRIER]
    s = Sleeper(hf, "--every=100ms", before=before)
    ranks = [s.rank(i, 2) for i in range(2)]
    ranks[0].boundary(4)
    ranks[1].boundary(7)
    state, request, target = s.until_state(wire.TARGET)
    assert target == (8 if barrier else 9)
    head = s.control.head
    assert head.leave == 0 and s.control.text("reason") == b"every"
    for rank in ranks:
        for step in range(8, target):
            assert rank.boundary(step) == "go"
        assert rank.boundary(target) == request
        rank.save(request, target, [rank.folder(target)])
    assert hf.waits_for("request-ended")["how"] == "saved"
    assert hf.waits_for("saved")["step"] == target
    assert s.until_state(wire.IDLE)[2] == head.epoch


def test_leave_is_told_when_the_last_one_has_saved_and_not_before(hf):
    s = Sleeper(hf, "--grace=20s")
    ranks = [s.rank(i, 3) for i in range(3)]
    for rank in ranks:
        rank.boundary(5)
    s.child.kill(signal.SIGTERM)
    _, request, target = s.until_state(wire.TARGET)
    assert s.control.head.leave == request and s.control.text("reason") == b"notice"
    for rank in ranks:
        assert s.state()[0] == wire.TARGET
        assert rank.boundary(target) == request
        path = rank.folder(target)
        open(os.path.join(path, f"rank{rank.rank}"), "w").close()
        rank.slot.saved = wire.pack(wire.TARGET, request, target)
        rank.tell(msg="saved", id=request, step=target, paths=[path])
        rank.line.sync()
    s.until_state(wire.LEAVE)
    assert hf.waits_for("verdict")["step"] == target
    assert [rank.boundary(target + 1) for rank in ranks] == ["leave"] * 3


@pytest.mark.parametrize("why, words", [
    ("bye", "rank 1 exited before its save"), ("done", "rank 1 finished its training before"),
    ("past", "rank 1 went on past step"), ("gave up", "rank 1 stopped waiting"),
    ("restart", "rank 1 was restarted"), ("nothing", "no rank named a file")])
def test_what_ends_a_request_between_target_and_save(hf, why, words):
    s = Sleeper(hf, "--every=100ms")
    one, two = ranks = [s.rank(i, 2) for i in range(2)]
    for rank in ranks:
        rank.boundary(5)
    _, request, target = s.until_state(wire.TARGET)
    one.boundary(target)
    one.save(request, target, [] if why == "nothing" else [one.folder(target)])
    if why == "past":
        two.slot.step = target + 1
    elif why == "gave up":
        two.slot.gave_up = request
    elif why == "done":
        two.finish()
    elif why == "bye":
        two.line.send({"msg": "bye"})
    elif why == "restart":
        s.rank(1, 2)
    else:
        two.save(request, target, [])
    ended = hf.waits_for("request-ended")
    assert (ended["request"], ended["how"]) == (request, "canceled")
    assert words in ended["why"]
    if why != "nothing":
        assert not hf.events("saved")
    assert hf.ckpt() == [] and not hf.events("verdict"), "what single ranks wrote is no checkpoint"
    assert s.state()[0] != wire.TARGET or s.state()[1] != request


def test_c2_shares_of_two_attempts_are_never_one_checkpoint(hf):
    """The machine dies between the shares of two ranks; the next attempt's have other names."""
    def share(attempt, rank):
        path = hf.tmp / f"step5-a{attempt}-rank{rank}.pt"
        path.write_bytes(os.urandom(1000))
        return str(path)

    first = Sleeper(hf)
    first.rank(0, 2).save(0, 5, [share(1, 0)])
    line = first.line()
    line.sync()  # what came before it has been read
    for pid in (hf.supervisor_pid(), hf.keeper_pid(1), hf.command_pid(1)):
        os.kill(pid, signal.SIGKILL)
    first.child.wait()

    (hf.tmp / "env.json").unlink()
    second = Sleeper(hf, "--resume")
    assert second.env["HOLDFAST_ATTEMPT"] == "2"
    ranks = [second.rank(r, 2) for r in (0, 1)]
    ranks[1].save(0, 5, [share(2, 1)])
    second.lives()
    assert not hf.events("saved"), "rank 0's share is of the attempt before"
    ranks[0].save(0, 5, [share(2, 0)])
    assert hf.waits_for("verdict")["kind"] == "local"
    found = hf.ckpt()
    assert [(c["attempt"], c["step"]) for c in found if c["kind"] == "checkpoint"] == [(2, 5)]
    content = hf.json("ckpt", "show", "r", f"2-{found[0]['number']}")["checkpoints"][0]["content"]
    assert sorted(os.path.basename(f["root"]) for f in content) == [
        "step5-a2-rank0.pt", "step5-a2-rank1.pt"]
