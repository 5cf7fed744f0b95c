# SPDX-License-Identifier: Apache-2.0
"""Manual pages and shell completion: made from the program's tables, so they are compared with
--help; read by man(1) without a warning; and completed by a real bash."""
import os
import pty
import re
import select
import shutil
import subprocess

import pytest

from support import BIN, TOP, until

COMMANDS = re.findall(r"^  (\w+) ", subprocess.run([BIN, "help"], capture_output=True, text=True,
                                                   check=True).stdout, re.M)


def out_of(*args):
    return subprocess.run([BIN, *args], capture_output=True, text=True, check=True).stdout


def flags_of(command):
    return set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", out_of("help", command), re.M))


def need(program):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("man")
    (folder / "holdfast.1").write_text(out_of("help", "man"))
    for command in COMMANDS:
        (folder / f"holdfast-{command}.1").write_text(out_of("help", "man", command))
    return folder


def test_there_are_commands():
    assert {"run", "drill", "status", "ckpt", "logs", "doctor"} <= set(COMMANDS)


def test_no_warning(pages):
    need("groff")
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANROFFOPT": "-ww", "MANWIDTH": "80"}
    for page in sorted(pages.iterdir()):
        for args in (["groff", "-man", "-ww", "-Tutf8", "-z", page],
                     ["man", "--warnings", "-l", page]):
            need(args[0])
            done = subprocess.run(args, capture_output=True, text=True, env=env)
            assert done.returncode == 0 and done.stderr == "", (page, done.stderr)


def read(page):
    """The page as a reader sees it, one line."""
    need("man")
    env = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "200"}
    text = subprocess.run(["man", "-l", page], capture_output=True, text=True, env=env,
                          check=True).stdout
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_there(pages, command):
    text = read(pages / f"holdfast-{command}.1")
    for flag in flags_of(command):
        assert re.search(rf"--{flag}\b", text), flag
    for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "FILES", "SEE ALSO"):
        assert f" {title} " in text, title
    for other in COMMANDS:
        assert other == command or f"holdfast-{other}(1)" in text
    variables = set(re.findall(r"Environment: (\w+)\.", text))
    assert "HOLDFAST_STATE_DIR" in variables


def test_what_is_said_of_an_option(pages):
    text = read(pages / "holdfast-run.1")
    assert ("--grace DURATION Time between SIGTERM to Holdfast and the end. From 0s to 1d. "
            "Default: 25s. Environment: HOLDFAST_GRACE. In a settings file: grace.") in text
    assert ("--provider NAME Whose notices to watch: auto, aws or none. One of: auto aws none."
            in text)
    assert "75 The machine is being taken" in text
    assert "-q, --quiet, --no-quiet" in text
    assert "--config FILE" in text and "In a settings file: config" not in text


@pytest.mark.parametrize("args", [["help", "man", "rnu"], ["help", "completion", "csh"],
                                  ["help", "completion"]])
def test_wrong_use(hf, args):
    child = hf.start(*args)
    assert child.wait() == 64
    assert child.out == "" and child.err.startswith("holdfast: error:")


def test_install(hf):
    """`make install` puts pages and completions where man and the shells look."""
    if BIN != TOP / "build" / "holdfast":
        pytest.skip("another binary is tested")
    subprocess.run(["make", "-s", "-C", TOP, "DEV=1", "install", f"DESTDIR={hf.tmp}/d",
                    "PREFIX=/usr"], check=True, capture_output=True)
    share = hf.tmp / "d" / "usr" / "share"
    assert ({p.name for p in (share / "man" / "man1").iterdir()}
            == {"holdfast.1", *(f"holdfast-{c}.1" for c in COMMANDS)})
    for place, shell in (("bash-completion/completions/holdfast", "bash"),
                         ("zsh/site-functions/_holdfast", "zsh"),
                         ("fish/vendor_completions.d/holdfast.fish", "fish")):
        assert (share / place).read_text() == out_of("help", "completion", shell)
    assert "holdfast" in read(share / "man" / "man1" / "holdfast.1")


# The line up to the cursor, in words as bash splits them, and what must be offered, and not.
LINES = [
    (["holdfast", ""], {"run", "drill", "status", "help", "--version"}, {"--every"}),
    (["holdfast", "sta"], {"status"}, {"run"}),
    (["holdfast", "run", "--e"], {"--every"}, {"--json", "--grace"}),
    (["holdfast", "status", "--"], {"--json", "--store", "--help"}, {"--every"}),
    (["holdfast", "run", "--provider", ""], {"auto", "aws", "none"}, {"--every"}),
    (["holdfast", "run", "--provider", "=", "a"], {"auto", "aws"}, {"none"}),
    (["holdfast", "run", "--provider", "="], {"auto", "aws", "none"}, set()),
    (["holdfast", "run", "--every", ""], set(), {"--grace", "afile"}),
    (["holdfast", "run", "--done-file", "af"], {"afile", "afolder"}, {"bin"}),
    (["holdfast", "run", "--checkpoint-dir", "a"], {"afolder"}, {"afile"}),
    (["holdfast", "run", "--every", "5m", "--qu"], {"--quiet"}, set()),
    (["holdfast", "run", "--every", "=", "5m", "--qu"], {"--quiet"}, set()),
    (["holdfast", "run", "--", "env", "af"], {"afile"}, {"--every"}),
    (["holdfast", "run", "env", "--"], set(), {"--every"}),
    (["holdfast", "run", "--", "printen"], {"printenv"}, set()),
    (["holdfast", "status", ""], {"r1", "r2"}, {"afile"}),
    (["holdfast", "logs", "--attempt", "2", "r"], {"r1", "r2"}, set()),
    (["holdfast", "ckpt", ""], {"ls", "show", "verify", "inspect"}, {"r1", "RUN", "FOLDER"}),
    (["holdfast", "ckpt", "inspect", ""], {"afolder"}, {"afile", "r1"}),
    (["holdfast", "ckpt", "ls", ""], {"r1", "r2"}, {"ls"}),
    (["holdfast", "run", "--run", "r"], {"r1", "r2"}, set()),
    (["holdfast", "help", "c"], {"ckpt", "completion"}, {"run"}),
    (["holdfast", "help", "completion", ""], {"bash", "zsh", "fish"}, {"run"}),
    (["holdfast", "help", "man", "d"], {"drill"}, {"bash"}),
]


