# SPDX-License-Identifier: Apache-2.0
"""`holdfast run` adds nothing to a command and takes nothing from it: status, argv, environment,
signals, limits, descriptors, streams; and it ends what the command leaves behind."""
import json
import os
import resource
import signal
import subprocess

import pytest

from support import BIN, PYTHON, alive, shell, trainer, until

REPORT = trainer("report.py")


@pytest.mark.parametrize("script, status", [
    ("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -TERM $$", 128 + signal.SIGTERM),
    ("kill -KILL $$", 128 + signal.SIGKILL), ("kill -SEGV $$", 128 + signal.SIGSEGV),
])
def test_the_exit_status_is_passed_on(hf, script, status):
    assert hf.run(command=shell(script)).status == status


def test_commands_that_cannot_be_executed(hf):
    plain = hf.work / "plain"
    plain.write_text("no program")
    plain.chmod(0o644)
    missing = hf.run(command=["no-such-command-here"], run="a")
    assert missing.status == 127
    assert "no-such-command-here" in missing.err
    assert hf.run(command=["./plain"], run="b").status == 126
    assert hf.run(command=["./missing/x"], run="c").status == 127


@pytest.mark.parametrize("args", [
    ["run"], ["run", "--"], ["run", "--wrong", "--", "true"], ["run", "--every=x", "--", "true"],
    ["run", "--keep=-2", "--", "true"], ["run", "--run"],
])
def test_wrong_usage_is_125_and_says_why(hf, args):
    child = hf.call(*args, status=125)
    assert child.err.startswith("holdfast: error:")
    assert child.out == ""


def test_a_finished_command_leaves_nothing_behind(hf):
    assert hf.run(command=shell("exit 0")).status == 0
    assert hf.left() == []


def test_options_end_at_the_command(hf):
    child = hf.call("run", "--run=r", "--provider=none", "echo", "--run", "-q", "--", "x")
    assert child.out == "--run -q -- x\n"


def test_arguments_and_environment_are_equal_to_the_byte(hf):
    words = ["", "two words", " ", "--", "-", "$HOME", "a\nb", "'\"\\", "*", "--fresh"]
    raw = [b"\xff\xfe bytes", b"\xc3\x28"]
    env = dict(hf.env)
    env.update({"EMPTY": "", "SPACES": "  two  words ", "LINE": "a\nb", "PWD": "/somewhere/else"})
    env = {os.fsencode(k): os.fsencode(v) for k, v in env.items()}
    env[b"RAW"] = b"\xff\xfe=\x80"
    command = [*map(os.fsencode, REPORT), *map(os.fsencode, words), *raw]
    bare = subprocess.run(command, env=env, cwd=hf.work, capture_output=True, check=True)
    want = json.loads(bare.stdout)
    child = hf.start("run", "--run=r", "--provider=none", "--", *command, env=env)
    assert child.wait() == 0
    got = json.loads(child.out)
    assert got["argv"] == want["argv"]
    added = {k: v for k, v in got["env"] if [k, v] not in want["env"]}
    assert added and all(k.startswith("HOLDFAST_") for k in added), added
    assert added["HOLDFAST_RUN"] == "r" and added["HOLDFAST_ATTEMPT"] == "1"
    assert "HOLDFAST_RESUME" not in added
    kept = [pair for pair in got["env"] if pair[0] not in added]
    assert kept == want["env"], "order and values"
    for key in ("cwd", "umask", "nice", "mask", "ignored"):
        assert got[key] == want[key], key


def test_what_a_process_inherits_reaches_the_command(hf):
    read_end, write_end = os.pipe()

    def prepare():
        os.umask(0o027)
        os.nice(3)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1, signal.SIGWINCH])
        resource.setrlimit(resource.RLIMIT_NOFILE, (333, 444))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def report(command):
        with open(hf.tmp / "report.out", "wb") as out:
            subprocess.run(command, preexec_fn=prepare, restore_signals=False, cwd=hf.work,
                           env=hf.env, stdout=out, pass_fds=[write_end], check=True,
                           stdin=subprocess.DEVNULL, timeout=30)
        return json.loads((hf.tmp / "report.out").read_text())

    want = report(REPORT)
    got = report([BIN, "run", "--run=r", "--provider=none", "--", *REPORT])
    os.close(write_end)
    os.close(read_end)
    assert write_end in got["fds"]
    for key in ("umask", "nice", "mask", "ignored", "limits", "fds"):
        assert got[key] == want[key], key


