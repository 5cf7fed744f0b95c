# SPDX-License-Identifier: Apache-2.0
"""Every event at every moment of a run. What is checked is the same for all cells, see matrix.py;
only the exit statuses that an event may lead to are listed here.

`make check` takes a Latin square of the cells, so that each event and each moment is met;
HOLDFAST_TEST_LONG takes them all, and the notices once more with a trainer that never moves."""
import os
import signal
import time

import pytest

from imds import Imds
from matrix import END, GRACE, MARGIN, Cell, gate_library
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
SQUARE = [(e, m) for e, m in CELLS if (EVENTS.index(e) + 3 * MOMENTS.index(m)) % 4 == 0]


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


def run_cell(cell, event, moment, stubborn=False):
    getattr(cell, moment)()
    cell.begun = time.monotonic()
    getattr(cell, event)()
    if not stubborn:
        cell.let_go()
    cell.ends(allowed(event, moment))
    cell.let_go()
    cell.goes_on(finished=event == "exit_0" and moment not in LEAVING)


@pytest.mark.parametrize("event, moment", CELLS if LONG else SQUARE)
def test_event_at_moment(hf, library, imds, event, moment):
    """The clouds' notices are simulated."""
    run_cell(Cell(hf, library, imds), event, moment)


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
