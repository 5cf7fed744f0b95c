# SPDX-License-Identifier: Apache-2.0
"""A reader of the store that was written from docs/formats.md alone and shares nothing with the
product. It reads a whole run in a file:// store, and takes down as a finding everything that the
document does not allow: what is damaged, newer than format 1, out of its place, or not described.

    reader.py STORE RUN             every finding, the checkpoints, the newest
    reader.py STORE RUN FOLDER      the newest checkpoint, restored below FOLDER
    reader.py --key-file PATH ...   the same of an encrypted run; or --key-passphrase-file PATH
"""
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import unseal
from values import (Damaged, MOST, Newer, a_bool, a_bytes, a_hex, a_id, a_int, a_name, a_nonce,
                    a_number, a_step, a_text, absolute, an_object, array, is_int, need, one_of,
                    or_null, raw, relative)

RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
N = r"(0*[1-9]\d*)"
KEYS = {
    "run": re.compile(r"run\.json"),
    "claim": re.compile(rf"attempts/{N}\.json"),
    "base": re.compile(rf"attempts/{N}\.base\.json"),
    "alive": re.compile(rf"attempts/{N}\.alive"),
    "end": re.compile(rf"attempts/{N}\.end\.json"),
    "decision": re.compile(rf"checkpoints/{N}-{N}\.json"),
    "retired": re.compile(rf"checkpoints/{N}-{N}\.retired\.json"),
    "pin": re.compile(rf"checkpoints/{N}-{N}\.pin\.{N}\.json"),
    "block": re.compile(rf"data/({N}-{N}-[0-9a-f]{{8}})/([0-9a-f]{{2}})/([0-9a-f]{{64}})\.(\w+)"),
    "log": re.compile(rf"logs/{N}/{N}\.log\.zst"),
}
ENCRYPTED = ["encrypted"]
OUTCOMES = ("finished", "failed", "hung", "preempted", "stopped", "vanished", "superseded",
            "not-started")


# --- one record: what there is ------------------------------------------------------------------

HEAD = {"format": lambda v: v == 1, "features": lambda v: v == [], "type": a_text}
SUM = {"sum": a_id}
OF = {"attempt": a_number, "number": a_number}
# type: (members that must be there, members that may be)
RECORDS = {
    "run": ({"run": a_text, "hash": one_of("sha256"), "cipher": one_of("none"),
             "key_ids": lambda v: v == [], "block_bytes": a_int,
             "store": an_object(create_only=a_bool, outlives=a_bool), "at_ms": a_int}, {}),
    "claim": ({"attempt": a_number, "kind": one_of("run", "finished", "stopped"),
               "nonce": a_nonce, "command": array(a_bytes), "folder": or_null(absolute),
               "fresh": a_bool, "host": a_text, "boot_id": a_text, "pid_ns": a_int, "pid": a_int,
               "pid_start": a_int, "provider": a_text, "at_ms": a_int, **SUM}, {}),
    "base": ({"nonce": a_nonce, "base": or_null(a_name), **SUM}, {}),
    "alive": ({"nonce": a_nonce, "counter": a_int, "every_ms": a_int, "state": a_text,
               "step": a_step, "at_ms": a_int}, {}),
    "end": ({"nonce": a_nonce, "outcome": one_of(*OUTCOMES), "exit_code": or_null(a_int),
             "signal": or_null(a_int), "last_step": a_step, "at_ms": a_int,
             "replacement": one_of("requested", "not-requested", "unknown"), **SUM},
            {"forced": lambda v: v is True, "left": a_text}),
    "abort": ({"nonce": a_nonce, **SUM}, {}),
    "seal": ({"nonce": a_nonce, "by_attempt": a_number, **SUM}, {}),
    "retired": (OF, {}),
    "pin": ({**OF, "state": one_of("pinned", "unpinned", "closed"), "at_ms": a_int, **SUM}, {}),
    "manifest": ({**OF, "nonce": a_nonce, "life": a_int, "request": a_int, "step": a_step,
                  "reason": one_of("notice", "every", "hang", "end", "own", "recovered"),
                  "strategy": one_of("hook", "watch"), "world": a_int, "ranks": array(a_int),
                  "at_ms": a_int, "resume_path": absolute, "parent": or_null(a_name),
                  "roots": array(an_object(path=absolute, kind=one_of("dir", "file", "link"))),
                  "files": array(lambda v: type(v) is dict),
                  "blocks": array(an_object(id=a_id, len=lambda v: is_int(v, 1, 1 << 30),
                                            where=a_text, codec=one_of("raw", "zero"))),
                  "bytes": a_int, "bytes_sent": a_int, **SUM},
                 {"left_out": array(absolute)}),
}
A_WAY = {"key_id": a_hex(8), "salt": a_hex(32), "wrapped": a_hex(48)}
WAYS = {"key-file": an_object(kind=a_text, **A_WAY),
        "passphrase": an_object(kind=a_text, kdf=one_of("scrypt"), n=a_int, r=a_int, p=a_int,
                                **A_WAY)}