def test_two_streams_stay_two_and_holdfasts_own_lines_are_prefixed(hf):
    child = hf.run(command=shell("echo out; echo err >&2"))
    assert child.out == "out\n"
    lines = child.err.splitlines()
    assert lines.count("err") == 1
    assert len(lines) > 1
    assert all(line == "err" or line.startswith("holdfast: ") for line in lines)


def test_big_output_is_complete_and_in_order(hf):
    script = "import sys\nfor i in range(400000): sys.stdout.write('%d\\n' % i)"
    child = hf.run(command=[PYTHON, "-c", script])
    assert child.status == 0
    want = "".join(f"{i}\n" for i in range(400000))
    assert child.out == want
    assert hf.call("logs", "r").out == want


def test_output_into_a_slow_reader_is_complete(hf):
    script = "import sys\nfor i in range(60000): sys.stdout.write('%d\\n' % i)"
    read_end, write_end = os.pipe()
    child = hf.run_start(command=[PYTHON, "-c", script], stdout=write_end)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        hf.waits_for("command-started")
        until(lambda: (hf.dir() / "1" / "log.000000000000000").exists(), "the log")
        assert child.proc.poll() is None, "the pipe is full: somebody must wait"
        got = pipe.read()
    assert child.wait() == 0
    assert got == b"".join(b"%d\n" % i for i in range(60000))


def test_a_reader_that_goes_away(hf):
    """`holdfast run ... | head -1` ends as the bare command does: by SIGPIPE or an error."""
    script = f"{BIN} run --run=r --provider=none -- yes 2>{hf.tmp}/err | head -1; echo done"
    done = subprocess.run(["bash", "-c", script], env=hf.env, cwd=hf.work, capture_output=True,
                          text=True, timeout=30)
    assert done.stdout == "y\ndone\n"
    until(lambda: hf.left() == [], "nothing is left")
    assert hf.events("command-exited")[0]["signal"] == signal.SIGPIPE


def test_quiet_says_warnings_only(hf):
    calm = hf.run("-q", command=shell("exit 0"), run="a")
    assert calm.err == ""
    failed = hf.run("--quiet", command=shell("exit 4"), run="b")
    assert failed.status == 4
    lines = failed.err.splitlines()
    assert lines and all(line.startswith("holdfast: warning:") for line in lines)


def test_lines_as_json(hf):
    child = hf.run("--log-format=json", command=shell("exit 4"))
    rows = [json.loads(line) for line in child.err.splitlines()]
    assert {row["level"] for row in rows} == {"info", "warning"}
    for row in rows:
        assert row["ts"].endswith("Z") and row["msg"]


def test_standard_input_reaches_the_command(hf):
    data = b"\x00\xff" * 70000
    source = hf.tmp / "in"
    source.write_bytes(data)
    with open(source, "rb") as f:
        child = hf.run(command=["cat"], stdin=f)
    assert child.out_path.read_bytes() == data
    piped = hf.start("run", "--run=p", "--provider=none", "--", "cat", stdin=subprocess.PIPE)
    piped.proc.stdin.write(b"one\n")
    piped.proc.stdin.flush()
    piped.waits_for_output("one\n")
    piped.proc.stdin.close()
    assert piped.wait() == 0


def test_what_is_left_behind_gets_its_time_and_is_then_ended_and_named(hf):
    """One that ends by itself within --linger, one that must be ended, one in its own session that
    ignores SIGTERM."""
    script = """
        sleep 0.2 &
        sleep 1000 & echo "child $!"
        setsid sh -c 'trap "" TERM; echo "session $$"; while :; do sleep 1000; done' &
        exit 7"""
    child = hf.run("--linger=700ms", command=shell(script))
    assert child.status == 7
    assert hf.left() == []
    pids = {name: int(pid) for name, pid in (line.split() for line in child.out.splitlines())}
    assert set(pids) == {"child", "session"}
    for pid in pids.values():
        assert f"(pid {pid})" in child.err
    told = hf.events("straggler")
    assert {e["pid"] for e in told} >= set(pids.values())
    exited = hf.events("command-exited")[0]
    ended = hf.events("tree-gone")[0]
    assert int(ended["ns"]) - int(exited["ns"]) >= 0.6e9


