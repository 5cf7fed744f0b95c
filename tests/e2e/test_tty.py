# SPDX-License-Identifier: Apache-2.0
"""On a terminal: the command sees one as it would without Holdfast, keys do what they always do,
and the terminal is as before when Holdfast or the keeper is gone, however they went."""
import os
import re
import signal
import termios

import pytest

from support import BIN, PYTHON, alive, trainer, until
from terminal import Terminal

RUN = [BIN, "run", "--run=r", "--provider=none", "--"]
PROMPT = r"prompt\$ "


@pytest.fixture
def terminal(hf):
    opened = []

    def start(args):
        opened.append(Terminal(args, hf.env, hf.work))
        return opened[-1]
    yield start
    for one in opened:
        one.close()


@pytest.fixture
def bash(terminal):
    shell = terminal(["bash", "--norc", "--noprofile", "-i"])
    shell.shows(PROMPT)
    return shell


def words(command):
    return " ".join(f"'{w}'" for w in map(str, command))


def script(hf, name, text):
    path = hf.tmp / name
    path.write_text(text)
    return [PYTHON, path]


def test_the_command_has_a_terminal_of_the_same_size(hf, terminal):
    probe = ("import os, sys\n"
             "size = os.get_terminal_size(1)\n"
             "print('tty', *(os.isatty(n) for n in range(3)), size.lines, size.columns)\n"
             "print('\\x1b[31mred\\x1b[0m')\n")
    shown = terminal([*RUN, *script(hf, "probe.py", probe)])
    assert shown.wait() == 0
    assert "tty True True True 33 77\r\n" in shown.text
    assert "\x1b[31mred\x1b[0m\r\n" in shown.text
    assert "\r\r\n" not in shown.text


def test_a_change_of_its_size_is_passed_on(hf, terminal):
    probe = ("import os, signal, time\n"
             "def changed(*_):\n"
             "    size = os.get_terminal_size(1)\n"
             "    print('now', size.lines, size.columns, flush=True)\n"
             "signal.signal(signal.SIGWINCH, changed)\n"
             "print('ready', flush=True)\n"
             "while True: time.sleep(0.05)\n")
    shown = terminal([*RUN, *script(hf, "probe.py", probe)])
    shown.shows("ready")
    shown.resize(40, 120)
    shown.shows("now 40 120")


def test_what_is_typed_arrives_once(hf, terminal):
    shown = terminal([*RUN, "sh", "-c", 'echo ready; read line; echo "got:$line:"'])
    shown.shows("ready")
    until(shown.is_raw, "raw mode")
    shown.type("abc\r")
    shown.shows("got:abc:")
    assert shown.wait() == 0
    assert shown.text.count("abc") == 2, "one echo, one answer"


COUNT = """
import signal, sys, time
times = 0
def count(sig, frame):
    global times
    times += 1
    print('int %d' % times, flush=True)
signal.signal(signal.SIGINT, count)
print('ready', flush=True)
end = time.monotonic() + 60
while time.monotonic() < end:
    time.sleep(0.02)
"""


def test_one_interrupt_runs_the_handler_once_and_a_second_soon_ends_the_tree(hf, terminal):
    shown = terminal([*RUN, *script(hf, "count.py", COUNT)])
    shown.shows("ready")
    pid = hf.command_pid()
    shown.type("\x03")
    shown.shows("int 1")
    assert alive(pid)
    shown.type("\x03")
    assert shown.wait(10) != 0
    assert "int 3" not in shown.text
    assert not alive(pid)
    assert hf.left() == []
    assert hf.status()["outcome"] == "stopped"


def test_interrupts_far_apart_never_end_the_tree(hf, terminal):
    shown = terminal([*RUN, *script(hf, "count.py", COUNT)])
    shown.shows("ready")
    pid = hf.command_pid()
    for n in (1, 2):
        shown.type("\x03")
        shown.shows(f"int {n}")
        now = os.times().elapsed
        until(lambda: os.times().elapsed > now + 2.2, "two seconds")
    assert alive(pid)
    assert "int 3" not in shown.text


