# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that docs/formats.md has, and how reader.py says that one is not so."""
import re

HEX32, HEX64 = re.compile("[0-9a-f]{32}"), re.compile("[0-9a-f]{64}")
MOST = 999999999


class Newer(Exception):
    """Of a later format: nothing may be concluded from it."""


class Damaged(Exception):
    """Not what was written."""


def need(condition, why):
    if not condition:
        raise Damaged(why)


# --- the kinds of values ------------------------------------------------------------------------


def is_int(v, low=0, high=1 << 53):
    return type(v) is int and low <= v <= high


def a_int(v):
    return is_int(v)


def a_number(v):
    return is_int(v, 1, MOST)


def a_step(v):
    return v is None or is_int(v)


def a_bool(v):
    return type(v) is bool


def a_text(v):
    return type(v) is str


def a_bytes(v):
    """A JSON string if it is UTF-8, {"hex": …} otherwise and only then."""
    if type(v) is str:
        return True
    if type(v) is not dict or set(v) != {"hex"} or type(v["hex"]) is not str \
            or not re.fullmatch("([0-9a-f]{2})+", v["hex"]):
        return False
    try:
        bytes.fromhex(v["hex"]).decode()
    except UnicodeDecodeError:
        return b"\0" not in bytes.fromhex(v["hex"])
    return False


def raw(v):
    return v.encode() if type(v) is str else bytes.fromhex(v["hex"])


def a_nonce(v):
    return type(v) is str and bool(HEX32.fullmatch(v))


def a_id(v):
    return type(v) is str and bool(HEX64.fullmatch(v))


def one_of(*words):
    return lambda v: v is None and None in words or type(v) is str and v in words


def or_null(kind):
    return lambda v: v is None or kind(v)


def array(kind):
    return lambda v: type(v) is list and all(map(kind, v))


def a_name(v):
    return type(v) is dict and set(v) == {"attempt", "number"} and all(map(a_number, v.values()))


def absolute(v):
    return a_bytes(v) and raw(v)[:1] == b"/" and (raw(v) == b"/" or relative(raw(v)[1:]))


def relative(path):
    return all(part not in (b"", b".", b"..") for part in path.split(b"/"))


def an_object(**members):
    return lambda v: type(v) is dict and set(v) == set(members) and all(
        kind(v[name]) for name, kind in members.items())


def a_hex(length):
    return lambda v: type(v) is str and bool(re.fullmatch("[0-9a-f]{%d}" % (2 * length), v))