def test_what_ends_by_itself_within_the_time_is_not_touched(hf):
    child = hf.run("--linger=20s",
                   command=shell("(sleep 0.4; echo late) & exit 0"))
    assert child.status == 0
    assert child.out == "late\n"
    assert not hf.events("straggler")


def test_a_signal_for_the_command_is_handed_on(hf):
    child = hf.run_start(command=shell("trap 'echo got; exit 9' USR2; echo ready; "
                                       "while :; do sleep 0.05; done"))
    child.waits_for_output("ready")
    child.kill(signal.SIGUSR2)
    assert child.wait() == 9
    assert child.out == "ready\ngot\n"


def test_an_interrupt_that_was_sent_reaches_the_command_and_a_second_ends_it(hf):
    script = "trap 'echo int' INT; echo ready; while :; do sleep 0.05; done"
    child = hf.run_start(command=shell(script))
    child.waits_for_output("ready")
    pid = hf.command_pid()
    child.kill(signal.SIGINT)
    child.waits_for_output("int\n")
    assert alive(pid)
    child.kill(signal.SIGINT)
    assert child.wait(10) != 0
    assert not alive(pid)
    assert hf.status()["outcome"] == "stopped"


@pytest.mark.parametrize("script, code, sig", [
    ("kill -KILL $$", -1, 9), ("kill -TERM $$", -1, 15), ("exit 1", 1, 0), ("exit 0", 0, 0)])
def test_how_it_ended_is_recorded(hf, script, code, sig):
    hf.run(command=shell(script))
    ended = hf.events("attempt-ended")[0]
    assert (ended["exit_code"], ended["signal"]) == (code, sig)
    stored = json.loads((hf.state / "store/r/attempts/000001.end.json").read_text())
    known = (None if code < 0 else code, sig or None)
    assert (stored["exit_code"], stored["signal"]) == known
    assert stored["outcome"] == ended["outcome"] == ("finished" if code == 0 else "failed")


def test_settings_come_from_flags_then_environment_then_the_file(hf):
    (hf.work / "holdfast.yaml").write_text("run: from-file\nlinger: 5s\nprovider: none\n")
    hf.call("run", "--", "true")
    assert hf.status("from-file")["outcome"] == "finished"
    env = {**hf.env, "HOLDFAST_RUN_NAME": "from-env"}
    hf.call("run", "--", "true", env=env)
    assert hf.status("from-env")["outcome"] == "finished"
    hf.call("run", "--run=from-flag", "--", "true", env=env)
    assert hf.status("from-flag")["outcome"] == "finished"
    (hf.work / "holdfast.yaml").write_text("runn: x\n")
    child = hf.call("run", "--", "true", status=125)
    assert "runn" in child.err


def test_as_the_first_process_of_a_container(hf, root):
    """PID 1 of a pid namespace: nothing is ignored that should not be, orphans are reaped, and the
    status is passed on."""
    notice = hf.tmp / "notice"
    child = hf.start("run", "--run=r", "--provider=none", f"--notice-file={notice}", "--",
                     *shell("(sleep 0.1 &); exec \"$@\"", *trainer("loop.py", "--steps", 100000)),
                     before=["unshare", "--pid", "--fork", "--mount-proc"])
    until(lambda: hf.step() >= 3, "three steps")
    assert json.loads((hf.dir() / "status.json").read_text())["supervisor_pid"] == 1
    notice.touch()
    assert child.wait() == 75
    assert hf.events("verdict")[-1]["reason"] == "notice"
    zombies = hf.start("run", "--run=z", "--provider=none", "--", *shell("exit 9"),
                       before=["unshare", "--pid", "--fork", "--mount-proc"])
    assert zombies.wait() == 9
