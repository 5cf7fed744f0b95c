# SPDX-License-Identifier: Apache-2.0
"""Wrong use of the command line, end to end: what is said on stderr names the thing and the
remedy, the exit status tells whose fault it is, and nothing was registered or started. Tables of
the same mistakes, without a process each, are in tests/unit/test_cmd.c and test_precheck.c."""
import json
import os
import signal

import pytest

from support import shell, trainer, until

LONG = "x" * 300

WRONG = [
    # arguments, status, message, remedy
    ([], 64, "usage: holdfast COMMAND", "holdfast help COMMAND"),
    (["rnu"], 64, "unknown command 'rnu'", "Did you mean 'holdfast run'?"),
    (["python", "t.py"], 64, "unknown command 'python'", "'holdfast run -- python' wraps"),
    (["--verison"], 64, "unknown flag '--verison'", "Did you mean 'holdfast --version'?"),
    (["run"], 125, "no command to run", "holdfast run [options] -- COMMAND"),
    (["run", "--"], 125, "no command to run", "holdfast run [options] -- COMMAND"),
    (["drill"], 125, "no command to rehearse", "holdfast drill [options] -- COMMAND"),
    (["run", "--", ""], 125, "first word is empty", "unset"),
    (["run", "--evry", "5m", "true"], 125, "unknown flag '--evry'", "Did you mean '--every'?"),
    (["run", "--times=3", "true"], 125, "'--times' is not for 'run'", "'holdfast drill'"),
    (["status", "--keep=3"], 64, "'--keep' is not for 'status'", "'holdfast run'"),
    (["run", "--store=", "true"], 125, "--store: the value is empty", "leave 'store' out"),
    (["run", "--run", "a/b", "true"], 125, "may not have '/'", "1 to 64 letters"),
    (["run", "--run", "..", "true"], 125, "may not start with '.'", "1 to 64 letters"),
    (["run", "--run", "a\nb", "true"], 125, "'a\\nb' may not have '\\n'", "1 to 64 letters"),
    (["run", "--run", "-x", "true"], 125, "may not start with '-'", "1 to 64 letters"),
    (["run", "--run", LONG, "true"], 125, "is too long: 300 bytes", "1 to 64 letters"),
    (["run", "--run=r", "--store=s4://b/x", "true"], 125, "'s4://b/x' is not understood",
     "file:///folder"),
    (["run", "--run=r", "--store=/tmp/x", "true"], 125, "'/tmp/x' is not understood",
     "Write it as file:///tmp/x."),
    (["run", "--checkpoint-dir=afile", "true"], 125, "'afile' is not a folder", "saves into"),
    (["drill", "--checkpoint-dir=afile", "true"], 125, "'afile' is not a folder", "saves into"),
    (["run", "--state-dir=afile", "true"], 125, "afile' is not a folder", "Name a folder"),
    (["run", "--store=file:///x", "true"], 125, "needs a run's name", "Add --run NAME"),
    (["status", "../x"], 1, "may not start with '.'", "1 to 64 letters"),
    (["status", LONG], 1, "is too long", "1 to 64 letters"),
    (["ckpt", "ls", "../x", "--store=file:///none"], 1, "may not start with '.'", "letters"),
    (["logs", ".."], 1, "may not start with '.'", "1 to 64 letters"),
    (["logs", "a\nb"], 1, "may not have '\\n'", "1 to 64 letters"),
    (["status", "nosuch"], 1, "no run 'nosuch' is registered", "No run was started"),
]


@pytest.mark.parametrize("args,status,message,remedy", WRONG,
                         ids=[" ".join(w[0])[:40] or "nothing" for w in WRONG])
def test_wrong_use(hf, args, status, message, remedy):
    (hf.work / "afile").touch()
    child = hf.start(*args)
    assert child.wait() == status, child.err
    assert message in child.err and remedy in child.err, child.err
    assert child.out == ""
    assert all(ord(c) >= 32 or c == "\n" for c in child.err)
    assert not list(hf.state.glob("runs/*")), "something was registered"


@pytest.mark.parametrize("place,why", [("/dev/null/x", "is not a folder"),
                                       ("/proc/holdfast", "No such file or directory")])
def test_a_store_that_cannot_be_written(hf, place, why):
    """Named with the reason and the remedy, and the command is not started."""
    mark = hf.tmp / "started"
    child = hf.run(f"--store=file://{place}", command=["touch", mark])
    assert child.status == 125
    assert place in child.err and why in child.err, child.err
    assert "Point --store" in child.err
    assert not mark.exists()


