# SPDX-License-Identifier: Apache-2.0
"""Every event at every moment of a run. What is checked is the same for all cells, see matrix.py;
only the exit statuses that an event may lead to are listed here.

`make check` takes a Latin square of the cells, so that each event and each moment is met;
HOLDFAST_TEST_LONG takes them all, and the notices once more with a trainer that never moves."""
import signal

import pytest

from imds import Imds
from matrix import Cell, gate_library
from support import LONG, PYTHON, shell

BEFORE = ["preparing", "restoring"]
EARLY = ["started", "joined"]
AT_WORK = ["training", "asked", "shipping"]
LEAVING = ["leaving_asked", "leaving_shipping", "leaving_stopping"]
AFTER = ["draining", "recording", "pausing", "ending"]
MOMENTS = BEFORE + ["adopting"] + EARLY + AT_WORK + LEAVING + AFTER

NOTICES = ["term", "hup", "usr1", "file", "cloud"]
GONE = ["file_gone", "cloud_gone"]
TREE = ["keeper_killed", "trainer_killed", "exit_0", "exit_75"]
STORE = ["unwritable", "full", "silent"]
EVENTS = (NOTICES + GONE + ["usr2", "int", "int_twice", "supervisor_killed", "superseded"] + TREE
          + STORE)


def applies(event, moment):
    """Whether there is such a thing: a trainer, a watched cloud, a notice that is new."""
    if moment in BEFORE + AFTER and event in TREE + ["superseded"]:
        return moment == "draining" and event == "keeper_killed"
    if moment in BEFORE + ["adopting"] and event.startswith("cloud"):
        return False
    return not (moment in LEAVING and event == "file")


def allowed(event, moment):
    """Exit statuses."""
    if event == "superseded":
        return {125}
    if moment == "ending":
        return {0}
    if moment in LEAVING:
        # Let go on; or nobody could tell the trainer to leave, and it came to its end.
        return {0, 75} if event in ("file_gone", "supervisor_killed") else {75}
    if event in NOTICES or event == "exit_75":
        return {75}
    if event in GONE:
        # Withdrawn while the start was being given up, or a command that cannot save yet ended.
        return {75} if moment in BEFORE + EARLY + ["pausing"] else {0}
    if event in ("int", "int_twice"):
        return {7} if moment in AFTER else {130, 137}
    if event in ("unwritable", "full"):
        if moment in ("draining", "recording"):
            return {7}
        return {125} if moment in BEFORE + ["pausing"] else {0}
    if moment in EARLY and event in ("keeper_killed", "trainer_killed"):
        return {125} if event == "keeper_killed" else {137}
    return {0}


CELLS = [(e, m) for m in MOMENTS for e in EVENTS if applies(e, m)]
SQUARE = [(e, m) for e, m in CELLS if (EVENTS.index(e) + MOMENTS.index(m)) % 3 == 0]
# Two events, one upon the other: each pair once, at a moment by its place.
PAIRS = [(a, b, m) for i, a in enumerate(EVENTS) for j, b in enumerate(EVENTS)
         for m in [MOMENTS[(i + 2 * j) % len(MOMENTS)]] if applies(a, m) and applies(b, m)]
AT_A_GATE = ["adopting"] + EARLY + AT_WORK + LEAVING


@pytest.fixture(scope="session")
def library():
    made = gate_library()
    yield made
    made.unlink()


@pytest.fixture
def imds():
    service = Imds()
    yield service
    service.close()


@pytest.mark.parametrize("event, moment", CELLS if LONG else SQUARE)
def test_event_at_moment(hf, library, imds, event, moment):
    """The clouds' notices are simulated."""
    cell = Cell(hf, library, imds)
    getattr(cell, moment)()
    cell.comes(event)
    cell.let_go()
    cell.ends(allowed(event, moment))
    cell.goes_on(finished=event == "exit_0" and moment not in LEAVING)


@pytest.mark.long
@pytest.mark.parametrize("event", NOTICES)
@pytest.mark.parametrize("moment", AT_A_GATE)
def test_notice_and_a_trainer_that_never_moves(hf, library, imds, event, moment):
    if not applies(event, moment):
        event = "term"
    cell = Cell(hf, library, imds)
    getattr(cell, moment)()
    cell.comes(event)
    cell.rules()
    cell.ends({75})
    cell.goes_on(finished=False)


@pytest.mark.long
@pytest.mark.parametrize("first, second, moment", PAIRS)
def test_two_events(hf, library, imds, first, second, moment):
    """Which status follows depends on who is quicker; the rest must hold all the same."""
    cell = Cell(hf, library, imds)
    getattr(cell, moment)()
    cell.comes(first)
    cell.comes(second)
    cell.let_go()
    cell.ends({0, 7, 75, 125, 130, 137, 140})
    cell.goes_on(finished="exit_0" in (first, second))


@pytest.mark.parametrize("stderr", ["read", "left"])
def test_ranks_that_die_before_they_are_answered_end_nobody_else(hf, stderr):
    """Each says hello and is gone: the answers meet sockets, and a stderr, that nobody reads. The
    command still dies of a SIGPIPE of its own, as it would without Holdfast."""
    code = ("import os, socket\n"
            "for i in range(300):\n"
            "    s = socket.socket(socket.AF_UNIX)\n"
            "    s.connect(os.environ['HOLDFAST_SOCKET'])\n"
            "    s.send(b'{\"msg\":\"done\"}\\n' * 20)\n"
            "    s.close()\n")
    more = {"before": ["bash", "-c", 'exec "$@" 2> >(exit 0)', "bash"]} if stderr == "left" else {}
    child = hf.run_start("--debug", command=shell(
        'PYTHONPATH= "$1" -c "$2" && kill -PIPE $$', PYTHON, code), **more)
    assert child.wait() == 128 + signal.SIGPIPE
    assert hf.events("attempt-ended")[0]["signal"] == signal.SIGPIPE
    assert hf.events("attempt-ended")[0]["recorded"]


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signals_without_a_pause_do_not_change_the_exit_status(hf, sig):
    """A scheduler that sends its signal again and again, also while Holdfast is ending."""
    child = hf.run_start("--grace=3s", command=shell(
        "trap 'exit 9' INT; echo ready; while :; do sleep 0.01; done"))
    child.waits_for_output("ready")
    while child.proc.poll() is None:
        child.kill(sig)
    assert child.proc.returncode in ((75,) if sig == signal.SIGTERM else (9, 130, 137))
    assert hf.status()["exit_status"] == child.proc.returncode
    assert hf.left() == []