@pytest.fixture
def bash(hf):
    """A folder with a file and a folder, two runs, `holdfast` in PATH, and the completion."""
    need("bash")
    for name in ("r1", "r2"):
        hf.run(command=["true"], run=name)
    (hf.work / "afile").touch()
    (hf.work / "afolder").mkdir()
    (hf.tmp / "bin").mkdir()
    (hf.tmp / "bin" / "holdfast").symlink_to(BIN)
    hf.env["PATH"] = f"{hf.tmp}/bin:{hf.env['PATH']}"
    (hf.tmp / "completion").write_text(out_of("help", "completion", "bash"))
    return hf


def test_bash_completes(bash):
    hf = bash
    script = ('. "$1"; shift; n=$1; shift\n'
              'COMP_WORDS=("$@") COMP_CWORD=$((n - 1))\n'
              '_holdfast\n'
              'printf "%s\\n" "${COMPREPLY[@]}"')
    for words, wanted, unwanted in LINES:
        done = subprocess.run(["bash", "--norc", "-c", script, "bash", hf.tmp / "completion",
                               str(len(words)), *words], cwd=hf.work, env=hf.env,
                              capture_output=True, text=True, check=True)
        assert done.stderr == "", (words, done.stderr)
        offered = set(done.stdout.split("\n")[:-1])
        assert wanted <= offered, (words, offered)
        assert not unwanted & offered, (words, offered)


def test_every_command_and_flag_is_completed(bash):
    text = (bash.tmp / "completion").read_text()
    for command in COMMANDS:
        flags = re.search(rf"^    {command}\) echo '(--[^']*)' ;;$", text, re.M)[1].split()
        assert set(flags) == {f"--{flag}" for flag in flags_of(command)}


SHELLS = {
    "bash": (["bash", "--norc", "-i"], ". {0}/completion; PS1='go$ '; echo"),
    "zsh": (["zsh", "-f", "-i"], "fpath=({0}/zsh $fpath); autoload -Uz compinit; compinit -u -D; "
                                 "PS1='go$ '; echo"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_at_a_terminal(bash, shell):
    """A person presses Tab."""
    need(shell)
    hf = bash
    (hf.tmp / "zsh").mkdir()
    (hf.tmp / "zsh" / "_holdfast").write_text(out_of("help", "completion", "zsh"))
    command, setup = SHELLS[shell]
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(hf.work)
        os.execvpe(command[0], command, {**hf.env, "TERM": "dumb", "HOME": str(hf.tmp)})
    shown = b""

    def reads(text):
        nonlocal shown
        while select.select([fd], [], [], 0)[0]:
            shown += os.read(fd, 4096)
        return text in shown

    try:
        os.write(fd, setup.format(hf.tmp).encode() + b"\n")
        until(lambda: reads(b"\ngo$ ") or reads(b"\rgo$ "), "a prompt")
        os.write(fd, b"holdfast dr\t")
        until(lambda: reads(b"holdfast drill "), "the command")
        os.write(fd, b"--unt\t")
        until(lambda: reads(b"--until"), "the flag")
        os.write(fd, b" f\t" if shell == "bash" else b"f\t")
        until(lambda: reads(b"finished"), "the word")
    except AssertionError as e:
        raise AssertionError(f"{e}: {shown!r}") from None
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(fd)


@pytest.mark.parametrize("shell,check", [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["-n"])])
def test_shells_accept_it(tmp_path, shell, check):
    need(shell)
    (tmp_path / "c").write_text(out_of("help", "completion", shell))
    done = subprocess.run([shell, *check, tmp_path / "c"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_fish_completes(hf):
    need("fish")
    (hf.tmp / "c.fish").write_text(out_of("help", "completion", "fish"))
    done = subprocess.run(["fish", "--no-config", "-c",
                           f"source {hf.tmp}/c.fish; complete -C 'holdfast run --prov'; "
                           "complete -C 'holdfast run --provider a'; complete -C 'holdfast ck'"],
                          capture_output=True, text=True, env={**hf.env, "HOME": str(hf.tmp)})
    assert "--provider" in done.stdout and "aws" in done.stdout and "ckpt" in done.stdout, done