RUN_ENCRYPTED = {**RECORDS["run"][0], "features": lambda v: v == ENCRYPTED,
                 "hash": one_of("hmac-sha256"), "cipher": one_of("aes-256-gcm"),
                 "key_ids": lambda v: type(v) is list and len(v) == 1 and a_hex(8)(v[0]),
                 "segment_bytes": lambda v: v == unseal.SEGMENT,
                 "wraps": array(lambda v: type(v) is dict and v.get("kind") in WAYS
                                and WAYS[v["kind"]](v)),
                 "probe": a_hex(56), "mac": a_hex(32)}
FILE = {"root": a_int, "path": a_bytes, "kind": one_of("file", "dir", "link"),
        "mode": lambda v: is_int(v, 0, 0o7777)}
OF_KIND = {"dir": {}, "link": {"target": a_bytes},
           "file": {"size": a_int, "hash": a_id,
                    "extents": array(an_object(off=a_int, len=lambda v: is_int(v, 1),
                                               block=a_int))}}
SIGNED = ("claim", "base", "end", "pin", "manifest", "abort", "seal")
DECISIONS = ("manifest", "abort", "seal")


# --- one record ---------------------------------------------------------------------------------


def no_float(text):
    raise Damaged(f"'{text}' is no exact integer")


def depth(value):
    inside = value.values() if type(value) is dict else value if type(value) is list else ()
    return 1 + max(map(depth, inside), default=0) if type(value) in (dict, list) else 0


def once(pairs):
    need(len({k for k, _ in pairs}) == len(pairs), "a member twice")
    return dict(pairs)


def parse(data):
    try:
        value = json.loads(data.decode(), parse_float=no_float, parse_constant=no_float,
                           object_pairs_hook=once)
    except (UnicodeDecodeError, ValueError, RecursionError) as e:
        raise Damaged(f"no JSON: {e}") from None
    need(type(value) is dict, "no object")
    need(depth(value) <= 64, "too deep")
    need("\\u0000" not in data.decode(), "an escaped NUL")
    return value


def sum_is_right(data):
    tail = re.search(rb',"sum":"([0-9a-f]{64})"\}\Z', data)
    return bool(tail) and hashlib.sha256(data[:tail.start()]).hexdigest() == tail[1].decode()


def read(data, expected):
    """The record; expected: the types that may lie in this place. The sum comes first, so that a
    record of a later format is told from a damaged one."""
    need(not any(t in SIGNED for t in expected) or sum_is_right(data), "its sum is wrong")
    value = parse(data)
    need(is_int(value.get("format")) and type(value.get("type")) is str, "no format or no type")
    if value["format"] != 1:
        raise Newer(f"of format {value['format']}")
    need(type(value.get("features")) is list, "no features")
    if value["features"]:
        raise Newer(f"needs the features {value['features']}")
    need(value["type"] in expected, f"type '{value['type']}' is not one of {expected}")
    needed, may = RECORDS[value["type"]]
    check({k: v for k, v in value.items() if k not in may}, {**HEAD, **needed}, value["type"])
    for name in may.keys() & value.keys():
        need(may[name](value[name]), f"'{name}': {value[name]!r}")
    if value["type"] == "run" and (value["hash"], value["cipher"]) != ("sha256", "none"):
        raise Newer("another hash or cipher")
    return value


