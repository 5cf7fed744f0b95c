# SPDX-License-Identifier: Apache-2.0
"""Hostile clients of the hook protocol: whatever they send, the supervisor lives, the others are
untouched, what was wrong is told, and no half checkpoint is published."""
import json
import multiprocessing
import os
import random
import signal
import socket
import subprocess

import pytest

import wire
from sleeper import Sleeper
from support import PYTHON, loop_digest, trainer, until
from wire import Gone, Line

FOREVER = 10 ** 6
TOKEN = "0123456789abcdef"


def refusals(hf):
    return [e["why"] for e in hf.events("hook-refused")]


def hello(**changes):
    message = {"msg": "hello", "protocol": 1, "rank": 0, "world": 1, "pid": 7, "token": TOKEN}
    message.update(changes)
    return {k: v for k, v in message.items() if v is not Ellipsis}


def saved(**changes):
    message = {"msg": "saved", "id": 0, "step": 3, "paths": ["/nowhere/at/all"]}
    message.update(changes)
    return {k: v for k, v in message.items() if v is not Ellipsis}


class Trained:
    """A training by the shipped client, which nothing here may touch."""

    def __init__(self, hf, *options):
        self.hf = hf
        self.child = hf.run_start(*options, command=trainer(
            "loop.py", "--steps", FOREVER, "--step-ms", 3, "--own-every", 40))
        hf.waits_for("saved")
        self.socket = str(hf.dir() / "1" / "s")

    def line(self):
        return Line(self.socket)

    def is_untouched(self):
        """It trains on, answers a notice, and its checkpoint leads to the very weights."""
        hf, step = self.hf, self.hf.step()
        until(lambda: hf.step() > step, "it trains on")
        assert not self.child.warnings
        self.child.kill(signal.SIGTERM)
        assert self.child.wait() == 75, self.child.err
        assert [e["rank"] for e in hf.events("joined")] == [0]
        assert [e["how"] for e in hf.events("request-ended")] == ["saved"]
        newest = hf.ckpt()[-1]["step"]
        assert newest == hf.events("saved")[-1]["step"]
        again = hf.run("--resume", command=trainer("loop.py", "--steps", newest + 5))
        assert f"start {newest + 1}\n" in again.out
        assert f"digest {loop_digest(newest + 5)}" in again.out


# --- lines ----------------------------------------------------------------------------------------

WRONG = {
    b"nonsense": "not JSON", b"": "empty", b"[]": "not a JSON object", b"7": "not a JSON object",
    b"null": "not a JSON object", b'"hello"': "not a JSON object", b"{}": "'msg' is missing",
    b'{"msg":null}': "'msg' is not a string", b'{"msg":["hello"]}': "'msg' is not a string",
    b'{"msg":"bye"}{"msg":"bye"}': "text after", b'{"msg":"bye"} x': "text after",
    b'{"msg":"bye\0"}': "NUL", b'{"msg":"b\xffe"}': "UTF-8", b'\xc3{"msg":"bye"}': "UTF-8",
    b'{"msg":"\xed\xa0\x80"}': "UTF-8", b'{"msg":"\xc0\x80"}': "UTF-8",
    b'{"msg":"\\ud800"}': "not JSON", b"{'msg':'bye'}": "not JSON", b'{"msg":"bye",}': "not JSON",
    b"[" * 3000: "too deep", b'{"a":' * 100 + b"1" + b"}" * 100: "too deep",
}
WRONG_FIELDS = [
    (hello(protocol=...), "protocol"), (hello(protocol="1"), "protocol"),
    (hello(protocol=0), "protocol"), (hello(world=0), "world"), (hello(world=...), "world"),
    (hello(world=2 ** 31), "world"), (hello(world=1.5), "world"), (hello(rank=1), "rank"),
    (hello(rank=-1), "rank"), (hello(rank=True), "rank"), (hello(rank=None), "rank"),
    (hello(rank=[0]), "rank"), (hello(pid=0), "pid"), (hello(pid=2 ** 40), "pid"),
    (hello(token=...), "token"), (hello(token=5), "token"), (hello(token="0" * 15), "token"),
    (hello(token="0" * 17), "token"), (hello(token="0" * 15 + "G"), "token"),
    (hello(token="0123456789ABCDEF"), "token"), (hello(last=-2), "last"),
    (hello(last=2 ** 45 - 1), "last"), (saved(id=...), "id"), (saved(id=-1), "id"),
    (saved(id=65536), "id"), (saved(id="0"), "id"), (saved(step=...), "step"),
    (saved(step=-1), "step"), (saved(step=2 ** 45 - 1), "step"), (saved(step=2 ** 63), "step"),
    (saved(step=3.25), "step"), (saved(step="3"), "step"), (saved(paths=...), "paths"),
    (saved(paths="/a"), "paths"), (saved(paths={"0": "/a"}), "paths"),
    (saved(paths=["a"]), "not absolute"), (saved(paths=[""]), "not absolute"),
    (saved(paths=[7]), "hex"), (saved(paths=[None]), "hex"), (saved(paths=[["/a"]]), "hex"),
    (saved(paths=[{"hex": "2"}]), "hex"), (saved(paths=[{"hex": "2f00"}]), "hex"),
    (saved(paths=[{"hex": "2fgg"}]), "hex"), (saved(paths=[{"hex": ""}]), "not absolute"),
    (saved(paths=["/a"] * 1025), "1024"), ({"msg": "resumed"}, "step"),
    ({"msg": "resumed", "step": -1}, "step"), ({"msg": "resumed", "step": None}, "step"),
]


