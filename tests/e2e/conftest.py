# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

import doctables
import support


def pytest_configure(config):
    config.addinivalue_line("markers", "long: minutes of work; only with HOLDFAST_TEST_LONG=1")
    # A shell's background job is given these as ignored, and so would be what the tests start.
    for sig in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(sig) == signal.SIG_IGN:
            signal.signal(sig, signal.default_int_handler if sig == signal.SIGINT else
                          signal.SIG_DFL)
    if not support.BIN.exists():
        raise pytest.UsageError(f"'{support.BIN}' is missing: run make, or set HOLDFAST_BIN")


def pytest_collection_modifyitems(config, items):
    if support.LONG:
        return
    later = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=later)
    items[:] = [item for item in items if item not in later]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    setattr(item, f"report_{report.when}", report)
    return report


@pytest.fixture
def hf(request):
    """Holdfast with folders of its own; what it leaves running is ended. The folder's name is
    short: the sockets lie in it."""
    tmp = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    holdfast = support.Holdfast(tmp)
    yield holdfast
    report = getattr(request.node, "report_call", None)
    failed = report is not None and report.failed
    if failed:
        for child in holdfast.children:
            print(f"--- {' '.join(map(os.fsdecode, child.args[1:]))} -> {child.proc.poll()}")
            print(child.err[-4000:])
        for run in (holdfast.state / "runs").glob("*"):
            print(f"--- events of {run.name}\n{holdfast.timeline(run.name)}")
        print(f"--- kept: {tmp}")
    holdfast.clean_up()
    if not failed:
        # Whatever the test was about: no event and no status that is not as documented.
        faults = [f for run in tmp.glob("state*/runs/*/") for f in doctables.run_faults(run)]
        assert not faults, faults
        shutil.rmtree(tmp)


@pytest.fixture
def root():
    if os.geteuid() != 0:
        pytest.skip("needs root")
