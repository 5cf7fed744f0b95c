# SPDX-License-Identifier: Apache-2.0
"""The command's output: kept on this machine within a bound, in the store at most 5 s behind, and
shown again, also when the machine is gone; and runs without a terminal."""
import os
import pty
import re
import signal
import subprocess
import time

import pytest

from support import BIN, PYTHON, alive, process, shell, until

FOREVER = "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo line $i; sleep 0.1; done"


@pytest.fixture
def store(hf):
    """A store that outlives the state folder."""
    uri = f"file://{hf.tmp}/store"
    hf.env["HOLDFAST_STORE"] = uri
    return uri


def pieces(hf, attempt=1, run="r"):
    """Numbers of the pieces in the store."""
    folder = hf.tmp / "store" / run / "logs" / f"{attempt:06}"
    return sorted(int(p.name.split(".")[0]) for p in folder.glob("*.log.zst"))


def segments(hf, attempt=1):
    return sorted((hf.dir() / str(attempt)).glob("log.???????????????"))


def disk_bytes(hf, attempt=1):
    total = 0
    for path in (hf.dir() / str(attempt)).glob("log.*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            pass  # the oldest goes while we look
    return total


def stored(hf, *args):
    """`holdfast logs` on a machine that has nothing but the store."""
    env = dict(hf.env, HOLDFAST_STATE_DIR=str(hf.tmp / "elsewhere"))
    return hf.call("logs", "r", *args, env=env).out


def lose_the_machine(hf):
    """Everything of Holdfast is killed at once and its folder is gone: a simulated lost machine."""
    for pid in hf.left():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    until(lambda: not hf.left(), "nothing of the machine is left")
    hf.state.rename(hf.tmp / "lost")


def test_m1_three_attempts_three_logs_and_a_joined_view(hf, store):
    for n in (1, 2, 3):
        child = hf.run("--resume", command=shell(f"echo this is {n}; exit 75"))
        assert child.status == 75
    for show in (lambda *a: hf.call("logs", "r", *a).out, lambda *a: stored(hf, *a)):
        assert show() == "this is 3\n"
        for n in (1, 2, 3):
            assert show(f"--attempt={n}") == f"this is {n}\n"
        assert show("--attempt=all") == "this is 1\nthis is 2\nthis is 3\n"
    err = hf.call("logs", "r", "--attempt", "all").err
    assert re.findall(r"attempt (\d)", err) == ["1", "2", "3"]


def test_m2_the_last_line_older_than_5_s_survives_the_machine(hf, store):
    hf.run_start(command=shell(f"echo $$; {FOREVER}"))
    hf.waits_for("command-started")
    log = segments(hf)[0]
    old = until(lambda: re.findall(r"line \d+\n", log.read_text())[-1:], "a line")[0]
    end = time.monotonic() + 5
    # The condition is the clock: what was there 5 s ago must be in the store by now.
    until(lambda: time.monotonic() >= end, "5 s are over")
    lose_the_machine(hf)
    assert old in stored(hf)
    assert old in hf.call("logs", "r").out


def test_m2_the_end_of_a_failed_job_is_kept(hf, store):
    child = hf.run("--max-crashes=0", command=shell("echo it broke because; exit 9"))
    assert child.status == 9
    hf.state.rename(hf.tmp / "lost")
    assert hf.call("logs", "r").out == "it broke because\n"


def test_pieces_are_plain_zstd(hf, store):
    zstd = subprocess.run(["sh", "-c", "command -v zstd"], capture_output=True, check=False)
    if zstd.returncode != 0:
        pytest.skip("needs the zstd program")
    hf.run(command=shell("echo one; echo two >&2"))
    folder = hf.tmp / "store" / "r" / "logs" / "000001"
    out = b"".join(subprocess.run(["zstd", "-dc", p], capture_output=True, check=True).stdout
                   for p in sorted(folder.iterdir()))
    assert sorted(out.split()) == [b"one", b"two"]


def test_no_store_logs(hf, store):
    hf.run("--no-store-logs", command=shell("echo secret"))
    assert not (hf.tmp / "store" / "r" / "logs").exists()
    assert hf.call("logs", "r").out == "secret\n"


def test_a_notice_flushes(hf, store):
    """Before the end is recorded the last words are in the store."""
    notice = hf.tmp / "notice"
    child = hf.run_start(f"--notice-file={notice}", "--grace=10s", command=shell(
        "trap 'echo last words; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
    hf.waits_for("command-started")
    until(lambda: "up\n" in child.out, "the command is up")
    notice.touch()
    assert child.wait() == 75
    assert stored(hf) == "up\nlast words\n"


def test_numbers_go_on_after_the_supervisor_was_killed(hf, store):
    first = hf.run_start(command=shell(FOREVER))
    hf.waits_for("command-started")
    until(lambda: pieces(hf), "the first piece")
    first.kill()
    first.wait()
    before = len(pieces(hf))
    second = hf.run_start(command=shell(FOREVER))
    hf.waits_for("adopted")
    until(lambda: len(pieces(hf)) > before + 1, "two more pieces")
    second.kill(signal.SIGTERM)
    assert second.wait() == 75
    local = segments(hf)[0].read_text()
    assert stored(hf) == local
    assert pieces(hf) == list(range(1, len(pieces(hf)) + 1))


def test_a_store_that_fails_costs_nothing_but_the_pieces(hf, store):
    """While the folder of the pieces cannot be written training goes on; then all is put."""
    hf.run_start(command=shell(FOREVER))
    hf.waits_for("command-started")
    logs = hf.tmp / "store" / "r" / "logs"
    logs.write_text("in the way")
    hf.waits_for("log-store", ok=False)
    assert hf.status()["log"]["store_failing"]
    assert hf.status()["state"] == "running"
    logs.unlink()
    hf.waits_for("log-store", ok=True)
    until(lambda: stored(hf).startswith("line 1\nline 2\n"), "from the first line on")


def test_the_local_log_is_a_ring(hf):
    script = "for i in range(200000): print('%09d' % i)"
    child = hf.run_start("--log-disk=256KiB", command=[PYTHON, "-c", script])
    most = 0
    while child.proc.poll() is None:
        most = max(most, disk_bytes(hf) if hf.dir().exists() else 0)
    assert child.wait() == 0
    # A segment may go, and the next one grow, between two looks.
    assert 0 < most <= 256 * 1024 * 9 / 8 and disk_bytes(hf) <= 256 * 1024
    assert len(child.out.splitlines()) == 200000
    got = hf.call("logs", "r")
    lines = got.out.splitlines()
    assert lines[-1] == "000199999" and len(got.out) > 150 * 1024
    assert [int(line) for line in lines[1:]] == list(range(200000 - len(lines) + 1, 200000))
    assert "no longer on this machine" in got.err


def test_old_attempts_share_one_more_log_disk(hf):
    for _ in range(5):
        hf.run("--log-disk=128KiB", "--resume", command=shell(
            "head -c 60000 /dev/zero | tr '\\0' x; exit 75"))
    kept = [n for n in range(1, 6) if segments(hf, n)]
    assert kept == [3, 4, 5]


def test_n1_a_full_disk_costs_log_lines_only(hf, root):
    """The state folder on a small disk that fills up and gets room again."""
    hf.state.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", hf.state], check=True)
    try:
        hf.env["HOLDFAST_STORE"] = f"file://{hf.tmp}/store"
        child = hf.run_start(command=shell(
            "trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); printf '%0500d\\n' $i; "
            "sleep 0.01; done"))
        hf.waits_for("command-started")
        hog = hf.state / "hog"
        with open(hog, "wb", buffering=0) as f:
            try:
                while True:
                    f.write(b"x" * 512)
            except OSError:
                pass
        child.waits_for_error("is not kept in")
        child.waits_for_error("No space left on device")
        seen = child.out.count("\n")
        until(lambda: child.out.count("\n") > seen + 50, "the command goes on")
        hog.unlink()
        child.waits_for_error("is kept again")
        log = segments(hf)[0]
        until(lambda: b"bytes of output are missing here: No space left" in log.read_bytes(),
              "the line in the log")
        child.kill(signal.SIGTERM)
        assert child.wait() == 75
        log = segments(hf)[0].read_bytes().decode()
        gaps = [int(n) for n in re.findall(r"\[holdfast: (\d+) bytes of output", log)]
        marks = re.findall(r"(?<!^)(?:(?<!\n)\n)?\[holdfast: [^\n]*\]\n", log)
        assert len(log) - len("".join(marks)) + sum(gaps) == len(child.out)
        status = hf.status()["log"]
        assert status["dropped_bytes"] == sum(gaps) > 0 and status["why"] is None
        assert f"{sum(gaps)} bytes are missing" in hf.call("status", "r").out
    finally:
        hf.clean_up()
        subprocess.run(["umount", "-l", hf.state], check=True)


def test_a_file_size_limit_starts_a_new_segment(hf):
    """`ulimit -f` holds for the keeper too: shorter segments, nothing lost, no SIGXFSZ."""
    hf.run(command=shell("head -c 300000 /dev/zero | tr '\\0' x"),
           before=["bash", "-c", 'ulimit -f 100; exec "$@"', "bash"])
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    assert len(segments(hf)) >= 3
    assert hf.call("logs", "r").out.count("x") == 300000


def follow(hf, *args, **popen):
    return hf.start("logs", "r", "-f", *args, **popen)


@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_follow_goes_on_to_the_next_attempt_and_ends_with_the_run(hf, store, where):
    gate = hf.tmp / "gate"
    script = (f"echo first; while [ ! -e {gate}1 ]; do sleep 0.05; done; echo second; exit 75")
    env = dict(hf.env, HOLDFAST_STATE_DIR=str(hf.tmp / where)) if where != "here" else hf.env
    child = hf.run_start("--resume", command=shell(script))
    hf.waits_for("command-started")
    until(lambda: pieces(hf), "the first piece")
    view = follow(hf, env=env)
    view.waits_for_output("first\n")
    (hf.tmp / "gate1").touch()
    assert child.wait() == 75
    view.waits_for_output("second\n")
    assert view.proc.poll() is None, "the run has not ended"
    assert hf.run("--resume", command=shell("echo third; exit 0")).status == 0
    assert view.wait() == 0
    assert view.out == "first\nsecond\nthird\n"
    assert "attempt 2" in view.err


def test_follow_ends_by_ctrl_c_quietly(hf):
    hf.run_start(command=shell(FOREVER))
    hf.waits_for("command-started")
    view = follow(hf)
    view.waits_for_output("line")
    view.kill(signal.SIGINT)
    assert view.wait() == -signal.SIGINT  # a shell calls it 130
    assert view.err == ""


def test_since_is_exact_to_a_second(hf, store):
    gate = hf.tmp / "gate"
    child = hf.run_start(command=shell(
        f"echo old; while [ ! -e {gate} ]; do sleep 0.05; done; echo new; "
        f"while [ ! -e {gate}2 ]; do sleep 0.05; done"))
    child.waits_for_output("old\n")
    until(lambda: pieces(hf), "the first piece")
    written = time.time()
    until(lambda: time.time() > written + 2.2, "two seconds have passed")
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(written + 2))
    gate.touch()
    child.waits_for_output("new\n")
    for since in (moment, "2s"):
        assert hf.call("logs", "r", f"--since={since}").out == "new\n"
    assert hf.call("logs", "r", "--since=1h").out == "old\nnew\n"
    assert hf.call("logs", "r", f"--since={time.gmtime().tm_year + 1}-01-01T00:00:00Z").out == ""
    until(lambda: "new" in stored(hf), "the second piece")
    assert stored(hf, f"--since={moment}") == "new\n"
    (hf.tmp / "gate2").touch()
    assert child.wait() == 0


@pytest.mark.parametrize("args,says", [
    (["--since=yesterday"], "neither a duration nor a moment"),
    (["--attempt=none"], "neither a number nor 'all'"),
    (["--attempt=0"], "neither a number nor 'all'"),
    (["--attempt=1x"], "neither a number nor 'all'"),
])
def test_wrong_words(hf, args, says):
    assert says in hf.call("logs", "r", *args, status=64).err


def test_a_run_that_the_store_does_not_have(hf, store):
    assert f"the store '{store}' is not there" in hf.call("logs", "nowhere", status=1).err
    hf.run(command=["true"])
    assert "run 'nowhere'" in hf.call("logs", "nowhere", status=1).err


# ---- without a terminal ----

def detach(hf, *options, command, **popen):
    return hf.start("run", "--run=r", "--provider=none", "--detach", *options, "--", *command,
                    **popen)


def test_detach_returns_and_says_where_to_look(hf):
    child = detach(hf, command=shell("echo hello; pwd; trap 'exit 0' TERM; "
                                     "while :; do sleep 0.05; done"))
    assert child.wait() == 0
    pid = int(re.search(r"pid (\d+)", child.err).group(1))
    assert "holdfast status r" in child.err and "holdfast logs -f r" in child.err
    assert hf.status()["supervisor_pid"] == pid and hf.status()["state"] == "running"
    until(lambda: hf.call("logs", "r").out == f"hello\n{hf.work}\n", "the output, and its folder")
    assert os.getsid(pid) == pid and os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
    own = hf.call("logs", "--own", "r").out
    assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z holdfast: run 'r', attempt 1", own)
    os.kill(pid, signal.SIGTERM)
    until(lambda: not alive(pid), "it has left")
    assert "left" in hf.call("logs", "--own", "r").out
    assert hf.events("attempt-ended")[0]["outcome"] == "preempted"


@pytest.mark.parametrize("command,status,says", [
    (["/nowhere/x"], 127, "could not be executed"),
    (["/etc/passwd"], 126, "could not be executed"),
])
def test_detach_fails_with_the_real_error(hf, command, status, says):
    child = detach(hf, command=command)
    assert child.wait() == status
    assert says in child.err and "goes on" not in child.err
    until(lambda: not hf.left(), "nothing is left")


def test_detach_refuses_a_run_that_is_taken(hf):
    assert detach(hf, command=shell(FOREVER)).wait() == 0
    second = detach(hf, command=shell(FOREVER))
    assert second.wait() == 125
    assert "supervised by another holdfast" in second.err


def test_detach_holds_no_pipe_of_its_caller(hf):
    """`x=$(holdfast run --detach ...)` returns."""
    done = subprocess.run([BIN, "run", "--run=r", "--provider=none", "--detach", "--",
                           *shell(FOREVER)], env=hf.env, cwd=hf.work, capture_output=True,
                          timeout=20, check=True, stdin=subprocess.DEVNULL)
    assert done.stdout == b"" and b"goes on without" in done.stderr


def test_detach_survives_the_closing_of_its_terminal(hf):
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(hf.work)
        os.execve("/bin/sh", ["sh", "-c", f'{BIN} run --run=r --provider=none --detach -- sh -c '
                              f'"{FOREVER}" || exit 1; while :; do sleep 1; done'.replace(
                                  "$((i+1))", "\\$((i+1))").replace("line $i", "line \\$i")],
                  hf.env)
    hf.waits_for("command-started")
    seen = b""
    while b"goes on without" not in seen or b"kill " not in seen:
        seen += os.read(master, 4096)
    sup = hf.supervisor_pid()
    os.close(master)  # SIGHUP to the whole session
    os.waitpid(pid, 0)
    before = hf.call("logs", "r").out
    until(lambda: len(hf.call("logs", "r").out) > len(before), "it goes on")
    assert alive(sup) and not hf.events("notice")
    assert process(sup)[0] != "T"


def test_background_output_has_one_return_a_line(hf):
    """With the run in the background both the pty and the terminal would add a return."""
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(hf.work)
        os.execve("/bin/bash", ["bash", "--norc", "-c", f"set -m; {BIN} run --run=r "
                                "--provider=none -- sh -c 'echo one; echo two' & "
                                "wait; echo over"], hf.env)
    seen = b""
    while b"over" not in seen:
        seen += os.read(master, 4096)
    os.close(master)
    os.waitpid(pid, 0)
    assert b"one\r\n" in seen and b"two\r\n" in seen and b"\r\r\n" not in seen

