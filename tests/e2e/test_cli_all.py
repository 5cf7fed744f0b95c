# SPDX-License-Identifier: Apache-2.0
"""Every command in every situation that is not its own: wrong words, wrong names, an output that
nobody takes, no home, a state folder that is none. The exit status is the documented one, the
message is on stderr, stdout has the answer or nothing, and nothing is left on the disk."""
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import support
from support import BIN, shell, trainer
from terminal import Terminal

COMMANDS = ["run", "drill", "status", "ckpt", "logs", "doctor"]
USAGE = {"run": 125, "drill": 125, "status": 64, "ckpt": 64, "logs": 64,
         "doctor": 64}
# Every way to ask about a run, by its name.
ASKS = [["status", "{}"], ["logs", "{}"], ["logs", "-f", "{}"], ["logs", "--own", "{}"],
        ["ckpt", "ls", "{}"], ["ckpt", "show", "{}", "1-1"], ["ckpt", "verify", "{}"],
        ["ckpt", "verify", "{}", "1-1"], ["ckpt", "rm", "{}", "1-1"], ["ckpt", "pin", "{}", "1-1"],
        ["ckpt", "unpin", "{}", "1-1"], ["ckpt", "gc", "{}"], ["ckpt", "gc", "{}", "--dry-run"],
        ["status", "--run={}"], ["logs", "--run={}"], ["ckpt", "ls", "--run={}"]]


def asks(name):
    return [[word.replace("{}", name) for word in ask] for ask in ASKS]


class Quick:
    """`holdfast` for a question: no Child, no files."""

    def __init__(self, folder, **env):
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOME": str(folder / "home"),
                    "HOLDFAST_STATE_DIR": str(folder / "state"), **env}
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)

    def __call__(self, *args, before=(), env=None, **options):
        done = subprocess.run([*before, BIN, *args], cwd=self.work, env={**self.env, **(env or {})},
                              stdin=subprocess.DEVNULL, check=False, timeout=30,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})
        if done.stderr is not None:
            done.err = done.stderr.decode()
            assert all(ord(c) >= 32 or c == "\n" for c in done.err), (args, done.err)
        return done

    def refuses(self, *args, status, says="", **options):
        """One error, a hint at most; nothing on stdout."""
        done = self(*args, **options)
        assert done.returncode == status, (args, done)
        assert done.stdout == b"" and says in done.err, (args, says, done.err)
        assert done.err.startswith("holdfast: error: ") and done.err.count("\n") <= 2, done.err
        assert "error" not in done.err[17:], done.err
        return done.err


def files(folder):
    return sorted(str(p) for p in folder.rglob("*"))


@pytest.fixture
def ask(tmp_path):
    """Nothing may be left behind by what is asked."""
    quick = Quick(tmp_path)
    before = files(tmp_path)
    yield quick
    assert files(tmp_path) == before


@pytest.fixture(scope="module")
def saved():
    """A Holdfast with a finished run `r` of some checkpoints; what changes it is done on a copy."""
    tmp = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    holdfast = support.Holdfast(tmp)
    child = holdfast.run("--every=60ms", "--keep=0",
                         command=trainer("loop.py", "--steps", 60, "--step-ms", 10))
    assert child.status == 0, child.err
    assert len(holdfast.ckpt()) >= 3
    quick = Quick(tmp)
    quick.ids = [f"{row['attempt']}-{row['number']}" for row in holdfast.ckpt()]
    yield quick
    holdfast.clean_up()
    shutil.rmtree(tmp)


# ---- words ----

