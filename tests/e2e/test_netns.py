# SPDX-License-Identifier: Apache-2.0
"""The metadata service at its real address, in a network namespace of its own: the product with its
default endpoint."""
import os
import subprocess

import pytest

from support import PYTHON, trainer, until

FOREVER = trainer("loop.py", "--steps", 100000, "--step-ms", 5)


def ip(*args):
    subprocess.run(["ip", *args], check=True, capture_output=True, timeout=30)


@pytest.fixture
def namespace(root):
    name = f"hf-{os.getpid()}"
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "delete", name)


@pytest.fixture
def service(hf, namespace):
    ip("-n", namespace, "address", "add", "169.254.169.254/32", "dev", "lo")
    script = os.path.join(os.path.dirname(__file__), "imds.py")
    with subprocess.Popen(["ip", "netns", "exec", namespace, PYTHON, script, "169.254.169.254",
                           "80", hf.tmp / "notice"], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        yield hf.tmp / "notice"
        child.kill()


def start_inside(hf, namespace, *options):
    """By nsenter, which passes signals and descriptors on: it becomes the program."""
    command = ["nsenter", f"--net=/run/netns/{namespace}"]
    child = hf.start("run", "--run=r", "--provider=aws", *options, "--", *FOREVER, before=command)
    hf.waits_for("first-step")
    return child


def test_the_default_endpoint(hf, namespace, service):
    child = start_inside(hf, namespace)
    until(lambda: hf.status()["watch"]["health"] == "seeing", "seeing")
    assert "blind" not in child.err
    service.touch()
    assert child.wait() == 75
    notice = hf.events("notice")[0]
    assert notice["source"] == "aws" and notice["action"] == "terminate"
    assert 115000 < notice["left_ms"] <= 120000
    verdict = hf.events("verdict")[-1]
    assert verdict["kind"] == "local" and verdict["reason"] == "notice"
    request = hf.events("request")[0]
    assert int(request["ns"]) - int(notice["ns"]) < 1e9


def test_no_route_to_it_delays_nothing_and_is_said(hf, namespace):
    child = start_inside(hf, namespace, "--poll=50ms")
    claimed, started = hf.events("claimed")[0], hf.events("command-started")[0]
    assert int(started["ns"]) - int(claimed["ns"]) < 2e9
    until(lambda: hf.status()["watch"]["health"] == "blind", "blind")
    assert len([line for line in child.warnings if "blind" in line]) == 1
