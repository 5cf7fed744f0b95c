# SPDX-License-Identifier: Apache-2.0
"""Encrypted runs, end to end: preempted and resumed elsewhere, read by the independent reader, with
nothing of theirs to be seen in the store or around the command; keys are proved before anything
starts (STORAGE.md 9, rows 20 to 23)."""
import hashlib
import itertools
import json
import os
import shutil

import pytest

import objects as objects_of
import unseal
from reader import Damaged, Reader
from support import TOP, loop_digest, shell, trainer
from test_stores import keys_env

DATA = TOP / "tests" / "data"
STEPS = 60
KEY = bytes(range(7, 39))
PASSPHRASE = "eine lange Passphrase äöü"


@pytest.fixture
def store(hf):
    folder = hf.tmp / "bucket"
    hf.env["HOLDFAST_STORE"] = f"file://{folder}"
    return folder


def secret_file(hf, name, data, mode=0o600):
    path = hf.tmp / name
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.fixture
def key(hf):
    return secret_file(hf, "key", KEY)


def looped(hf, *options, steps=STEPS):
    return trainer("loop.py", "--steps", steps, "--out", hf.tmp / "final", *options)


def objects(store):
    return {str(p.relative_to(store)): p.read_bytes() for p in sorted(store.rglob("*"))
            if p.is_file()}


def shows(store, *texts):
    """Where one of the texts can be seen in a store: in a name or in an object."""
    needles = [t.encode() if isinstance(t, str) else t for t in texts]
    return [(name, needle) for name, data in objects(store).items() for needle in needles
            if needle in name.encode() or needle in data]