def check(value, members, what):
    """A member that the document does not have is a finding here, although a reader ignores it."""
    need(members.keys() <= value.keys(), f"{what}: without {members.keys() - value.keys()}")
    need(value.keys() <= members.keys(),
         f"{what}: not documented: {value.keys() - members.keys()}")
    for name, kind in members.items():
        need(kind(value[name]), f"{what}: '{name}' is {value[name]!r}")


# --- one manifest -------------------------------------------------------------------------------


def order(path):
    """Byte by byte, '/' before every other; the root itself first."""
    return bytes(path).replace(b"\0", b"\0\0").replace(b"/", b"\0")


def check_file(m, f, blocks_used):
    need(f.get("kind") in OF_KIND, f"kind {f.get('kind')!r}")
    check(f, {**FILE, **OF_KIND[f["kind"]]}, "a file")
    path = raw(f["path"])
    need(f["root"] < len(m["roots"]), "a file of no root")
    need(path == b"" or relative(path), f"path {path!r}")
    need(path or m["roots"][f["root"]]["kind"] == f["kind"], "a root of another kind")
    if f["kind"] != "file":
        return
    at, ids = 0, []
    for e in f["extents"]:
        need(e["block"] < len(m["blocks"]), "an extent of no block")
        block = m["blocks"][e["block"]]
        need(e["off"] == at and e["len"] == block["len"], "a gap, an overlap or a part of a block")
        at += e["len"]
        ids.append(block["id"])
        blocks_used.add(e["block"])
    need(at == f["size"], "extents of another length")
    need(hashlib.sha256("".join(ids).encode()).hexdigest() == f["hash"], "hash of the block ids")


def plain_id(data):
    return hashlib.sha256(data).hexdigest()


def check_manifest(m, id_of=plain_id):
    need(m["ranks"] == list(range(m["world"])), "ranks are not 0 to world - 1")
    need((m["world"] == 0) == (m["strategy"] == "watch"), "world 0: no hook, and only then")
    paths = [raw(r["path"]) for r in m["roots"]]
    need(paths and len(set(paths)) == len(paths), "no root, or one twice")
    need(not any(b.startswith(a.rstrip(b"/") + b"/") for a in paths for b in paths if a != b),
         "a root within another")
    used = set()
    for f in m["files"]:
        check_file(m, f, used)
    names = [(f["root"], raw(f["path"])) for f in m["files"]]
    keys = [(r, order(p)) for r, p in names]
    need(all(a < b for a, b in zip(keys, keys[1:])), "files out of order, or one twice")
    need({r for r, p in names if p == b""} == set(range(len(paths))), "a root is not listed")
    folders = {n for n, f in zip(names, m["files"]) if f["kind"] == "dir"}
    need(all((r, p.rpartition(b"/")[0]) in folders for r, p in names if p),
         "a file of which the folder is not listed")
    need(used == set(range(len(m["blocks"]))), "a block that no file has")
    ids = [(b["id"], b["codec"]) for b in m["blocks"]]
    need(len(set(ids)) == len(ids), "a block twice")
    need(m["bytes"] == sum(f.get("size", 0) for f in m["files"]), "bytes is another sum")
    for b in m["blocks"]:
        if b["codec"] == "zero":
            need(b["id"] == id_of(bytes(b["len"])), "the id of zeros")


# --- a log piece --------------------------------------------------------------------------------

PIECE_HEADER = an_object(format=lambda v: v == 1, offset=a_int, missing=a_int, at_wall_ms=a_int,
                         nonce=a_nonce)


