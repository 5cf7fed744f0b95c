# SPDX-License-Identifier: Apache-2.0
"""holdfast doctor: what it measures, what it says of a store, and that it leaves nothing there."""
import re
import signal
import subprocess

import pytest

from support import until


def left(store):
    return [p for p in store.rglob("*") if p.is_file()]


@pytest.fixture
def store(hf):
    return hf.tmp / "store"


@pytest.fixture
def small_disk(hf, root):
    folder = hf.tmp / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], check=True)
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_numbers_that_agree_with_each_other(hf, store):
    d = hf.json("doctor", f"--store=file://{store}", "--block-size=4MiB", "--lanes=2", "--json")
    assert d["format"] == 1 and d["store"] == f"file://{store}"
    assert (d["lanes"], d["block_bytes"], d["create_only"]) == (2, 4 << 20, True)
    assert not d["outlives"]
    assert 0 < d["put_bytes"] <= 1 << 30 and d["put_bytes"] % d["block_bytes"] == 0
    assert 0 < d["get_bytes"] <= d["put_bytes"]
    # Hashing is a part of putting.
    assert 0 < d["put_bytes_per_s"] < 2 * d["hash_bytes_per_s"]
    assert d["get_bytes_per_s"] > 0 and d["small_put_us"] > 0
    assert [f["seconds"] for f in d["fits"]] == [30, 60, 120, 300]
    for f in d["fits"]:
        want = (f["seconds"] - 4 * d["small_put_us"] / 1e6) * d["put_bytes_per_s"]
        assert abs(f["bytes"] - want) <= want / 1000
    assert not left(store)


def test_the_page_and_runs_that_are_there(hf, store):
    hf.run(f"--store=file://{store}", command=["true"])
    before = sorted(left(store))
    text = hf.call("doctor", f"--store=file://{store}", "--store-survives", "--block-size=1MiB",
                   "--spend=1s").out
    assert "outlives this machine" in text and re.search(r"^create-only +kept$", text, re.M)
    assert len(re.findall(r"^ *\d+ s  [\d.]+ [kMG]B$", text, re.M)) == 4
    assert sorted(left(store)) == before


def test_by_default_the_state_folders_store(hf):
    assert f"store         file://{hf.state}/store\n" in hf.call("doctor", "--spend=1s").out


def test_interrupted(hf, store):
    child = hf.start("doctor", f"--store=file://{store}", "--block-size=64KiB", "--spend=1h")
    until(lambda: left(store), "the first objects")
    child.kill(signal.SIGINT)
    assert child.wait() == 130
    assert "what was put into the store is removed" in child.err
    assert not left(store) and child.out == ""


def test_stores_that_cannot_be_used(hf, store):
    assert "is not understood" in hf.call("doctor", "--store=nfs://x", status=1).err
    store.write_text("a file")
    assert str(store) in hf.call("doctor", f"--store=file://{store}", status=1).err
    assert "takes no operand" in hf.call("doctor", "r", status=64).err


def test_a_full_store(hf, small_disk):
    err = hf.call("doctor", f"--store=file://{small_disk}", "--block-size=1MiB", status=1).err
    assert "No space left on device" in err
    assert not left(small_disk)


def test_a_store_that_may_not_be_written(hf, store, root):
    store.mkdir(mode=0o755)
    hf.tmp.chmod(0o755)
    child = hf.start("doctor", f"--store=file://{store}",
                     before=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert child.wait() == 1 and "Permission denied" in child.err