def keys_used(store, run, kind, secret):
    """{(key, nonce): what is sealed under it} of all that lies there."""
    top, used = store / run, {}
    keys = unseal.open_run((top / "run.json").read_bytes(), run, kind, secret)
    for name, data in objects(top).items():
        if name == "run.json":
            continue
        if name.startswith("data/"):
            seal_key, sealed = keys.block_key(name.split("/")[-1].split(".")[0], "raw"), data
        else:
            body = keys.seal_body(name, keys.open_object(name, data))
            seal_key, sealed = unseal.expand(keys.record, body[:32]), body[32:]
        whole = unseal.SEGMENT + 16
        for i in range(0, len(sealed), whole):
            part = sealed[i:i + whole]
            used.setdefault((seal_key, unseal.nonce(i // whole, i + whole >= len(sealed))),
                            set()).add(part)
    return used


def test_preempted_twice_and_resumed_elsewhere(hf, store, key):
    """Three machines, that share the store and the key alone. What the run says is what it says
    without encryption, and nothing of it can be seen in the store."""
    hf.env["HOLDFAST_KEY_FILE"] = str(key)
    command = ["sh", "-c", 'echo planted-$((1000 + 1)); exec "$@"', "sh",
               *looped(hf, "--pad", 1500000, "--noise")]
    for _ in range(2):
        assert hf.preempt(command, after=3).status == 75
        hf.new_machine()
    assert hf.run(command=command).status == 0
    assert "from the checkpoint of step" in hf.children[-1].err
    assert (hf.tmp / "final").read_text() == loop_digest(STEPS)
    assert not shows(store, "planted-1001", "rank0.json", "digest", "loop.py", str(hf.tmp), KEY,
                     KEY.hex(), "manifest", "preempted", "claim")
    used = keys_used(store, "r", "key-file", KEY)
    assert used and all(len(sealed) == 1 for sealed in used.values())
    # The reader knows the document and the key, nothing else.
    seen = Reader(store, "r", key=("key-file", KEY))
    assert not seen.findings, "\n".join(map(str, seen.findings))
    rows = [{k: v for k, v in row.items() if k not in ("at", "at_age_s")}
            for row in hf.json("ckpt", "ls", "r")["checkpoints"]]
    assert rows == list(seen.rows()) and len(rows) >= 4
    assert b"planted-1001" in seen.output(1)
    to = hf.tmp / "restored"
    assert any(p.name.startswith("rank0") for p in seen.restore(*seen.newest(), to).iterdir())
    # Who looks needs the key too, and is told so.
    for args in (("ckpt", "ls", "r"), ("ckpt", "verify", "r"), ("ckpt", "gc", "r"),
                 ("ckpt", "pin", "r", "1-1")):
        assert hf.call(*args).err == ""
    hf.new_machine()
    assert "planted-1001" in hf.call("logs", "r", "--attempt", "all").out
    assert hf.status()["state"] == "ended"
    del hf.env["HOLDFAST_KEY_FILE"]
    for args in (("ckpt", "ls", "r"), ("ckpt", "show", "r", "1-1"), ("ckpt", "verify", "r"),
                 ("ckpt", "rm", "r", "1-1"), ("ckpt", "gc", "r"), ("ckpt", "unpin", "r", "1-1"),
                 ("logs", "r"), ("status", "r")):
        child = hf.call(*args, status=1)
        assert "encrypted" in child.err and "--key-file" in child.err, args
        assert child.out == ""
        if args[1] != "rm":
            hf.call(*args, f"--key-file={key}")


def test_passphrase_and_what_the_command_sees(hf, store):
    """By a descriptor: nothing of it is in the command's environment, arguments or descriptors,
    nor in anything that Holdfast writes on this machine."""
    path = secret_file(hf, "pp", f"{PASSPHRASE}\n".encode())
    fd = os.open(path, os.O_RDONLY)
    look = ("tr '\\0' '\\n' </proc/self/environ >env; ls -l /proc/self/fd >fds; "
            "tr '\\0' ' ' </proc/$PPID/cmdline >above; grep -c VmLck /proc/$PPID/status; "
            "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done >all 2>/dev/null; "
            "true")
    child = hf.run(f"--key-passphrase-file=fd:{fd}", command=shell(look), cwd=hf.work,
                   pass_fds=(fd,))
    os.close(fd)
    assert child.status == 0
    assert str(path) not in (hf.work / "fds").read_text()
    record = json.loads((store / "r" / "run.json").read_text())
    assert [(w["kind"], w["kdf"]) for w in record["wraps"]] == [("passphrase", "scrypt")]
    assert record["features"] == ["encrypted"]
    keys = unseal.open_run((store / "r" / "run.json").read_bytes(), "r", "passphrase",
                           PASSPHRASE.encode())
    secrets = (PASSPHRASE.encode(), keys.block, keys.record, keys.block.hex().encode(),
               keys.record_id.hex().encode())
    for name, data in [*objects(hf.state).items(), *objects(hf.work).items(),
                       *objects(store).items(), ("stderr", child.err.encode())]:
        assert not [s for s in secrets if s in data], name
    seen = Reader(store, "r", key=("passphrase", PASSPHRASE.encode()))
    assert not seen.findings
    with pytest.raises(Damaged):
        Reader(store, "r", key=("passphrase", PASSPHRASE.encode() + b" "))
    # From a file, with or without the end of its line.
    bare = secret_file(hf, "bare", PASSPHRASE.encode())
    for given in (path, bare):
        hf.call("ckpt", "ls", "r", f"--key-passphrase-file={given}")


WRONG = {  # what is given: what is said
    "nothing": ([], "--key-file"),
    "another key": (["--key-file=other"], "does not fit"),
    "a passphrase": (["--key-passphrase-file=pp"], "--key-file"),
    "both": (["--key-file=key", "--key-passphrase-file=pp"], "a run has one of them"),
    "a missing file": (["--key-file=none"], "none"),
    "a short key": (["--key-file=short"], "32 bytes"),
    "a folder": (["--key-file=work"], "folder"),
    "for all to read": (["--key-file=open"], "chmod 600"),
    "an empty passphrase": (["--key-passphrase-file=empty"], "empty"),
    "no such descriptor": (["--key-passphrase-file=fd:77"], "fd:77"),
}


def test_a_key_that_does_not_fit_starts_nothing(hf, store, key):
    """Row 20: it is said before the command starts, with the remedy, and nothing is written."""
    secret_file(hf, "other", KEY[::-1])
    secret_file(hf, "short", KEY[:31])
    secret_file(hf, "open", KEY, 0o644)
    secret_file(hf, "pp", b"something")
    secret_file(hf, "empty", b"\n")
    assert hf.run(f"--key-file={key}", command=shell("exit 3")).status == 3
    before = objects(store)
    for what, (options, said) in WRONG.items():
        child = hf.run(*options, command=shell(f"touch {hf.tmp}/started"), cwd=hf.tmp)
        assert child.status == 125, what
        assert said in child.err, (what, child.err)
        assert not (hf.tmp / "started").exists(), what
    assert objects(store) == before
    # As hex, in either case, and by the settings file.
    for i, text in enumerate((KEY.hex(), KEY.hex().upper() + "\n")):
        path = secret_file(hf, f"hex{i}", text.encode())
        hf.call("ckpt", "ls", "r", f"--key-file={path}")
    (hf.work / "holdfast.yaml").write_text(f"key-file: {key}\n")
    hf.call("ckpt", "ls", "r", cwd=hf.work)


def test_a_run_stays_as_it_began(hf, store, key):
    """Neither way round, and it is said how to go on."""
    assert hf.run(f"--key-file={key}", command=shell("exit 3"), run="locked").status == 3
    assert hf.run(command=shell("exit 3"), run="open").status == 3
    for run, options, said in (("locked", [], "--key-file"),
                               ("open", [f"--key-file={key}"], "without encryption")):
        child = hf.run(*options, command=shell("exit 3"), run=run)
        assert (child.status, said in child.err) == (125, True), child.err
        child = hf.call("ckpt", "ls", run, *options, status=1)
        assert said in child.err
    assert not Reader(store, "open").findings
    # A lost run.json is not made anew: it had the key.
    kept = (store / "locked" / "run.json").read_bytes()
    (store / "locked" / "run.json").unlink()
    for options in ([], [f"--key-file={key}"]):
        child = hf.run(*options, command=shell("exit 3"), run="locked")
        assert child.status == 125 and "copy of it back" in child.err, child.err
        assert not (store / "locked" / "run.json").exists()
    (store / "locked" / "run.json").write_bytes(kept.replace(b'"at_ms":1', b'"at_ms":2'))
    child = hf.run(f"--key-file={key}", command=shell("exit 3"), run="locked")
    assert child.status == 125 and "changed after it was written" in child.err, child.err
    (store / "locked" / "run.json").write_bytes(kept)
    assert hf.run(f"--key-file={key}", command=shell("exit 3"), run="locked").status == 3


def test_a_moved_manifest_is_no_checkpoint(hf, store, key):
    """Row 22: an older checkpoint, put where the newest lies, is damaged and not taken for it."""
    hf.env["HOLDFAST_KEY_FILE"] = str(key)
    command = looped(hf, "--own-every", 10, steps=40)
    assert hf.run("--every=0", "--keep=0", command=command).status == 0
    rows = sorted((store / "r" / "checkpoints").glob("000001-00000?.json"))
    assert len(rows) >= 3
    newest = [r for r in hf.ckpt()][-1]
    name = f"000001-{newest['number']:06d}.json"
    (store / "r" / "checkpoints" / name).write_bytes(rows[0].read_bytes())
    child = hf.call("ckpt", "verify", "r", status=1)
    assert f"1-{newest['number']}: DAMAGED" in child.out
    assert child.out.count("DAMAGED") == 1


def test_what_is_sent_again_is_the_same(hf, key):
    """An object store (simulated) that fails and loses replies: whatever is put again under a key
    is the same to the byte, and no request shows anything."""
    faulty = objects_of.Faulty()
    try:
        hf.env.update(keys_env(faulty.url), HOLDFAST_KEY_FILE=str(key))
        turn = itertools.count(1)
        faulty.plan = lambda ask: "lost" if next(turn) % 3 == 0 else None
        command = ["sh", "-c", 'echo planted-$((1000 + 1)); exec "$@"', "sh",
                   *looped(hf, "--pad", 70000, steps=100000)]
        child = hf.preempt(command, "--block-size=64KiB", "--grace=60s")
        assert child.status == 75, child.err
        faulty.plan = lambda ask: None
        assert "whole" in hf.call("ckpt", "verify", "r").out
        put = {}
        for ask in faulty.asked:
            assert b"planted-1001" not in ask.body and b"rank0" not in ask.body, ask.key
            if ask.method == "PUT" and not ask.key.endswith(".alive") and "probe" not in ask.key:
                put.setdefault(ask.key, []).append(ask.body)
        assert max(map(len, put.values())) > 1
        assert {len(set(bodies)) for bodies in put.values()} == {1}
    finally:
        faulty.stop()


def test_stored_vectors_are_those_of_the_document():
    """The table that the unit tests hold the product to, worked out anew."""
    assert json.loads((DATA / "crypt-1.json").read_text()) == unseal.vectors()


@pytest.mark.parametrize("kind", ["plain", "encrypted"])
def test_golden_store(hf, kind, tmp_path):
    """A store that an earlier build wrote: everything in it is still read, and gone on with."""
    store = hf.tmp / "golden"
    shutil.copytree(DATA / f"store-1-{kind}", store)
    for path in store.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    options = [f"--store=file://{store}"]
    key = None
    if kind == "encrypted":
        key = ("key-file", KEY)
        options.append(f"--key-file={secret_file(hf, 'key', KEY)}")
    seen = Reader(store, "golden", key=key)
    assert not seen.findings, "\n".join(map(str, seen.findings))
    rows = json.loads(hf.call("ckpt", "ls", "golden", "--json", *options).out)["checkpoints"]
    assert [(r["attempt"], r["number"], r["kind"]) for r in rows] == \
        [(r["attempt"], r["number"], r["kind"]) for r in seen.rows()]
    assert "checkpoint" in {r["kind"] for r in rows}
    hf.call("ckpt", "verify", "golden", *options)
    assert "golden output" in hf.call("logs", "golden", *options).out
    path = seen.restore(*seen.newest(), tmp_path / "back")
    assert hashlib.sha256((path / "weights").read_bytes()).hexdigest() == \
        (path / "sum").read_text().strip()
