# SPDX-License-Identifier: Apache-2.0
"""--metrics-file as the node exporter's textfile collector would read it: strict text at every
moment, replaced whole, right while running and at the end; and trouble with it stops nothing."""
import os
import re
import signal
from contextlib import closing

import pytest

from imds import Imds
from promtext import read, value
from support import TOP, shell, trainer, until

FOREVER = trainer("loop.py", "--steps", 100000, "--step-ms", 5)


def metrics(hf, name="m.prom"):
    path = hf.work / name
    return read(path.read_text()) if path.exists() else {}


def test_while_it_runs_and_at_the_end(hf):
    child = hf.run_start("--metrics-file=m.prom", "--every=200ms", command=FOREVER)

    def ready():
        m = metrics(hf)
        return (value(m, "holdfast_state", state="running") == 1
                and (value(m, "holdfast_saves_total", verdict="local") or 0) >= 1 and m)

    m = until(ready, "a save in the metrics")
    assert value(m, "holdfast_up", run="r") == 1
    assert value(m, "holdfast_attempt") == 1
    assert sum(m["holdfast_state"][2].values()) == 1
    assert value(m, "holdfast_checkpoint_size_bytes") > 0
    assert 0 <= value(m, "holdfast_checkpoint_age_seconds") < 60
    assert 0 <= value(m, "holdfast_checkpoint_duration_seconds") < 60
    assert value(m, "holdfast_protected") == 1
    assert value(m, "holdfast_metadata_watch") is None  # no provider is watched
    until(lambda: (value(metrics(hf), "holdfast_step") or 0) > 0, "a step")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    m = metrics(hf)
    assert value(m, "holdfast_up") == 0
    assert value(m, "holdfast_state", state="ended") == 1
    assert value(m, "holdfast_notices_total", source="signal") == 1
    verdicts = hf.events("verdict")
    assert value(m, "holdfast_saves_total", verdict="local") == len(verdicts)
    assert value(m, "holdfast_checkpoint_step") == verdicts[-1]["step"]
    assert value(m, "holdfast_sent_bytes_total") == sum(v["bytes_sent"] for v in verdicts)
    assert not [p for p in hf.work.iterdir() if ".tmp-" in p.name]
    assert (hf.work / "m.prom").stat().st_mode & 0o777 == 0o644


def test_always_whole(hf):
    """Whoever reads at any moment reads a whole text; the file is replaced, never written into."""
    child = hf.run_start("--metrics-file=m.prom", "--every=50ms", command=FOREVER)
    seen = set()

    def look():
        m = metrics(hf)
        if m:
            seen.add((hf.work / "m.prom").stat().st_ino)
            seen.add(value(m, "holdfast_saves_total", verdict="local"))
        return len(seen) > 8
    until(look, "several texts")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75


def test_names_and_units(hf):
    """Every name has the prefix and base units, and docs/metrics.md lists exactly these."""
    with closing(Imds()) as imds:
        child = hf.run_start("--metrics-file=m.prom", "--every=200ms", "--poll=50ms",
                             f"--metadata-endpoint={imds.url}", command=FOREVER)
        until(lambda: value(metrics(hf), "holdfast_saves_total", verdict="local"), "a save")
        until(lambda: value(metrics(hf), "holdfast_metadata_watch", health="seeing"), "seeing")
        until(lambda: value(metrics(hf), "holdfast_step"), "a step")
        until(lambda: value(metrics(hf), "holdfast_heartbeat_timestamp_seconds"), "a heartbeat")
        names = set(metrics(hf))
        child.kill(signal.SIGTERM)
        assert child.wait() == 75
        names |= set(metrics(hf))
    for name in names:
        assert re.fullmatch(r"holdfast_[a-z0-9_]+", name)
        assert not re.search(r"_(ms|us|ns|kb|mb|percent|count)(_|$)", name), name
    page = (TOP / "docs" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `(holdfast_\w+)`", page, re.M))
    assert names == documented, names ^ documented


def test_b6_each_answer_has_its_own_number(hf):
    """404 is healthy; 5xx, refusals and silence are three other things."""
    with closing(Imds()) as imds:
        child = hf.run_start("--metrics-file=m.prom", "--poll=30ms",
                             f"--metadata-endpoint={imds.url}", command=FOREVER)

        def results():
            family = metrics(hf).get("holdfast_metadata_requests_total", (0, 0, {}))[2]
            return {dict(labels)["result"]: n for labels, n in family.items()}

        until(lambda: results().get("404", 0) > 3, "404s", 15)
        assert results()["5xx"] == results()["timeout"] == results()["refused"] == 0
        assert results()["token"] >= 1
        imds.script = [503] * 100000
        until(lambda: results().get("5xx", 0) > 0, "5xx", 15)
        until(lambda: value(metrics(hf), "holdfast_metadata_watch", health="blind"), "blind", 15)
        assert value(metrics(hf), "holdfast_metadata_watch", health="seeing") == 0
        assert results()["refused"] == 0
        child.kill(signal.SIGTERM)
        assert child.wait() == 75


@pytest.mark.parametrize("path", ["/proc/nothing/m.prom", "missing/m.prom"])
def test_a_failing_write_warns_once(hf, path):
    child = hf.run_start(f"--metrics-file={path}", "--every=100ms", command=FOREVER)
    until(lambda: len(hf.events("verdict")) >= 3, "three saves")
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert child.err.count("the metrics cannot be written") == 1, child.err


def test_a_full_disk_stops_nothing(hf):
    child = hf.run("--metrics-file=/dev/full/m.prom", command=shell("exit 3"))
    assert child.status == 3


def test_a_refused_start_leaves_the_file_alone(hf):
    child = hf.run_start("--metrics-file=m.prom", command=FOREVER)
    until(lambda: value(metrics(hf), "holdfast_up") == 1, "metrics")
    second = hf.run("--metrics-file=m.prom", command=FOREVER)
    assert second.status == 125
    assert value(metrics(hf), "holdfast_up") == 1
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert os.path.exists(hf.work / "m.prom")