def read_piece(data):
    """(header, output)"""
    need(data[:4] == (0x184D2A50).to_bytes(4, "little") and len(data) >= 8, "no skippable frame")
    end = 8 + int.from_bytes(data[4:8], "little")
    need(end <= len(data), "cut in its header")
    header = parse(data[8:end])
    if is_int(header.get("format")) and header["format"] != 1:
        raise Newer(f"of format {header['format']}")
    need(PIECE_HEADER(header), f"header {header}")
    frame = data[end:]
    # RFC 8878, 3.1.1.1: bits 7-6 and 5 say how long the length is, bit 2 that a checksum follows.
    need(len(frame) > 5 and frame[:4] == (0xFD2FB528).to_bytes(4, "little"), "no zstd frame")
    need(frame[4] & 0xE0, "its length is not in the frame")
    need(frame[4] & 4, "no checksum")
    done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
    need(done.returncode == 0, f"zstd: {done.stderr.decode().strip()}")
    need(len(done.stdout) <= 1 << 20, "more than 1 MiB")
    return header, done.stdout


# --- a run --------------------------------------------------------------------------------------


@dataclass
class Finding:
    key: str
    why: str
    newer: bool = False

    def __str__(self):
        return f"{self.key}: {'newer: ' if self.newer else ''}{self.why}"


@dataclass
class Attempt:
    claim: dict = None
    base: dict = None
    alive: dict = None
    end: dict = None
    claim_lost: bool = False
    row: dict = field(default_factory=dict)       # number: decision, None where damaged
    retired: set = field(default_factory=set)
    pins: dict = field(default_factory=dict)      # number: {serial: record, None where damaged}
    output: list = field(default_factory=list)    # (serial, header, bytes)

    @property
    def nonce(self):
        """The claim's; of a damaged one its base's; None: neither is left."""
        known = self.claim or self.base
        return known["nonce"] if known else None

    @property
    def fresh(self):
        if self.claim:
            return self.claim["fresh"]
        return bool(self.base) and self.base["base"] is None

    @property
    def runs(self):
        return self.claim is None or self.claim["kind"] == "run"

    def live(self, number):
        """The manifest of this number, if it counts and was not retired."""
        m = self.row.get(number)
        ends = [n for n, d in self.row.items() if d and d["type"] == "seal"]
        counts = m and m["type"] == "manifest" and number not in self.retired \
            and number < min(ends, default=MOST + 1) and self.nonce in (None, m["nonce"])
        return m if counts else None

    def pinned(self, number):
        row = self.pins.get(number)
        last = row[max(row)] if row else {"state": "unpinned"}
        return last is None or last["state"] == "pinned"