def test_an_interrupt_stops_the_run_and_the_same_command_goes_on(hf, terminal):
    command = trainer("loop.py", "--steps", 60, "--own-every", 5)
    shown = terminal([*RUN, *command])
    until(lambda: hf.ckpt() if hf.events("saved") else None, "a checkpoint")
    shown.type("\x03")
    assert shown.wait() == 128 + signal.SIGINT
    assert "stopped by a person" in shown.text
    assert hf.status()["outcome"] == "stopped"
    assert len(hf.events("claimed")) == 1, "not tried again"
    again = hf.run(command=command)
    assert again.status == 0
    assert hf.events("restored", attempt=hf.events("claimed")[-1]["attempt"])[0]["step"] > 0


STOPPED = r"Stopped[^\r\n]*\r\n.*?" + PROMPT


def test_stop_and_continue_under_a_shell(hf, bash):
    cooked = bash.modes()
    bash.type(words([*RUN, *script(hf, "count.py", COUNT)]) + "\r")
    bash.shows("ready\r\n")
    pid = hf.command_pid()
    until(bash.is_raw, "raw mode")
    bash.type("\x1a")
    bash.shows(STOPPED)
    assert not bash.is_raw()
    bash.type("echo $((40 + 2))\r")
    bash.shows(r"\r42\r\n.*?" + PROMPT)
    until(lambda: open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T",
          "the command is stopped")
    bash.type("fg\r")
    until(bash.is_raw, "raw mode again")
    bash.type("\x03")
    bash.shows("int 1")
    bash.type("\x03")
    bash.shows(PROMPT)
    assert not alive(pid)
    bash.type("stty -a | tr -d '\\n' >modes; echo over\r")
    bash.shows(r"\rover\r\n.*?" + PROMPT)
    modes = (hf.work / "modes").read_text()
    assert re.search(r"[ ;]icanon", modes) and re.search(r"[ ;]echo ", modes)
    assert bash.modes()[:2] == cooked[:2]


def test_in_the_background_the_terminal_is_left_to_the_shell(hf, bash):
    bash.type(words([*RUN, *script(hf, "count.py", COUNT)]) + " &\r")
    bash.shows("ready\r+\n")
    bash.type("echo $((40 + 2))\r")
    bash.shows(r"\r42\r\n")
    bash.type("fg\r")
    until(bash.is_raw, "raw mode")
    bash.type("\x03")
    bash.shows("int 1")


def is_cooked(mode):
    return mode & termios.ICANON and mode & termios.ISIG


@pytest.mark.parametrize("victim", ["supervisor", "keeper"])
def test_after_a_sigkill_the_terminal_is_as_before(hf, bash, victim):
    output = bash.modes()[1]
    bash.type(words([*RUN, *script(hf, "count.py", COUNT)]) + "\r")
    bash.shows("ready\r\n")
    until(bash.is_raw, "raw mode")
    pid = hf.keeper_pid() if victim == "keeper" else hf.supervisor_pid()
    os.kill(pid, signal.SIGKILL)
    bash.shows(PROMPT)
    until(lambda: bash.modes()[1] == output, "output as before")
    until(lambda: not is_cooked(bash.modes()[2]), "a shell that reads its line")
    bash.type("cat\r")
    until(lambda: is_cooked(bash.modes()[2]), "a cooked terminal under cat")
    bash.type("typed\r")
    bash.shows("typed\r\ntyped\r\n")


def test_the_supervisor_that_adopts_has_the_terminal_again(hf, bash):
    command = words([*RUN, *script(hf, "count.py", COUNT)])
    bash.type(command + "\r")
    bash.shows("ready\r\n")
    until(bash.is_raw, "raw mode")
    pid = hf.command_pid()
    os.kill(hf.supervisor_pid(), signal.SIGKILL)
    bash.shows(PROMPT)
    assert alive(pid)
    bash.type(command + "\r")
    bash.shows("attempt 1 goes on")
    until(bash.is_raw, "raw mode again")
    bash.type("\x03")
    bash.shows("int 1")
    assert alive(pid)


def test_only_the_input_is_a_terminal(hf, bash):
    """`holdfast run ... | cat`: keys reach Holdfast as signals and are handed on once."""
    bash.type(words([*RUN, *script(hf, "count.py", COUNT)]) + " 2>err | cat\r")
    bash.shows("ready\r\n")
    pid = hf.command_pid()
    bash.type("\x1a")
    bash.shows(STOPPED)
    until(lambda: open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T",
          "the command is stopped")
    bash.type("fg\r")
    until(lambda: open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "T",
          "the command goes on")
    os.kill(hf.supervisor_pid(), signal.SIGINT)
    bash.shows("int 1")
    assert alive(pid)
