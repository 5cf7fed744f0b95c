# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/formats.md and docs/status.md as the machine reads them, and what the product
wrote held against them: neither can change without the other."""
import json
import re

from reader import a_bytes
from support import TOP

FORMATS = (TOP / "docs" / "formats.md").read_text()
STATUS = (TOP / "docs" / "status.md").read_text()
UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z")
NAME = re.compile(r"`([a-z0-9_]+)`")
TYPES = {
    "integer": lambda v: type(v) is int,
    "integer or null": lambda v: v is None or type(v) is int,
    "text": lambda v: type(v) is str,
    "text or null": lambda v: v is None or type(v) is str,
    "bytes": a_bytes,
    "true or false": lambda v: type(v) is bool,
    "array of integers": lambda v: type(v) is list and all(type(n) is int for n in v),
}
SIGNAL = "a name in `signal`, otherwise its number, 0: none"


def table(text, head):
    """The rows of the table with this head line."""
    lines = text[text.index(f"{head}\n"):].splitlines()[2:]
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def outside(text):
    """Without what stands in brackets, which may be cut off."""
    return re.sub(r"\([^()]*(\)|$)", "", text)


class Event:
    """What the document says of one event."""

    def __init__(self, text):
        always, _, later = text.partition("then ")
        joined = " or " in outside(always)
        self.needed = set() if joined else set(NAME.findall(outside(always)))
        self.may = set(NAME.findall(later)) | set(NAME.findall(outside(always)))
        self.words = {m[1]: set(re.findall(r"`([a-z-]+)`", m[2]))
                      for m in re.finditer(r"`(\w+)` \((`[^);]*)", text)}


EVENTS = {row[0].strip("`"): Event(row[1]) for row in table(FORMATS, "| event | members |")}
MEMBERS = {name: kind for kind, names in table(FORMATS, "| type | members |")
           for name in NAME.findall(names)}
FRAME = {"ts": lambda v: bool(UTC.fullmatch(v)), "ns": lambda v: v.isdigit(),
         "attempt": lambda v: type(v) is int, "event": lambda v: v in EVENTS}


def event_faults(e):
    """Where one event is not as documented."""
    for name, good in FRAME.items():
        if name not in e or not good(e[name]):
            yield f"'{name}' is {e.get(name)!r}"
    said = EVENTS.get(e.get("event"))
    if said is None:
        return
    own = e.keys() - FRAME.keys()
    for name in said.needed - own:
        yield f"without '{name}'"
    for name in own - said.may:
        yield f"'{name}' is not documented for '{e['event']}'"
    for name in own & MEMBERS.keys():
        kind = MEMBERS[name]
        if kind == SIGNAL:
            kind = "text" if e["event"] == "signal" else "integer"
        if not TYPES[kind](e[name]):
            yield f"'{name}' is {e[name]!r}, not {kind}"
    for name in own & said.words.keys():
        if e[name] not in said.words[name]:
            yield f"'{name}' is {e[name]!r}, not one of {sorted(said.words[name])}"


def log_faults(path):
    """The same for a whole events.jsonl; a line that is being written is none yet."""
    for line in path.read_bytes().decode().splitlines(keepends=True):
        if line.endswith("\n"):
            for fault in event_faults(json.loads(line)):
                yield f"{fault}: {line.strip()}"


# --- status -------------------------------------------------------------------------------------

FIELDS = {name: row[1] for row in table(STATUS, "| field | meaning |")
          for name in NAME.findall(row[0])}
PARTS = ("ranks", "watch", "notice", "save", "log")
ONLY_PRINTED = {"supervised", "last_state", "evidence", "asked"}
TIMES = ("since", "heartbeat", "updated", "store_silent_since")
WORDS = {"state": FIELDS["state"], "last_state": FIELDS["state"],
         "store_kind": FIELDS["store_kind"], "protected_by": FIELDS["protected_by"] + " `watch`"}


def status_faults(s, printed):
    """printed: `status --json` printed it, else it is the supervisor's status.json."""
    own = {k for k in s if not k.endswith("_age_s")} - {"format"}
    wanted = set(FIELDS) - (set() if printed else ONLY_PRINTED)
    if own != wanted:
        yield f"fields {own ^ wanted} are in one of status.md and the product"
    if not printed and (s.get("format") != 1 or any(k.endswith("_age_s") for k in s)):
        yield "status.json: its format, or an age"
    for name in PARTS:
        if s.get(name) is not None:
            yield from (f"'{name}.{k}' is not documented" for k in s[name]
                        if k.removesuffix("_age_s") not in NAME.findall(FIELDS[name]))
    for name in TIMES:
        if s.get(name) is not None and not UTC.fullmatch(s[name]):
            yield f"'{name}' is {s[name]!r}"
    for name, text in WORDS.items():
        if s.get(name) is not None and f"`{s[name]}`" not in text:
            yield f"'{name}' is {s[name]!r}"


def run_faults(folder):
    """What a run's state folder holds that the documents do not allow."""
    if (folder / "events.jsonl").exists():
        yield from log_faults(folder / "events.jsonl")
    if (folder / "status.json").is_file():
        yield from status_faults(json.loads((folder / "status.json").read_text()), False)
