# SPDX-License-Identifier: Apache-2.0
"""A strict reader of Prometheus's text format 0.0.4, as far as Holdfast writes it: what any reader
would let pass is refused here. read(text) gives {name: (type, help, {labels: value})}; labels are a
frozenset of pairs."""
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:{{(.*)}})? (-?[0-9]+(?:\.[0-9]+)?|NaN|[+-]Inf)")
UNITS = ("_seconds", "_bytes", "_total", "_info")


def labels_of(text):
    found = []
    at = 0
    while at < len(text):
        match = LABEL.match(text, at)
        assert match, text
        found.append((match[1], re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), match[2])))
        at = match.end()
        assert match[3] != "," or at < len(text), "a comma at the end"
    assert len({name for name, _ in found}) == len(found), f"a label twice: {text}"
    return frozenset(found)


def read(text):
    assert text.endswith("\n") and "\r" not in text and "\n\n" not in text
    families = {}
    name = helped = None
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            _, _, name, helped = line.split(" ", 3)
            assert name not in families, f"{name}: not in one group"
            assert helped and "\n" not in helped
        elif line.startswith("# TYPE "):
            _, _, typed, kind = line.split(" ")
            assert typed == name and name not in families, f"{line}: without its HELP before"
            assert kind in ("counter", "gauge"), line
            assert (kind == "counter") == name.endswith("_total"), line
            families[name] = (kind, helped, {})
        else:
            match = SAMPLE.fullmatch(line)
            assert match, f"not a sample (a timestamp?): {line}"
            assert match[1] == name and name in families, f"{line}: outside its group"
            labels = labels_of(match[2] or "")
            samples = families[name][2]
            assert labels not in samples, f"twice: {line}"
            samples[labels] = float(match[3])
            assert families[name][0] != "counter" or samples[labels] >= 0
    return families


def value(families, name, **labels):
    """The one sample of that name that has these labels (among others), or None."""
    found = [v for have, v in families.get(name, (None, None, {}))[2].items()
             if set(labels.items()) <= set(have)]
    assert len(found) <= 1, found
    return found[0] if found else None