def test_every_wrong_line_costs_its_sender_the_connection_and_says_why(hf):
    t = Trained(hf)
    cases = list(WRONG.items()) + [(wire.line(m)[:-1], word) for m, word in WRONG_FIELDS]
    assert len(cases) < 100, "as many as are told"
    for number, (text, word) in enumerate(cases):
        line = t.line()
        line.raw(text + b"\n" + wire.line({"msg": "bye"}))
        assert line.is_dropped(), text[:200]
        line.close()
        told = until(lambda n=number: refusals(hf)[n:], f"an event for {text[:200]!r}")
        assert len(told) == 1 and word in told[0], (text[:200], told)
    assert {e["pid"] for e in hf.events("hook-refused")} == {os.getpid()}
    t.is_untouched()


def test_lines_of_every_length_around_the_limit(hf):
    t = Trained(hf)
    for extra in (-1, 0, 1, 2, 16384):
        for end in (b"\n", b""):
            line = t.line()
            text = b'{"msg":"x"}'.ljust(wire.LINE_MAX - len(end) + extra) + end
            try:
                line.raw(text)
                if extra <= 0 and end:
                    assert line.next() == {"msg": "unsupported", "what": "x"}
                elif extra >= 0:
                    assert line.is_dropped()
                else:  # one byte is missing that could still be the newline
                    line.raw(b"\n")
                    assert line.next()["msg"] == "unsupported"
            except Gone:
                assert extra > 0, "dropped while the rest was being sent"
            line.close()
    until(lambda: len(refusals(hf)) == 7, "seven were too long")
    assert {why for why in refusals(hf)} == {"a line is longer than 65536 bytes"}
    t.is_untouched()


def test_every_message_cut_at_every_byte(hf):
    """Without its newline it is no message yet; with one it is a wrong line. Neither acts."""
    s = Sleeper(hf)
    rank = s.rank(token=TOKEN)
    texts = [wire.line(m)[:-1] for m in (
        saved(), {"msg": "resumed", "step": 5}, {"msg": "done"}, {"msg": "bye"})]
    for text in texts:
        for cut in range(len(text) + 1):
            rank.line.raw(text[:cut])
            rank.line.close()
            assert rank.join()["msg"] == "welcome"
    for text in [*texts, wire.line(hello(token="f" * 16))[:-1]]:
        for cut in range(len(text)):
            line = rank.line if b"hello" not in text else s.line()
            line.raw(text[:cut] + b"\n")
            assert line.is_dropped(), text[:cut]
            line.close()
            assert rank.join()["msg"] == "welcome"
    assert [e["event"] for e in hf.events() if e["event"] in (
        "joined", "resumed", "saved", "done", "verdict")] == ["joined"]
    assert len(refusals(hf)) == 100, "told up to its bound"
    assert s.control.head.life == 0
    path = rank.folder(3)
    open(os.path.join(path, "w"), "w").close()
    rank.line.send(saved(paths=[path]))
    assert hf.waits_for("verdict")["step"] == 3, "the connection is as good as ever"