def test_a_read_only_store(hf, root):
    """EROFS: a folder that is there and takes no file."""
    store = hf.tmp / "store"
    store.mkdir()
    mark = hf.tmp / "started"
    script = ('mount -t tmpfs none "$1" && mount -o remount,ro "$1" && shift && '
              'exec "$@"')
    child = hf.start("run", "--run=r", f"--store=file://{store}", "--provider=none", "touch", mark,
                     before=["unshare", "-m", *shell(script, store)])
    status = child.wait()
    if "unshare" in child.err or "mount:" in child.err:
        pytest.skip(f"no mount namespace here: {child.err.strip()}")
    assert status == 125
    assert "Read-only file system" in child.err and "Point --store" in child.err
    assert not mark.exists()


SETTINGS = [
    ("holdfast.yaml", "every：10m\n".encode(), "holdfast.yaml:1:6: a full-width colon"),
    ("holdfast.yaml", b"keep: 3\n\tevery: 5m\n", "holdfast.yaml:2:1: a tab in the indentation"),
    ("holdfast.yaml", "run: 实验\n".encode("gbk"), "holdfast.yaml:1:7: byte 0xd1 is not UTF-8"),
    ("holdfast.yaml", "keep: 3\n".encode("utf-16"), "holdfast.yaml:1:1: the file is UTF-16"),
    ("holdfast.yaml", b"keep: 3\nkeep: 4\n", "holdfast.yaml:2:1: 'keep' is set twice"),
    ("holdfast.yaml", b"evry: 5m\n", "Did you mean 'every'?"),
    ("holdfast.yaml", b"quiet: no\n", "holdfast.yaml:1:8: quiet: 'no' is neither true nor false"),
    ("c.json", b'{"keep": 3,}', "c.json:1:12: not JSON"),
]


@pytest.mark.parametrize("name,content,message", SETTINGS, ids=range(len(SETTINGS)))
def test_wrong_settings_file(hf, name, content, message):
    (hf.work / name).write_bytes(content)
    options = [] if name == "holdfast.yaml" else [f"--config={name}"]
    child = hf.start("run", *options, "true")
    assert child.wait() == 125
    assert message in child.err, child.err
    assert child.err.startswith("holdfast: error: ") and child.err.count("\n") == 2


def test_a_settings_file_from_windows(hf):
    """A byte order mark and CR LF are fine, and values mean what was written."""
    (hf.work / "holdfast.yaml").write_bytes(
        b"\xef\xbb\xbfrun: no\r\nprovider: none\r\nkeep: 0\r\n")
    child = hf.call("run", "true")
    assert "run 'no'" in child.err
    assert hf.status("no")["state"] == "ended"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "zh_CN.UTF-8", "de_DE.UTF-8"])
def test_no_locale_changes_a_number(hf, locale):
    hf.env["LC_ALL"] = locale
    hf.env["LANG"] = locale
    command = trainer("loop.py", "--steps", 3)
    hf.call("run", "--run=r", "--provider=none", "--poll=1500ms", "--", *command)
    run = hf.status()
    assert run["exit_status"] == 0 and isinstance(run["since_age_s"], int)
    for line in (hf.dir() / "events.jsonl").read_text().splitlines():
        json.loads(line)


def test_output_that_nobody_takes(hf):
    """A full stdout is said, and is a failure."""
    with open("/dev/full", "wb") as full:
        child = hf.start("status", stdout=full)
        assert child.wait() == 1
    assert "cannot write to stdout" in child.err


def test_pid_1_without_an_init(hf, root):
    """Holdfast as PID 1 of a container: SIGTERM is a notice, and it exits with 75 once the save is
    durable; the next container goes on from there."""
    options = ["--run=r", "--provider=none", f"--store=file://{hf.tmp}/store", "--store-survives",
               "--grace=20s", "--"]
    alone = ["unshare", "-pf", "--kill-child", "--mount-proc"]
    child = hf.start("run", *options, *trainer("loop.py", "--steps", 100000, "--step-ms", 5),
                     before=alone)
    until(lambda: hf.step() >= 3 or child.proc.poll() is not None, "three steps")
    if child.proc.poll() is not None and "unshare" in child.err:
        pytest.skip(f"no pid namespace here: {child.err.strip()}")
    inside = until(lambda: _children(child.pid), "the supervisor")[0]
    os.kill(int(inside), signal.SIGTERM)
    assert child.wait() == 75, child.err
    verdict = hf.events("verdict")[-1]
    assert verdict["kind"] == "durable" and verdict["reason"] == "notice"
    assert hf.status()["outcome"] == "preempted"
    again = hf.start("run", "--resume", *options,
                     *trainer("loop.py", "--steps", verdict["step"] + 3), before=alone)
    assert again.wait() == 0, again.err
    assert f"from the checkpoint of step {verdict['step']}" in again.err


def _children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return f.read().split()
    except FileNotFoundError:
        return []