def flags_of(command):
    text = subprocess.run([BIN, "help", command], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  (?:-\w, )?--([a-z-]+)", text, re.M)


FLAGS = {command: set(flags_of(command)) - {"help"} for command in COMMANDS}
OPERAND = {"run": ["true"], "drill": ["true"], "status": [], "ckpt": ["ls", "r"], "logs": ["r"],
           "doctor": []}


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_that_are_not_its_own(ask, command):
    """Of each other command one that this one lacks; unknown ones, also after operands."""
    status = USAGE[command]
    for other in COMMANDS:
        for flag in sorted(FLAGS[other] - FLAGS[command])[:2]:
            err = ask.refuses(command, f"--{flag}=1", *OPERAND[command], status=status,
                              says=f"flag '--{flag}' is not for '{command}'")
            owners = {c for c in COMMANDS if flag in FLAGS[c]}
            assert owners == set(re.findall(r"'holdfast (\w+)'", err.split("\n")[1])), err
    for flag in ("--qqqqqqqq", "-Z", "-qZ", "--=x", "---", "--qqqqqqqq=x"):
        says = f"unknown flag '{flag.split('=')[0]}'"
        ask.refuses(command, flag, *OPERAND[command], status=status, says=says)
        if command in ("status", "ckpt", "logs"):
            ask.refuses(command, *OPERAND[command], flag, status=status, says=says)
    for flag in sorted(f for f in FLAGS[command] if f"no-{f}" not in FLAGS[command]):
        done = ask(command, f"--no-{flag}=true", *OPERAND[command])
        assert done.returncode == status and "no-" in done.err, done


def distance(a, b):
    """Insertions, deletions, replacements and swaps of neighbours."""
    d = {}
    for i, j in itertools.product(range(len(a) + 1), range(len(b) + 1)):
        if i == 0 or j == 0:
            d[i, j] = i + j
            continue
        d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
        if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
            d[i, j] = min(d[i, j], d[i - 2, j - 2] + 1)
    return d[len(a), len(b)]


def spoilt(word):
    for i in range(len(word)):
        yield word[:i] + word[i + 1:]
        yield word[:i] + "q" + word[i:]
        yield word[:i] + word[i:i + 2][::-1] + word[i + 2:]
        yield word[:i] + word[i].upper() + word[i + 1:]
        yield word[:i] + word[i + 2:]
        yield word[:i] + "xz" + word[i + 1:]


def test_misspelt_commands(ask):
    """The nearest one, or none: with words after it, which might be a program's, as well."""
    known = [*COMMANDS, "help"]
    words = sorted({s for word in known for s in spoilt(word)} - set(known) - {""})
    assert len(words) > 130
    said = 0
    for word in words:
        err = ask.refuses(word, status=64, says=f"unknown command '{word}'")
        best = min(distance(word, k) for k in known)
        meant = re.search(r"mean 'holdfast (\w+)'", err)
        if meant:
            said += 1
            assert distance(word, meant[1]) == best and best <= max(1, len(word) // 3), err
        else:
            assert best > max(1, len(word) // 3), err
    assert said > 50
    for word in ("train.py", "./run", "RUN", "run.py"):
        ask.refuses(word, "x", status=64, says=f"'holdfast run -- {word}' wraps a program")


OPERANDS = [
    (["run"], 125, "no command to run"), (["drill"], 125, "no command to rehearse"),
    (["run", "--"], 125, "no command to run"), (["drill", "--times=2", "--"], 125, "no command"),
    (["logs"], 64, "logs takes one run"), (["logs", "a", "b"], 64, "logs takes one run"),
    (["status", "a", "b"], 64, "'b' is one too many"),
    *[(["ckpt", *words], 64, "use: holdfast ckpt") for words in (
        [], ["ls"], ["show"], ["show", "r"], ["verify"], ["ls", "r", "1-1"],
        ["show", "r", "1-1", "1-2"], ["verify", "r", "1-1", "1-2"], ["rm"], ["rm", "r"],
        ["pin", "r"], ["unpin"], ["gc"], ["gc", "r", "1-1"], ["inspect"], ["inspect", "a", "b"],
        )],
    (["ckpt", "LS", "r"], 64, "ckpt has no 'LS'"), (["ckpt", "", "r"], 64, "ckpt has no ''"),
    (["ckpt", "lss", "r"], 64, "Did you mean 'holdfast ckpt ls'?"),
    (["ckpt", "inpsect", "."], 64, "Did you mean 'holdfast ckpt inspect'?"),
    (["ckpt", "unpni", "r"], 64, "Did you mean 'holdfast ckpt unpin'?"),
    (["ckpt", "list", "r"], 64, "'holdfast ckpt --help' lists what it has"),
    *[(["ckpt", verb, "r", name], 64, "a checkpoint is named ATTEMPT-NUMBER")
      for verb in ("show", "verify", "rm", "pin", "unpin")
      for name in ("1", "1-", "-1", "1-1-1", "0-1", "1-0", "a-1", "1-1x", "1_1", " 1-1", "",
                   "99999999999-1", "１-1") if not name.startswith("-")],
    (["ckpt", "ls", "r", "--dry-run"], 64, "--dry-run belongs to 'ckpt gc'"),
    (["ckpt", "verify", "r", "--even-last"], 64, "--even-last belongs to 'ckpt rm'"),
    (["ckpt", "gc", "r", "--ranks=2"], 64, "--ranks belongs to 'ckpt inspect'"),
    (["ckpt", "inspect", ".", "--dry-run"], 64, "--dry-run belongs to"),
    (["help", "run", "x"], 64, "'x' is one word too many"),
    (["help", "man", "run", "x"], 64, "'x' is one word too many"),
    (["help", "completion", "bash", "x"], 64, "'x' is one word too many"),
    (["--version", "x"], 64, "'x' is one word too many"),
    (["--help", "run", "x"], 64, "'x' is one word too many"),
    # "--" ends the flags, and is an operand no more
    (["status", "--", "--json"], 1, "run name '--json' may not start with '-'"),
    (["logs", "--", "-f"], 1, "run name '-f' may not start with '-'"),
    (["status", "--", "--"], 1, "run name '--' may not"),
    (["ckpt", "--", "ls", "--json"], 1, "run name '--json' may not"),
    (["ckpt", "ls", "--", "--json"], 1, "run name '--json' may not"),
    (["--", "run"], 64, "unknown flag '--'"),
]


def test_operands(ask):
    for args, status, says in OPERANDS:
        ask.refuses(*args, status=status, says=says)


def test_what_is_handed_on_is_the_commands_own(hf):
    """After the first word of the command, or after "--", nothing is Holdfast's."""
    show = hf.tmp / "show"
    show.write_text('#!/bin/sh\nfor w; do printf "[%s]" "$w"; done\n')
    show.chmod(0o755)
    (hf.tmp / "--help").symlink_to(show)
    hf.env["PATH"] = f"{hf.tmp}:{hf.env['PATH']}"
    for words in ([show, "--", "--json", "-h"], ["--", show, "--", "-q"], [show, "--run=x", ""],
                  ["--", show, "--help", "a b", "c\nd", "é"], ["--", "--help", "--", "--"]):
        child = hf.call("run", "--run=r", "--fresh", "--provider=none", *words)
        own = words[2:] if words[0] == "--" else words[1:]
        assert child.out == "".join(f"[{w}]" for w in own)


# ---- help ----

def test_help_is_the_same_however_it_is_asked(ask):
    for command in COMMANDS:
        text = ask("help", command)
        assert text.returncode == 0 and text.err == ""
        for args in (["-h"], ["--help"], ["-h", "--qqqqqq"], ["-q", "--help", "x", "y"]):
            done = ask(command, *args)
            assert (done.returncode, done.stdout, done.err) == (0, text.stdout, ""), args
        for env in ({"COLUMNS": "20"}, {"COLUMNS": "80"}, {"LC_ALL": "C"},
                    {"LC_ALL": "zh_CN.UTF-8"}, {"TERM": "dumb"}, {"HOME": ""},
                    {"HOLDFAST_EVERY": "nonsense"}):
            assert ask(command, "--help", env=env).stdout == text.stdout, env
        assert max(map(len, text.stdout.decode().split("\n"))) <= 100
    assert ask("-h").stdout == ask("--help").stdout == ask("help").stdout
    assert ask().returncode == 64 and ask().err == ask("help").stdout.decode()


def test_at_a_terminal_it_says_the_same(saved):
    """No colour, no pager, no width of its own, whatever the terminal's."""
    for args in (["help", "run"], ["status", "r"], ["ckpt", "ls", "r"],
                 ["ckpt", "ls", "r", "--json"]):
        plain = saved(*args).stdout.decode()
        terminal = Terminal([BIN, *args], saved.env, saved.work, columns=20)
        os.waitpid(terminal.pid, 0)
        support.until(lambda t=terminal, p=plain: t.text.count("\n") >= p.count("\n"), "all of it")
        ages = r"\d+(\.\d+)? ?(s|m|h)\b[^,\n]* ago|_age_s\": ?\d+"
        assert (re.sub(ages, "", terminal.text.replace("\r\n", "\n")) == re.sub(ages, "", plain))
        assert "\x1b" not in terminal.text


# ---- where the answer goes ----

ANSWERS = [["help"], ["help", "man"], ["help", "completion", "bash"], ["--version"], ["status"],
           ["status", "r"], ["status", "--json"], ["ckpt", "ls", "r"], ["ckpt", "show", "r", "1-1"],
           ["ckpt", "verify", "r"], ["ckpt", "gc", "r", "--dry-run"], ["ckpt", "inspect", "."],
           ["ckpt", "inspect", ".", "--json"]]


def test_a_full_stdout(saved):
    """Said, and a failure; also where the command itself had nothing to complain of."""
    for args in ANSWERS:
        with open("/dev/full", "wb") as full:
            done = saved(*args, stdout=full)
        assert done.returncode == 1, (args, done)
        assert done.err == "holdfast: error: cannot write to stdout\n", (args, done.err)


def test_a_reader_that_has_gone(saved):
    """Ended by SIGPIPE like any program of the shell, without a word."""
    for args in [*ANSWERS, ["logs", "r"]]:
        reader, writer = os.pipe()
        os.close(reader)
        done = saved(*args, stdout=writer, restore_signals=True)
        os.close(writer)
        assert done.returncode == -13 and done.err == "", (args, done)


def test_streams_that_are_closed(saved):
    """Nothing that is opened later takes their place: no file gets what was meant for them."""
    before = {p: p.read_bytes() for p in saved.folder.rglob("*") if p.is_file()}
    for args in [*ANSWERS, ["logs", "r"], ["status", "nosuch"]]:
        for closed in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
            done = subprocess.run(shell(f'"$@" {closed}', BIN, *args), cwd=saved.work,
                                  env=saved.env, capture_output=True, check=False, timeout=30)
            status = {"inspect": 1, "nosuch": 1}.get(args[1] if len(args) > 1 else "", 0)
            assert done.returncode == status, (args, closed, done)
            assert closed in ("2>&-", "<&-") or done.stdout == b"", (args, closed, done)
    assert {p: p.read_bytes() for p in saved.folder.rglob("*") if p.is_file()} == before


# ---- names ----

BAD = ["/", "..", ".", "a/b", "../../etc", "a\nb", "", "x" * 300, "x" * 65, "实验", "🚀", "a b", " a",
       "-", "a\x1b[31m", "a\u202eb", "a\u009b31m", "a:b", "~", "a*", "%s%n", "a\\", "'", "\u3000"]


@pytest.mark.parametrize("name", BAD, ids=[ascii(b)[1:-1][:12] for b in BAD])
def test_names_that_no_run_can_have(ask, name):
    shown = 1 if len(name) > 48 else name.encode("unicode_escape").decode()
    for args in asks(name):
        flag = any(word.startswith("--run=") for word in args)
        if args[-1] == "" or "--run=" in args:
            assert ask(*args).returncode in (1, 64)
            continue
        err = ask.refuses(*args, status=64 if flag else 1, says="run name '" if name else "empty")
        assert "1 to 64 letters" in err
        assert shown == 1 or name.isprintable() or "\\" in err or name == "\u3000", err
    ask.refuses("run", f"--run={name}", "true", status=125, says="--run: ")
    ask.refuses("run", "true", status=125, says="HOLDFAST_RUN_NAME: ",
                env={"HOLDFAST_RUN_NAME": name}) if name else None


def test_bytes_that_are_no_text(ask):
    """In a name, a flag, a command, a variable and a folder: spelt out, never sent on."""
    raw = b"a\xff\xfe\x80"
    for args in (["status", raw], [b"--" + raw], [raw], ["status", b"--" + raw], ["help", raw],
                 ["run", b"--every=" + raw, "true"], ["ckpt", raw], ["ckpt", "inspect", raw],
                 ["status", b"--config=" + raw], ["logs", "r", b"--since=" + raw],
                 ["run", b"--store=" + raw, "true"], ["ckpt", "ls", "r", b"--store=file://" + raw]):
        done = ask(*args)
        assert done.returncode in (1, 64, 125) and "a\\xff\\xfe\\x80" in done.err, (args, done.err)


def test_a_run_that_is_not_known(saved):
    before = files(saved.folder)
    for args in asks("nosuch"):
        err = saved.refuses(*args, status=1, says="no run 'nosuch' is registered here")
        assert "r" in err.split("\n")[1], err
        saved.refuses(*args, f"--store=file://{saved.folder}/none", status=1)
        saved.refuses(*args, "--store=s4://x", status=1)
    assert files(saved.folder) == before


# ---- homes and state folders ----

def test_no_home(ask):
    del ask.env["HOLDFAST_STATE_DIR"]
    for env in ({"HOME": ""}, {"HOME": "relative"}, {"HOME": "", "XDG_STATE_HOME": "relative"}):
        for command in COMMANDS:
            err = ask.refuses(command, *OPERAND[command], status=USAGE[command], env=env,
                              says="no place for Holdfast's state")
            assert "--state-dir PATH" in err
    done = ask("status", env={"XDG_STATE_HOME": str(ask.folder / "xdg")})
    assert done.returncode == 0 and done.stdout == b"no runs are registered here\n"


def test_a_state_folder_that_is_a_file(ask):
    for place in ("/dev/null", "/dev/null/x", "/etc/passwd", "/proc/self/none", "/" + "x" * 300):
        for args in [["status"], *asks("r")]:
            done = ask(*args, env={"HOLDFAST_STATE_DIR": place})
            assert done.returncode in (0, 1) and (done.returncode == 1 or args == ["status"]), done
            assert done.err.count("\n") <= 2
        for command in ("run", "drill"):
            done = ask(command, "touch", "mark", env={"HOLDFAST_STATE_DIR": place})
            assert done.returncode in (125, 1) and place[:9] in done.err, done


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


@pytest.mark.parametrize("mode", [0o000, 0o555], ids=["unreadable", "unwritable"])
def test_a_state_folder_without_permission(saved, root, mode):
    """A question is refused or answered, and a run is not started."""
    saved.folder.chmod(0o755)
    saved.work.chmod(0o755)
    state = saved.folder / "state"
    old = state.stat().st_mode & 0o777
    state.chmod(mode)
    try:
        if b"setpriv" in saved("--version", before=NOBODY).stderr:
            pytest.skip("no other user here")
        for args in [["status"], *asks("r")]:
            done = saved(*args, before=NOBODY)
            if mode == 0:
                assert done.returncode == 1 and "Permission denied" in done.err, (args, done)
                assert done.stdout == b""
            assert done.returncode in (0, 1) and done.err.count("error") <= 1, (args, done)
        mark = saved.folder / "mark"
        for command in ("run", "drill"):
            done = saved(command, "touch", mark, before=NOBODY)
            assert done.returncode in (125, 1) and "Permission denied" in done.err, done
        assert not mark.exists()
    finally:
        state.chmod(old)


def test_a_home_that_cannot_be_written(ask, root):
    del ask.env["HOLDFAST_STATE_DIR"]
    for path in (ask.folder, *ask.folder.parents[:-2]):
        path.chmod(path.stat().st_mode | 0o055)
    mark = ask.folder / "mark"
    for home in ("/", "/proc", "/nonexistent"):
        assert ask("status", before=NOBODY, env={"HOME": home}).returncode == 0
        done = ask("run", "--provider=none", "touch", mark, before=NOBODY, env={"HOME": home})
        assert done.returncode == 125 and f"{home}".rstrip("/") in done.err, done
        assert done.err.startswith("holdfast: error: "), done.err
    assert not mark.exists()


# ---- locales, JSON ----

def test_no_locale_changes_a_word(saved):
    for args in ([], ["rnu"], ["status", "实验"], ["status", "nosuch"], ["ckpt", "ls", "r"],
                 ["ckpt", "show", "r", "1-1"], ["run", "--every=x", "true"], ["help", "run"],
                 ["ckpt", "inspect", "nosuch"], ["logs", "r", "--since=gestern"]):
        told = {(done.returncode, done.stdout, done.stderr) for done in (
            saved(*args, env=env) for env in (
                {"LC_ALL": "C"}, {"LC_ALL": "zh_CN.UTF-8"}, {"LC_ALL": "C.UTF-8"},
                {"LANG": "tr_TR"}, {"LC_MESSAGES": "de_DE.UTF-8", "LANGUAGE": "de"}))}
        assert len(told) == 1, (args, told)


def strict(text):
    """JSON without repeated keys, NaN or control characters."""
    def pairs(found):
        assert len(dict(found)) == len(found), found
        return dict(found)

    def constant(word):
        raise AssertionError(word)
    return json.loads(text, object_pairs_hook=pairs, parse_constant=constant)


def test_json_of_every_command(saved):
    """One object with its format, one line end; the same facts as the plain text; never on the same
    page as a message. What changes the run is asked of a copy."""
    copy = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    shutil.copytree(saved.folder / "state", copy / "state")
    for path in copy.rglob("run.json"):
        path.write_text(path.read_text().replace(str(saved.folder), str(copy)))
    there = Quick(copy)
    (there.work / "step-5.pt").write_bytes(b"x")
    first, second, last = saved.ids[0], saved.ids[1], saved.ids[-1]
    fields = {
        ("status",): {"runs"}, ("status", "r"): {"runs"},
        ("ckpt", "ls", "r"): {"run", "checkpoints"},
        ("ckpt", "show", "r", first): {"run", "checkpoints"},
        ("ckpt", "verify", "r"): {"run", "checkpoints"},
        ("ckpt", "verify", "r", last): {"run", "checkpoints"},
        ("ckpt", "pin", "r", first, second): {"run", "checkpoints"},
        ("ckpt", "unpin", "r", first): {"run", "checkpoints"},
        ("ckpt", "gc", "r", "--dry-run"): {"run", "dry_run", "blocks", "bytes", "removed"},
        ("ckpt", "rm", "r", first): {"run", "dry_run", "blocks", "bytes", "removed"},
        ("ckpt", "gc", "r"): {"run", "dry_run", "blocks", "bytes", "removed"},
        ("ckpt", "inspect", "."): {"folder", "things"},
    }
    answers = {}
    for args, keys in fields.items():
        done = there(*args, "--json")
        assert done.returncode == (1 if "inspect" in args else 0), (args, done)
        assert done.err == "" and done.stdout.count(b"\n") == 1 and done.stdout.endswith(b"}\n")
        answer = answers[args] = strict(done.stdout)
        assert answer["format"] == 1 and set(answer) == keys | {"format"}, (args, answer)
        assert answer.get("run", "r") == "r"
    listed = answers["ckpt", "ls", "r"]["checkpoints"]
    assert [f"{c['attempt']}-{c['number']}" for c in listed] == saved.ids
    plain = saved("ckpt", "ls", "r").stdout.decode().splitlines()[1:]
    assert [line.split()[0] for line in plain] == saved.ids
    assert [int(line.split()[1]) for line in plain] == [c["step"] for c in listed]
    assert [int(line.split()[2]) for line in plain] == [c["bytes"] for c in listed]
    assert [c["pinned"] for c in answers["ckpt", "pin", "r", first, second]["checkpoints"]] == [
        True, True]
    assert answers["ckpt", "unpin", "r", first]["checkpoints"] == [
        {"attempt": listed[0]["attempt"], "number": listed[0]["number"], "pinned": False}]
    assert [r["number"] for r in answers["ckpt", "rm", "r", first]["removed"]] == [
        listed[0]["number"]]
    after = strict(there("ckpt", "ls", "r", "--json").stdout)["checkpoints"]
    assert [c["retired"] for c in after] == [c is after[0] for c in after]
    assert [c["pinned"] for c in after] == [c is after[1] for c in after]
    assert all(c["whole"] for c in answers["ckpt", "verify", "r"]["checkpoints"])
    things = answers["ckpt", "inspect", "."]
    assert things["folder"] == str(there.work) and [t["path"] for t in things["things"]] == [
        str(there.work / "step-5.pt")]
    for args in (["status", "nosuch"], ["ckpt", "ls", "nosuch"], ["ckpt", "show", "r", "7-7"],
                 ["ckpt", "inspect", "nosuch"], ["ckpt", "rm", "r", second],
                 ["ckpt", "pin", "r", first]):
        there.refuses(*args, "--json", status=1)
    there.refuses("logs", "r", "--json", status=64, says="flag '--json' is not for 'logs'")
    shutil.rmtree(copy)