class Reader:
    """What a run's store holds. findings is empty if all of it is as documented."""

    def __init__(self, store, run, blocks=True, key=None):
        """key: ("key-file", its bytes) or ("passphrase", its bytes); None: not encrypted."""
        self.top, self.run = Path(store) / run, run
        self.keys = self.unlock(*key) if key else None
        self.findings, self.attempts, self.blocks = [], {}, {}
        self.read_blocks, self.bad_blocks = blocks, {}
        need(RUN_NAME.fullmatch(run), f"'{run}' is no run's name")
        self.load()
        for n in sorted(self.attempts):
            self.check_attempt(n, self.attempts[n])
        self.check_seals()

    def unlock(self, kind, secret):
        secret = unseal.key_of_file(secret) if kind == "key-file" else secret
        try:
            return unseal.open_run((self.top / "run.json").read_bytes(), self.run, kind, secret)
        except (unseal.Refused, ValueError, KeyError, OSError) as e:
            raise Damaged(f"run.json: {e}") from None

    def opened(self, key, data):
        """What lies in a record or piece of an encrypted run."""
        if self.keys is None:
            return data
        try:
            return self.keys.open_object(key, data)
        except unseal.Refused as e:
            raise Damaged(str(e)) from None

    def plain(self, ident, data):
        """The block's bytes, which its name proves."""
        if self.keys is None:
            need(plain_id(data) == ident, "its hash is wrong")
            return data
        try:
            return self.keys.open_block(ident, data)
        except unseal.Refused as e:
            raise Damaged(str(e)) from None

    def find(self, key, why, newer=False):
        self.findings.append(Finding(key, str(why), newer))

    def require(self, condition, key, why):
        if not condition:
            self.find(key, why)

    def attempt(self, n):
        return self.attempts.setdefault(int(n), Attempt())

    def load(self):
        places = []
        for folder, _, names in os.walk(self.top):
            places += [Path(folder, name) for name in names]
        for path in sorted(places):
            key = str(path.relative_to(self.top))
            if path.name.startswith(".tmp-"):
                continue
            kind, m = next(((k, m) for k, r in KEYS.items() if (m := r.fullmatch(key))), (None, 0))
            if kind is None:
                self.find(key, "no such key")
                continue
            self.require(all(len(n) >= 6 and int(n) <= MOST and (len(n) == 6 or n[0] != "0")
                             for n in m.groups() if n and n.isdigit() and len(n) != 2
                             and len(n) != 64), key, "a number that is padded otherwise")
            self.place(kind, key, path, m)
        if not (self.top / "run.json").exists():
            self.find("run.json", "missing")

    def place(self, kind, key, path, m):
        if kind == "block":
            self.block(key, path, m)
        elif kind == "log":
            a, serial = self.attempt(m[1]), int(m[2])
            piece = self.tried(key, lambda: self.piece(key, path))
            a.output.append((serial, *(piece or (None, None))))
        else:
            expected = DECISIONS if kind == "decision" else (kind,)
            record = self.tried(key, lambda: self.record(key, path, expected))
            id_of = self.keys.block_id if self.keys else plain_id
            if record and record["type"] == "manifest" and self.tried(
                    key, lambda: check_manifest(record, id_of) or True) is None:
                record = None
            self.put(kind, key, record, [int(g) for g in m.groups()])

    def piece(self, key, path):
        return read_piece(self.opened(key, path.read_bytes()))

    def record(self, key, path, expected):
        data = path.read_bytes()
        if expected == ("run",) and self.keys:
            value = parse(data)  # proved by its mac
            check(value, {**HEAD, **RUN_ENCRYPTED}, "run")
            return value
        return read(self.opened(key, data), expected)

    def put(self, kind, key, record, at):
        if kind == "run":
            self.require(not record or record["run"] == self.run, key, "another run's")
        elif kind == "decision":
            self.attempt(at[0]).row[at[1]] = self.as_in_key(key, record, at)
        elif kind == "retired":
            self.as_in_key(key, record, at)
            self.attempt(at[0]).retired.add(at[1])
        elif kind == "pin":
            self.attempt(at[0]).pins.setdefault(at[1], {})[at[2]] = self.as_in_key(key, record, at)
        else:
            if kind == "claim":
                record = self.as_in_key(key, record, at)
                self.attempt(at[0]).claim_lost = record is None
            setattr(self.attempt(at[0]), kind, record)

    def as_in_key(self, key, record, at):
        same = record and all(record.get(name, n) == n
                              for name, n in zip(("attempt", "number"), at))
        self.require(same or not record, key, "of another place than its key")
        return record if same else None

    def tried(self, key, what):
        try:
            return what()
        except Damaged as e:
            self.find(key, e)
        except Newer as e:
            self.find(key, e, newer=True)
        return None

    def block(self, key, path, m):
        where, (hh, ident, codec) = m[1], m.groups()[-3:]
        self.blocks[(where, ident)] = path
        self.require(codec == "raw" and ident.startswith(hh), key, "no such block")
        data = path.read_bytes() if self.read_blocks else None
        if data is not None:
            try:
                self.plain(ident, data)
            except Damaged as e:
                self.find(key, e)
                self.bad_blocks[(where, ident)] = str(e)

    # what belongs together

    def check_attempt(self, n, a):
        key = f"attempts/{n:06d}"
        if a.claim is None and not a.claim_lost:
            self.find(f"{key}.json", "missing")
        for name in ("base", "alive", "end"):
            record = getattr(a, name)
            self.require(not (record and a.claim) or record["nonce"] == a.claim["nonce"],
                         f"{key}.{name}", "not the claim's nonce")
        if a.claim:
            only = a.claim["kind"] == "run" or not (a.claim["command"] or a.row or a.output)
            self.require(only, key, "the run was over, and yet it has a command or a row")
            self.require(n == max(self.attempts) or a.claim["kind"] == "run" or a.fresh
                         or n + 1 in self.attempts, key, "no attempt after it")
        if n > 1:
            self.require(n - 1 in self.attempts, key, f"there is no attempt {n - 1}")
        self.check_row(n, a)
        self.check_pins(n, a)
        self.check_output(n, a)

    def check_row(self, n, a):
        seals = [j for j, d in a.row.items() if d and d["type"] == "seal"]
        for j in sorted(a.row):
            d, key = a.row[j], f"checkpoints/{n:06d}-{j:06d}.json"
            self.require(j == 1 or j - 1 in a.row, key, f"there is no decision {j - 1}")
            self.require(j <= min(seals, default=j), key, "beyond a seal")
            if d is None:
                continue
            if d["type"] == "seal":
                by = self.attempts.get(d["by_attempt"])
                self.require(by and d["by_attempt"] > n and by.nonce in (None, d["nonce"]), key,
                             "sealed by nobody who may")
            else:
                self.require(a.nonce in (None, d["nonce"]), key, "not the claim's nonce")
            if d["type"] == "manifest":
                self.check_blocks(key, (n, j), d)
        for j in a.retired:
            self.require(a.row.get(j, {}) is None or a.row.get(j, {}).get("type") == "manifest",
                         f"checkpoints/{n:06d}-{j:06d}.retired.json", "not a checkpoint")

    def check_blocks(self, key, name, m):
        """Own blocks, or such as the parent names at their place; the objects of a live one."""
        own = f"{name[0]:06d}-{name[1]:06d}-{m['nonce'][:8]}"
        parent = m["parent"]
        allowed = set()
        if parent:
            at = (parent["attempt"], parent["number"])
            above = self.attempts.get(at[0], Attempt()).row.get(at[1], {})
            self.require(at < name and (above is None or above.get("type") == "manifest"), key,
                         "a parent that is no older checkpoint")
            allowed = None if above is None else {(b["id"], b["len"], b["where"], b["codec"])
                                                  for b in above.get("blocks", ())}
        sent = 0
        for b in m["blocks"]:
            mine = b["where"] == own
            self.require(mine or allowed is None or (b["id"], b["len"], b["where"], b["codec"])
                         in allowed, key, f"block {b['id']} is neither its own nor its parent's")
            if b["codec"] == "zero":
                continue
            sent += b["len"] if mine else 0
            self.require(not self.attempts[name[0]].live(name[1]) or self.state_of(b) is None,
                         key, f"block {b['id']}: {self.state_of(b)}")
        self.require(m["bytes_sent"] == sent, key, f"bytes_sent is not {sent}")

    def state_of(self, b):
        """Why a block cannot be read; None: it can."""
        at = (b["where"], b["id"])
        if b["codec"] == "zero":
            return None
        if at not in self.blocks:
            return "missing"
        stored = b["len"] + (16 * -(-b["len"] // unseal.SEGMENT) if self.keys else 0)
        if self.blocks[at].stat().st_size != stored:
            return "of another length"
        return self.bad_blocks.get(at)

    def check_pins(self, n, a):
        for j, row in a.pins.items():
            key = f"checkpoints/{n:06d}-{j:06d}.pin"
            states = [row[s] and row[s]["state"] for s in sorted(row)]
            self.require(sorted(row) == list(range(1, len(row) + 1)), key, "a gap")
            self.require("closed" not in states[:-1], key, "goes on after its end")
            self.require(states[-2:] != ["pinned", "closed"], key, "closed upon a pin")
        for j in a.retired:
            row = a.pins.get(j, {})
            last = row[max(row)] if row else {}
            self.require(last is None or last.get("state") == "closed",
                         f"checkpoints/{n:06d}-{j:06d}.retired.json", "its pins are not closed")

    def check_output(self, n, a):
        at = 0
        a.output.sort(key=lambda piece: piece[0])
        for serial, (got, header, data) in enumerate(a.output, 1):
            key = f"logs/{n:06d}/{got:06d}.log.zst"
            self.require(got == serial, key, "a gap before it")
            if header is None or at is None:
                at = header["offset"] + len(data) if header else None
                continue
            self.require(a.nonce in (None, header["nonce"]), key, "not the claim's nonce")
            self.require(header["offset"] == at + header["missing"], key, f"does not follow {at}")
            at = header["offset"] + len(data)

    def check_seals(self):
        """A base proves that every lower attempt of kind run is sealed."""
        for n, a in self.attempts.items():
            for low in [m for m in self.attempts if m < n and a.base and self.attempts[m].runs]:
                row = self.attempts[low].row.values()
                self.require(any(d is None or d["type"] == "seal" for d in row),
                             f"attempts/{n:06d}.base.json", f"attempt {low} is not sealed")

    # what follows from it

    def output(self, n):
        return b"".join(data for _, _, data in self.attempts[n].output)

    def newer(self):
        return [f for f in self.findings if f.newer]

    def candidates(self):
        """Live checkpoints, newest first, down to the newest fresh claim."""
        oldest = max((n for n, a in self.attempts.items() if a.fresh), default=1)
        for n in sorted(self.attempts, reverse=True):
            for j in sorted(self.attempts[n].row, reverse=True):
                if n >= oldest and self.attempts[n].live(j):
                    yield n, j

    def newest(self):
        return next(self.candidates(), None)

    def whole(self, n, j):
        m = self.attempts[n].live(j)
        return m is not None and all(self.state_of(b) is None for b in m["blocks"])

    def newest_whole(self):
        """The first that is not damaged: what has to be restored. None: nothing."""
        return next(((n, j) for n, j in self.candidates() if self.whole(n, j)), None)

    def rows(self):
        """As `holdfast ckpt ls --json`, without what depends on the clock."""
        words = {"manifest": "checkpoint", "abort": "aborted", "seal": "sealed"}
        for n in sorted(self.attempts):
            a = self.attempts[n]
            for j in sorted(a.row):
                d = a.row[j]
                row = {"attempt": n, "number": j, "kind": words[d["type"]] if d else "damaged"}
                if d and d["type"] == "manifest":
                    row.update({k: d[k] for k in ("step", "reason", "bytes", "bytes_sent",
                                                  "resume_path")})
                    row.update(retired=j in a.retired, pinned=a.pinned(j), files=len(d["files"]))
                yield row

    def restore(self, n, j, to):
        """Every root at its absolute path below `to`; each block is checked once more."""
        m = self.attempts[n].row[j]
        later = []
        for f in m["files"]:
            root, path = raw(m["roots"][f["root"]]["path"]), raw(f["path"])
            place = os.fsencode(str(to)) + root + (b"/" + path if path else b"")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if f["kind"] == "link":
                os.symlink(raw(f["target"]), place)
            elif f["kind"] == "dir":
                os.mkdir(place)
                later.append((place, f["mode"]))
            else:
                self.restore_file(m, f, place)
        for place, mode in reversed(later):
            os.chmod(place, mode & 0o1777)
        return Path(str(to) + os.fsdecode(raw(m["resume_path"])))

    def restore_file(self, m, f, place):
        with open(place, "xb") as out:
            for e in f["extents"]:
                b = m["blocks"][e["block"]]
                if b["codec"] == "raw":
                    need(self.state_of(b) is None, f"block {b['id']}: {self.state_of(b)}")
                    data = self.plain(b["id"], self.blocks[(b["where"], b["id"])].read_bytes())
                    out.seek(e["off"])
                    out.write(data)
            out.truncate(f["size"])
        os.chmod(place, f["mode"] & 0o1777)


def key_given(args):
    """("key-file", bytes) or ("passphrase", bytes), taken out of args; None: neither."""
    kinds = {"--key-file": "key-file", "--key-passphrase-file": "passphrase"}
    if args and args[0] in kinds:
        kind, data = kinds[args.pop(0)], Path(args.pop(0)).read_bytes()
        return kind, data if kind == "key-file" else data.removesuffix(b"\n").removesuffix(b"\r")
    return None


def main():
    args = sys.argv[1:]
    key = key_given(args)
    reader = Reader(*args[:2], key=key)
    for finding in reader.findings:
        print(finding)
    for row in reader.rows():
        print(json.dumps(row))
    print("newest", reader.newest_whole())
    if len(args) > 2:
        print(reader.restore(*reader.newest_whole(), args[2]))
    return 1 if reader.findings else 0


if __name__ == "__main__":
    sys.exit(main())