@pytest.mark.parametrize("how", ["bytes", "one packet", "crlf and blanks", "random cuts"])
def test_packets_do_not_matter(hf, how):
    s = Sleeper(hf)
    path = hf.tmp / "saved"
    path.write_text("x")
    talk = b"".join(map(wire.line, [
        hello() | {"unknown": {"hello": [1]}}, {"msg": "resumed", "step": 4}, {"msg": "news"},
        saved(step=5, paths=[str(path)], turn=0), saved(step=5, paths=[str(path)]),
        saved(step=6, paths=[{"hex": os.fsencode(path).hex()}]), {"msg": "done"}, {"msg": "bye"}]))
    line = s.line()
    line.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    if how == "crlf and blanks":
        talk = talk.replace(b"\n", b" \t\r\n")
    at, rng = 0, random.Random(how)
    while at < len(talk):
        n = {"bytes": 1, "random cuts": rng.randint(1, 90)}.get(how, len(talk))
        line.raw(talk[at:at + n])
        at += n
    assert line.next()["msg"] == "welcome"
    assert line.next() == {"msg": "unsupported", "what": "news"}
    line.sync()
    assert [(e["event"], e.get("step")) for e in hf.events() if e["event"] in (
        "resumed", "saved", "done")] == [("resumed", 4), ("saved", 5), ("saved", 6), ("done", None)]
    assert not refusals(hf)


@pytest.mark.parametrize("name", ["\u00e9" * 40, "x" * 5000, "\x1b[2J\u202e", "a\\u0000b", ""])
def test_odd_names_are_told_as_clean_text(hf, name):
    s = Sleeper(hf)
    line = s.line()
    line.send(hello(framework=name))
    assert line.next()["msg"] == "welcome"
    joined = hf.waits_for("joined")
    told = joined["framework"]
    assert name.startswith(told) and (told == name or 28 <= len(told.encode()) <= 31)
    line.send({"msg": name})
    assert line.next()["msg"] == "unsupported"
    line.raw(b'{"msg":"a\\u0000b"}\n')  # whatever is made of a NUL: an answer, or the end
    try:
        assert line.next()["msg"] == "unsupported"
    except Gone:
        pass
    assert "\x1b" not in hf.call("status", "r").out
    assert s.lives()


# --- floods ---------------------------------------------------------------------------------------


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(row.split()[1]) for row in f if row.startswith("VmRSS"))


def test_five_thousand_connections_one_after_another(hf):
    t = Trained(hf)
    pid = t.child.pid
    fds = descriptors(pid)
    moods = [lambda line: None, lambda line: line.raw(b"{"), lambda line: line.raw(b"x\n"),
             lambda line: line.send({"msg": "done"}), lambda line: line.send({"msg": "a"}),
             lambda line: line.sync()]
    rss = None
    for n in range(5000):
        line = t.line()
        moods[n % len(moods)](line)
        line.close()
        if n == 1000:
            rss = resident_kib(pid)
    until(lambda: descriptors(pid) <= fds + 2, "all of them are closed again")
    assert resident_kib(pid) < rss + 4000
    assert len(refusals(hf)) == 100
    t.is_untouched()


def test_silent_connections_keep_no_rank_out(hf):
    """Beyond what is kept open the oldest of those that never spoke goes; ranks stay."""
    s = Sleeper(hf)
    first = s.rank(0, 2)
    silent = [s.line() for _ in range(600)]
    second = s.rank(1, 2)
    assert s.control.head.world == 2
    path = hf.tmp / "f"
    path.write_text("x")
    for rank in (first, second):
        rank.tell(msg="saved", id=0, step=1, paths=[str(path)])
    assert hf.waits_for("saved")["ranks"] == 2
    assert silent[0].is_dropped() and "has not said hello" in refusals(hf)[0]
    assert silent[-1].sync() == [], "the newest are served"
    assert descriptors(s.pid) < 600


def test_a_client_that_does_not_read_its_answers(hf):
    t = Trained(hf)
    rss = resident_kib(t.child.pid)
    line = t.line()
    line.sock.settimeout(5)
    with pytest.raises(Gone):
        for _ in range(2000):
            line.raw(wire.line({"msg": "q"}) * 1000)
    until(lambda: "it does not read its answers" in refusals(hf), "why it was dropped")
    assert resident_kib(t.child.pid) < rss + 8000
    t.is_untouched()


# --- who is who -----------------------------------------------------------------------------------


def test_a_second_process_for_a_living_rank_is_refused(hf):
    t = Trained(hf)
    for answer in (hello(), hello(world=2), hello(token="e" * 16)):
        line = t.line()
        line.send(answer)
        refused = line.next()
        assert refused["msg"] == "refused" and "rank 0 is held by living process" in refused["why"]
        line.send(saved(step=1), {"msg": "done"}, {"msg": "bye"})
        assert [line.next()["msg"] for _ in range(3)] == ["refused"] * 3
        line.close()
    assert any("rank 0 is held by living process" in why for why in refusals(hf))
    t.is_untouched()


def test_ranks_that_disagree_about_the_world_save_nothing_together(hf):
    s = Sleeper(hf, "--every=50ms")
    path = hf.tmp / "f"
    path.write_text("x")
    ranks = [s.rank(0, 2), s.rank(1, 3), s.rank(2, 3)]
    for rank in ranks:
        rank.boundary(5)
        rank.tell(msg="saved", id=0, step=5, paths=[str(path)])
        rank.line.sync()
    s.child.kill(signal.SIGTERM)
    s.child.waits_for_error("the ranks disagree about the number of ranks")
    assert not hf.events("saved") and not hf.events("request") and hf.ckpt() == []


def holder(env, token, pipe):
    """A process that becomes rank 0, hands its connection on, and ends."""
    rank = wire.Rank(env, token=token)
    rank.join()
    socket.send_fds(pipe, [b"x"], [rank.line.sock.fileno()])
    os._exit(0)


@pytest.mark.parametrize("how", ["the process called exec", "the process is dead"])
def test_an_old_connection_cannot_speak_for_a_new_life(hf, how):
    """What a rank sent just before it was restarted belongs to the life before, and is no part of
    the next one's saves."""
    s = Sleeper(hf)
    if how == "the process is dead":
        ours, theirs = socket.socketpair()
        process = multiprocessing.get_context("fork").Process(
            target=holder, args=(s.env, "a" * 16, theirs))
        process.start()
        fd = socket.recv_fds(ours, 1, 1)[1][0]
        process.join()
        old = socket.socket(fileno=fd)
        ours.close()
        theirs.close()
    else:
        old = s.rank().line.sock
    new = s.rank()
    assert new.welcome["life"] == 1
    try:
        old.sendall(b"".join(map(wire.line, [
            saved(step=9), {"msg": "resumed", "step": 9}, {"msg": "done"}, {"msg": "bye"}])))
    except (BrokenPipeError, ConnectionResetError):
        pass
    old.settimeout(5)
    try:
        while old.recv(4096):
            pass
    except ConnectionResetError:
        pass
    new.line.sync()
    assert not hf.events("saved") and not hf.events("resumed") and not hf.events("done")
    old.close()


def test_answers_for_other_requests_are_own_saves_or_nothing(hf):
    """Twice, for a request that never was, for another step: the request waits for its answer."""
    s = Sleeper(hf, "--every=100ms")
    rank = s.rank()
    rank.boundary(5)
    _, request, target = s.until_state(wire.TARGET)
    path = rank.folder(target)
    open(os.path.join(path, "w"), "w").close()
    for answer in [(request + 1, target), (request, target - 1), (request - 1 or 9, target + 1),
                   (65535, target)]:
        rank.line.send(saved(id=answer[0], step=answer[1], paths=[path]))
    rank.line.sync()
    assert s.state() == (wire.TARGET, request, target) and not hf.events("request-ended")
    assert {e["request"] for e in hf.events("saved")} == {0}
    rank.slot.step = target
    for _ in range(3):
        rank.line.send(saved(id=request, step=target, paths=[path]))
    rank.line.sync()
    assert [e["how"] for e in hf.events("request-ended")] == ["saved"]
    assert [e["request"] for e in hf.events("saved")].count(request) == 1


def test_steps_that_go_backwards_or_are_no_steps(hf):
    """A seeded rank scribbles into its line of the slot while saves are asked for."""
    s = Sleeper(hf, "--every=20ms")
    one, two = s.rank(0, 2), s.rank(1, 2)
    seed = 20261201
    rng = random.Random(seed)
    odd = [-1, -2, 0, 1, 7, 2 ** 45 - 2, 2 ** 45 - 1, 2 ** 62, 2 ** 63 - 1, -2 ** 63]
    words = [wire.pack(state, n, step) for state in range(5) for n in (0, 1, 2, 65535)
             for step in (0, 7, 2 ** 45 - 1)] + [2 ** 64 - 1]
    for n in range(4000):
        slot = rng.choice((one, two)).slot
        name = rng.choice(("step", "hold", "saved", "last", "gave_up", "done"))
        setattr(slot, name, rng.choice(odd) if name in ("step", "last") else
                rng.choice(words) if name in ("hold", "saved") else rng.choice((0, 1, 2 ** 32 - 1)))
        if n % 400 == 0:
            assert s.lives(), seed
            slot.done = slot.gave_up = 0
            state, _, target = s.state()
            assert state != wire.TARGET or target <= wire.STEP_MAX, seed
    assert not hf.events("saved") and hf.ckpt() == [], seed
    for rank in (one, two):  # then as if nothing had been
        rank.slot.done, rank.slot.gave_up, rank.slot.last, rank.slot.step = 0, 0, -1, 50
    until(lambda: s.state()[0] == wire.TARGET and s.state()[2] in (51, 52), "a request for now")
    assert hf.status()["state"] == "running"


def test_all_slots_taken_is_told(hf):
    s = Sleeper(hf)
    ranks = [s.rank(i, 200) for i in range(128)]
    assert sorted(r.welcome["slot"] for r in ranks) == list(range(128))
    late = wire.Rank(s.env, 150, 200)
    assert "all 128 slots are taken" in late.join()["why"]
    assert any("all 128 slots are taken" in why for why in refusals(hf))
    assert ranks[0].line.sync() == []


# --- saves that are not what they say -------------------------------------------------------------


def tried(hf, s, rank, step, paths):
    """The verdict of an own save of these paths."""
    count = len(hf.events("verdict"))
    rank.tell(msg="saved", id=0, step=step, paths=[str(p) for p in paths])
    return until(lambda: hf.events("verdict")[count:], f"a verdict about step {step}")[0]


def test_saves_of_odd_paths(hf):
    """Missing ones are no checkpoint; a file, a folder, several, one elsewhere, a link are."""
    s = Sleeper(hf)
    rank = s.rank()
    elsewhere = hf.tmp / "else where"
    elsewhere.mkdir()
    (elsewhere / "a").write_text("a")
    (elsewhere / "empty").mkdir()
    link = hf.tmp / "link"
    link.symlink_to(elsewhere)
    assert tried(hf, s, rank, 1, [hf.tmp / "missing"])["kind"] == "lost"
    whole = tried(hf, s, rank, 2, [elsewhere / "a"])
    assert (whole["kind"], whole["step"], whole["bytes"]) == ("local", 2, 1)
    stale = tried(hf, s, rank, 3, [elsewhere, hf.tmp / "missing"])
    assert (stale["kind"], stale["step"], stale["tried_step"]) == ("stale", 2, 3)
    assert "missing" in stale["why"]
    assert tried(hf, s, rank, 4, [elsewhere])["step"] == 4
    stale = tried(hf, s, rank, 5, [elsewhere / "a" / "below a file"])
    assert (stale["kind"], stale["step"]) == ("stale", 4) and "below a file" in stale["why"]
    for step, paths, word in [(6, [elsewhere / "a", elsewhere], "lies within"),
                              (7, [link], "there is no file in"),
                              (8, [f"{elsewhere}/../{elsewhere.name}/a"], "plain path"),
                              (9, ["/dev/null"], "/dev/null"), (10, ["/"], "plain path")]:
        stale = tried(hf, s, rank, step, paths)
        assert (stale["kind"], stale["step"], stale["tried_step"]) == ("stale", 4, step)
        assert word in stale["why"]
    assert tried(hf, s, rank, 11, [f"//{elsewhere}/.//a/."])["step"] == 11
    assert tried(hf, s, rank, 12, [link, elsewhere])["step"] == 12
    assert "whole" in hf.call("ckpt", "verify", "r").out
    assert s.lives()


def test_a_folder_that_changes_while_it_is_shipped(hf):
    """What was reported is not what is there any more: it is no checkpoint."""
    s = Sleeper(hf, "--limit-rate=16MiB", "--block-size=64KiB", "--keep=0")
    rank = s.rank()
    steps = 0
    for how in ("grows", "shrinks", "vanishes", "is replaced"):
        steps += 1
        path = rank.folder(steps)
        name = os.path.join(path, "w")
        with open(name, "wb") as f:
            f.write(os.urandom(1 << 20))
        count = len(hf.events("verdict"))
        rank.tell(msg="saved", id=0, step=steps, paths=[path])
        rank.line.sync()
        if how == "grows":
            with open(name, "ab") as f:
                f.write(os.urandom(1 << 20))
        elif how == "shrinks":
            os.truncate(name, 1000)
        elif how == "vanishes":
            os.unlink(name)
        else:
            os.unlink(name)
            with open(name, "wb") as f:
                f.write(b"new")
        verdict = until(lambda n=count: hf.events("verdict")[n:], how)[0]
        assert (verdict["kind"], verdict["tried_step"]) == ("lost", steps), how
        assert path in verdict["why"] and (
            "no file in" if how == "vanishes" else "changed since it was reported"
        ) in verdict["why"]
    path = rank.folder(9)
    with open(os.path.join(path, "w"), "wb") as f:
        f.write(os.urandom(100))
    assert tried(hf, s, rank, 9, [path])["step"] == 9
    assert [r["step"] for r in hf.ckpt()] == [9], "none of the others"
    assert "whole" in hf.call("ckpt", "verify", "r").out
