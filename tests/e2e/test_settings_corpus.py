# SPDX-License-Identifier: Apache-2.0
"""Settings files as they are found: each file of a corpus gives exactly the value that was written,
or exactly one place and reason; the same with any line ends, a byte order mark and lines before it;
and random files are read as an independent YAML reader reads them."""
import json
import os
import random
import re
import subprocess

import pytest
import yaml

from support import BIN

QUIET = "a quote is not closed"
PLAIN = "where a plain value is needed"
BEGIN = "cannot start any token"
BLOCK = "are not allowed in this context"
NAME = "run: run name '{}' may not {} '{}'"

# A file, and what comes of it: "=x" the run is x, "=" none is named, else "line:column: message".
CORPUS = [
    # values that YAML would turn into something else
    *[(f"run: {word}\n", f"={word}") for word in (
        "x", "no", "yes", "on", "off", "Norway", "NO", "true", "1e-4", "0755", "0x1F", "1.0", "007",
        "12.30.45", "2026-01-02", "0b1", "0o7", "1e3", "NaN", "inf", "y", "n")],
    ("run: 12:30:45\n", "1:6: " + NAME.format("12:30:45", "have", ":")),
    ("run: 1_000\n", "=1_000"),
    ("run: .5\n", "1:6: " + NAME.format(".5", "start with", ".")),
    ("run: +3\n", "1:6: " + NAME.format("+3", "start with", "+")),
    ("run: -3\n", "1:6: " + NAME.format("-3", "start with", "-")),
    ("run: null\n", "1:6: run: there is no value"),
    ("run: ~\n", "1:6: run: there is no value"),
    ("run:\n", "1:5: run: there is no value"),
    ("run: # nothing\n", "1:5: run: there is no value"),
    ("run: Null\n", "=Null"),
    ("run: ''\n", "1:6: run: the value is empty"),
    ('run: ""\n', "1:6: run: the value is empty"),
    ("run: ' '\n", "1:6: " + NAME.format(" ", "start with", " ")),
    # numbers and times of other settings
    *[(f"run: x\nkeep: {word}\n", "=x") for word in ("0", "-1", "003", "'7'", '"7"', "1000000")],
    *[(f"keep: {word}\n", f"1:7: keep: '{word}' is not a whole number") for word in (
        "1e-4", "1_000", ".5", "+3", "0x10", "3.0", "three", "3s", "３", "yes", "1,000")],
    ("keep: 1000001\n", "1:7: keep: '1000001' is too large"),
    ("keep: -2\n", "1:7: keep: '-2' is too small"),
    ("keep: !!int 3\n", "1:7: a tag"),
    ("run: x\nevery: 1h30m\ngrace: 0.5s\nblock-size: 1MiB\nquiet: true\n", "=x"),
    *[(f"every: {word}\n", f"1:8: every: '{word}' is not a duration") for word in (
        "5 m", "five", "1e3", "-1s", "5min", "Auto", "５m")],
    ("block-size: 1GB\n", "1:13: block-size: '1GB' is not a size"),
    *[(f"quiet: {word}\n", f"1:8: quiet: '{word}' is neither true nor false") for word in (
        "yes", "no", "on", "off", "True", "FALSE", "1", "0", "y")],
    ("provider: AWS\n", "1:11: provider: 'AWS' is not one of its words"),
    ("stop-signal: SIGKILL\n", "1:14: stop-signal: signal 'SIGKILL' cannot be used here"),
    # comments and blank lines
    ("# c\n\n  # d\nrun: x\n# e", "=x"),
    ("run: x # c\n", "=x"),
    ("run: x\t# c\n", "=x"),
    ("run: 'x' # c\n", "=x"),
    ("run: # c\n  x\n", "=x"),
    ("run: x#c\n", "1:6: " + NAME.format("x#c", "have", "#")),
    ("run: x // c\n", "1:6: " + NAME.format("x // c", "have", " ")),
    ("; c\nrun: x\n", "1:1: not a mapping of settings"),
    ("{run: x, # c\n keep: 3}\n", "=x"),
    ("checkpoint-dir: # c\n  - a # d\n  # e\n  - b\nrun: x\n", "=x"),
    ("# 说明：“x”，＃\nrun: x\n", "=x"),
    ("", "="), ("\n\n\n", "="), ("# only\n", "="), ("---\n", "="), ("{}\n", "="),
    ("...\n", "1:1: did not find expected node content"),
    # quotes and escapes
    ("'run': \"x\"\n", "=x"),
    ('run: "x\\x41\\u0042\\U00000043"\n', "=xABC"),
    ('run: "a\\\n  b"\n', "=ab"),
    ("run: 'x''y'\n", "1:6: " + NAME.format("x'y", "have", "'")),
    ('run: "a\\nb"\n', "1:6: " + NAME.format("a\\nb", "have", "\\n")),
    ('run: "a\\tb"\n', "1:6: " + NAME.format("a\\tb", "have", "\\t")),
    ('run: "a\\0b"\n', "1:6: run: the value has a NUL character"),
    ('run: "\\e[31m"\n', "1:6: " + NAME.format("\\x1b[31m", "start with", "\\x1b")),
    ('run: "a\\u202eb"\n', "1:6: " + NAME.format("a\\u202eb", "have", "\\u202e")),
    ('run: "\\q"\n', "1:7: found unknown escape character"),
    ('run: "\\x4"\n', "did not find expected hexdecimal number"),
    ("run: 'x\n", f"1:6: {QUIET}"),
    ('run: "x\n', f"1:6: {QUIET}"),
    ("keep: 3\nrun: 'x\nevery: 5m\ngrace: 5s\n", f"2:6: {QUIET}"),
    ('keep: 3\nrun: x\n"every: 5m\n', f"3:1: {QUIET}"),
    ("run: 'x'y\n", "1:9: did not find expected key"),
    ("run: x'y\n", "1:6: " + NAME.format("x'y", "have", "'")),
    # shapes
    ("run : x\n", "=x"), ("  run: x\n  keep: 3\n", "=x"), ("? run\n: x\n", "=x"),
    ("{run: x}\n", "=x"), ("run: >-\n  x\n", "=x"), ("run: &a x\n", "=x"),
    ("--- # c\nrun: x\n...\n", "=x"), ("%YAML 1.1\n---\nrun: x\n", "=x"), ("run: x", "=x"),
    ("run: |\n  x\n", "1:6: " + NAME.format("x\\n", "have", "\\n")),
    ("run: x\n  y\n", "2:1: an indented line goes on with the value before"),
    ("keep: 3\n every: 5m\n", "2:1: an indented line goes on with the value before"),
    ("  run: x\nkeep: 3\n", "2:1: did not find expected <document start>"),
    ("run: [x]\n", f"1:6: a list {PLAIN}"), ("run: [x\n", f"1:6: a list {PLAIN}"),
    ("run: {a: b}\n", f"1:6: a mapping {PLAIN}"), ("run:\n  a: b\n", f"2:3: a mapping {PLAIN}"),
    ("run:\n- x\n", f"2:1: a list {PLAIN}"), ("run: *a\n", f"1:6: an alias {PLAIN}"),
    ("run: !x y\n", "1:6: a tag ('!x')"), ("run: !!str x\n", "1:6: a tag"),
    ("!x {run: y}\n", "1:1: a tag"), ("!!str run: x\n", "1:1: a tag"),
    ("run: @x\n", f"1:6: found character that {BEGIN}"),
    ("run: `x\n", f"1:6: found character that {BEGIN}"),
    ("run: - x\n", f"1:6: block sequence entries {BLOCK}"),
    ("run: x: y\n", f"1:7: mapping values {BLOCK}"),
    ("run: ,x\n", "1:6: did not find expected node content"),
    ("- run: x\n", "1:1: not a mapping of settings"), ("run\n", "1:1: not a mapping of settings"),
    ("[run, x]\n", "1:1: not a mapping of settings"), ("42\n", "1:1: not a mapping of settings"),
    ("run: x\n---\nkeep: 3\n", "2:1: a second document"),
    ("<<: {run: x}\n", "1:1: unknown setting '<<'"),
    ("RUN: x\n", "1:1: unknown setting 'RUN'"),
    ("store_logs: true\n", "1:1: unknown setting 'store_logs'"),
    ("run.name: x\n", "1:1: unknown setting 'run.name'"),
    ("--run: x\n", "1:1: unknown setting '--run'"),
    ("run: x\nrun: y\n", "2:1: 'run' is set twice"),
    ("run: x\n'run': x\n", "2:1: 'run' is set twice"),
    ("{run: x, run: y}\n", "1:10: 'run' is set twice"),
    ("fresh: true\n", "1:1: 'fresh' cannot be set in a file"),
    ("config: x\n", "1:1: 'config' cannot"),
    ("run:x\n", "1:4: no space after the colon"), ("run = x\n", "1:5: '=' where a colon is needed"),
    ("run=x\n", "1:4: '=' where a colon is needed"), ("keep: 3\nrun=x\n", "2:4: '=' where a colon"),
    # what an input method or an editor puts there
    ("run：x\n", "1:4: a full-width colon (：)"), ("run ： x\n", "1:5: a full-width colon"),
    ("keep: 3\nrun：x\n", "2:4: a full-width colon"),
    ("run: “x”\n", "1:6: run: the value starts with a curly"),
    ("“run”: x\n", "1:1: a curly quote (“)"),
    ("run: ＇x＇\n", "1:6: run: the value starts with a full-width"),
    ("run\u3000: x\n", "1:4: a full-width space"), ("run:\u00a0x\n", "1:5: a no-break space"),
    ("\u3000run: x\n", "1:1: a full-width space"), ("\trun: x\n", "1:1: a tab in the indentation"),
    ("keep: 3\n\trun: x\n", "2:1: a tab in the indentation"), ("run:\tx\n", "=x"),
    ("run: x\t\n", "=x"),
    ("run: 实验\n", "1:6: " + NAME.format("实验", "start with", "实")),
    ("实验: x\n", "1:1: unknown setting '实验'"),
    ("run: \x07x\n", "1:6: a control character (U+0007)"),
    ("run: x\x00\n", "1:7: a control character (U+0000)"),
    ("run: \x1b[31m\n", "1:6: a control character (U+001B)"),
    ("run: \x7f\n", "1:6: a control character (U+007F)"),
    ("run: \u009b31m\n", "1:6: a control character (U+009B)"),
    ("run: x\ufeff\n", "1:7: a control character (U+FEFF)"),
]

JSON = [
    ('{"run": "x"}', "=x"), ('{\n\t"run": "x",\n\t"keep": 3\n}\n', "=x"), ('{"run": 5}', "=5"),
    ('{"run": true}', "=true"), ('{"run": 1e-4}', "=1e-4"), ('{"run": "\\u0041"}', "=A"),
    ("{}", "="),
    ('{"checkpoint-dir": ["a", "b"], "run": "x"}', "=x"),
    ("", "1:1: not JSON"), ("run: x\n", "1:1: not JSON"), ('{"run": "x",}', "1:13: not JSON"),
    ('{"run": "x"} // c', "1:14: not JSON"), ("{'run': 'x'}", "1:2: not JSON"),
    ('{"keep": 3,\n}\n', "2:1: not JSON"),
    ("{run: 1}\n", "1:2: not JSON"), ('{"keep": 3,\n run: 1}\n', "2:2: not JSON"),
    ('{"run": .5}', "1:9: not JSON"), ('{"run": +3}', "1:9: not JSON"),
    ('{"run": no}', "1:9: not JSON"),
    ('{"run"："x"}', "1:7: a full-width colon"), ('{"run": “x”}', "1:9: a curly quote"),
    ('{"run": "x"\n "keep": 3}', "2:2: not JSON"), ('{"run": "x', "not JSON"),
    ("[]", "1:1: not a mapping"),
    ('{"run": null}', "1:9: run: there is no value"), ('{"run": ["x"]}', f"1:9: a list {PLAIN}"),
    ('{"run": "x", "run": "y"}', "1:14: 'run' is set twice"),
    ('{"rnu": "x"}', "1:2: unknown setting 'rnu'"),
    ('{"keep": "3 "}', "1:10: keep: '3 ' is not a whole number"), ('"run"', "1:1: not a mapping"),
]


class Reader:
    """`holdfast status` with a settings file: the run that it names is not known, and is told."""

    def __init__(self, folder):
        self.folder = folder
        self.env = {"PATH": os.environ["PATH"], "HOLDFAST_STATE_DIR": str(folder / "state"),
                    "HOME": str(folder)}

    def call(self, *args, before=()):
        return subprocess.run([*before, BIN, "status", *args], cwd=self.folder, env=self.env,
                              capture_output=True, check=False, timeout=20)

    def read(self, data, name="f.yaml"):
        """("=", run) or (place, message)."""
        (self.folder / name).write_bytes(data)
        done = self.call(f"--config={name}")
        err = done.stderr.decode()
        assert all(ord(c) >= 32 or c == "\n" for c in err), (data, err)
        if done.returncode == 0:
            assert done.stdout == b"no runs are registered here\n" and err == "", (data, err)
            return "=", ""
        assert done.stdout == b"", data
        named = re.match(r"holdfast: error: no run '(.*)' is registered here\n", err)
        if named:
            assert done.returncode == 1
            return "=", named[1]
        assert done.returncode == 64 and err.count("\n") == 2, (data, done)
        refused = re.match(r"holdfast: error: " + re.escape(name) + r":(\d+:\d+): (.*)\n", err)
        assert refused, (data, err)
        return refused[1], refused[2]


@pytest.fixture
def reader(tmp_path):
    return Reader(tmp_path)


def moved(wanted, lines):
    """The same place in a file with more lines before."""
    place = re.match(r"(\d+):(\d+: .*)", wanted, re.S)
    return f"{int(place[1]) + lines}:{place[2]}" if place else wanted


def check_all(reader, files, change=lambda data: data, lines=0, name="f.yaml"):
    wrong = []
    for text, wanted in files:
        place, message = reader.read(change(text.encode()), name)
        told = f"={message}" if place == "=" else f"{place}: {message}"
        wanted = moved(wanted, lines)
        fits = (told == wanted if wanted[0] == "=" else told.startswith(wanted)
                if wanted[0].isdigit() else wanted in told)
        if not fits:
            wrong.append((text, wanted, told))
    assert not wrong, "\n" + "\n".join(map(str, wrong))


def test_each_file(reader):
    assert len(CORPUS) > 150
    check_all(reader, CORPUS)
    check_all(reader, JSON, name="f.json")


CHANGES = {
    "CR LF": lambda data: data.replace(b"\n", b"\r\n"),
    "CR": lambda data: data.replace(b"\n", b"\r"),
    "mark and CR LF": lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_line_ends_and_the_mark_change_nothing(reader, change):
    many = [file for file in CORPUS if "\n" in file[0][:-1]] + CORPUS[::4]
    check_all(reader, many, CHANGES[change])
    check_all(reader, JSON, CHANGES[change], name="f.json")


def test_lines_before_move_the_place(reader):
    before = "# 说明：一\n\n\n  # \t“\n".encode()
    check_all(reader, CORPUS[::2], lambda data: before + data, 4)


CODECS = {
    "utf-16": "the file is UTF-16, not UTF-8", "utf-16-le": "the file is UTF-16, not UTF-8",
    "utf-16-be": "the file is UTF-16, not UTF-8", "utf-32": "the file is UTF-32, not UTF-8",
}


@pytest.mark.parametrize("codec", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "gbk", "gb18030",
                                   "big5", "shift_jis", "euc_kr", "latin-1", "cp1252"])
def test_other_encodings(reader, codec):
    """The place is that of the first character that is not ASCII, counted in characters."""
    word = {"latin-1": "é", "cp1252": "é", "euc_kr": "한글", "big5": "中文"}.get(codec, "中国")
    text = f"keep: 3\nrun: x # {word}\n"
    place, message = reader.read(text.encode(codec))
    if codec in CODECS:
        assert (place, message) == ("1:1", CODECS[codec])
    else:
        first = word.encode(codec)[0]
        assert (place, message) == ("2:10", f"byte {first:#04x} is not UTF-8")


def test_each_byte_that_is_not_ascii(reader):
    for byte in range(128, 256, 3):
        place, message = reader.read(b"keep: 3\nrun: ab" + bytes([byte]) + b"cd\n")
        assert (place, message) == ("2:8", f"byte {byte:#04x} is not UTF-8")


def test_sizes(reader):
    """A line of a megabyte is read; a byte more than a megabyte is not, and is said."""
    head = b"run: "
    place, message = reader.read(head + b"x" * (2**20 - len(head)))
    assert place == "1:6" and f"is too long: {2**20 - len(head)} bytes" in message
    assert reader.read(b"run: x #" + b"c" * (2**20 - 8)) == ("=", "x")
    assert reader.read(b"\n" * (2**20 - 6) + b"run: x") == ("=", "x")
    (reader.folder / "f.yaml").write_bytes(head + b"x" * (2**20 - len(head) + 1))
    done = reader.call("--config=f.yaml")
    assert done.returncode == 64 and b"settings file 'f.yaml'" in done.stderr, done
    deep = reader.read(b"run: " + b"[" * 50000)
    assert deep == ("1:6", f"a list {PLAIN}")


def kinds(folder):
    (folder / "folder").mkdir()
    (folder / "loop").symlink_to("back")
    (folder / "back").symlink_to("loop")
    (folder / "away").symlink_to("nowhere")
    (folder / "shut").write_text("run: x\n")
    (folder / "shut").chmod(0)
    (folder / "file").write_text("run: x\n")
    (folder / "link").symlink_to("file")


WHY = [("folder", "Is a directory"), ("loop", "Too many levels of symbolic links"),
       ("away", "No such file or directory"), ("none", "No such file or directory"),
       ("file/x", "Not a directory"), ("x" * 300, "File name too long")]


@pytest.mark.parametrize("name,why", WHY, ids=[w[0][:9] for w in WHY])
def test_what_is_no_file(reader, name, why):
    """By --config and by the variable; and in the place of the file that is looked for."""
    kinds(reader.folder)
    for args, env in (([f"--config={name}"], {}), ([], {"HOLDFAST_CONFIG": name})):
        reader.env.update(env)
        done = reader.call(*args)
        assert done.returncode == 64 and done.stdout == b""
        assert f"settings file '{name[:150]}" in done.stderr.decode()
        assert done.stderr.decode().splitlines()[0].endswith(why), done.stderr
    del reader.env["HOLDFAST_CONFIG"]
    if name in ("folder", "loop", "away"):
        (reader.folder / "holdfast.yaml").symlink_to(name)
        done = reader.call()
        assert done.returncode == 64 and why in done.stderr.decode(), done


def test_links_and_pipes_are_read(reader):
    kinds(reader.folder)
    for args in (["--config=link"], ["--config=/dev/fd/0"]):
        done = subprocess.run([BIN, "status", *args], cwd=reader.folder, env=reader.env,
                              capture_output=True, input=b"run: x\n", check=False, timeout=20)
        assert b"no run 'x'" in done.stderr, done
    assert reader.call("--config=/dev/null").returncode == 0


def test_no_permission(reader, root):
    kinds(reader.folder)
    for path in (reader.folder, *reader.folder.parents):
        if str(path).startswith("/tmp/pytest"):
            path.chmod(0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = reader.call("--config=shut", before=nobody)
    if b"setpriv" in done.stderr:
        pytest.skip(f"no other user here: {done.stderr!r}")
    assert done.returncode == 64 and b"'shut': Permission denied" in done.stderr, done
    (reader.folder / "shut").rename(reader.folder / "holdfast.yaml")
    done = reader.call(before=nobody)
    assert done.returncode == 64 and b"holdfast.yaml': Permission denied" in done.stderr, done


# ---- random files ----

PIECES = ["run", "keep", "every", "save-dir", "x", "y", "3", "5m", "'x'", '"y"', ": ", ":", "\n",
          "\n", "  ", " ", "# c", " # c\n", "- ", "{", "}", "[", "]", ", ", "|\n", ">-\n", "&a ",
          "*a", "!t ", "? ", "---\n", "...\n", "'", '"', "\\", "%YAML 1.1\n", "@", "~", "=", "é"]
SOUND = ["run: x\nkeep: 3\n", "run: 'x'\nsave-dir: \"y\"\n", "{run: x, keep: 3}\n",
         "# c\nrun: x # d\n", "keep: 3\nevery: 5m\nrun: y\n", "run: >-\n  x\nsave-dir: y\n",
         "? run\n: x\n", "---\nrun: x\n...\n"]
KNOWN = {"run": r"[a-z0-9][a-z0-9._-]*", "keep": r"-1|\d+", "every": r"(\d+[smh]?)+|auto",
         "save-dir": r"(?s).+"}


def by_yaml(text):
    """The settings as another reader has them; None: it, or Holdfast's rules, refuse the file."""
    try:
        documents = list(yaml.compose_all(text, yaml.BaseLoader))
        tagged = any(isinstance(e, yaml.AliasEvent) or getattr(e, "tag", None)
                     for e in yaml.parse(text, yaml.BaseLoader))
    except yaml.YAMLError:
        return None
    nodes = [n for n in documents if not (isinstance(n, yaml.ScalarNode) and n.value == "")]
    if not nodes:
        return {}
    if documents[-1] is not nodes[0] or not isinstance(nodes[0], yaml.MappingNode) or tagged:
        return None
    found = {}
    for key, value in nodes[0].value:
        if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
            return None
        name, word = key.value, value.value
        plain = value.style is None
        if name in found or name not in KNOWN or (plain and word in ("", "~", "null")) or (
                not re.fullmatch(KNOWN[name], word)):
            return None
        found[name] = word
    return found


def spoilt(rng):
    text = rng.choice(SOUND)
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.randrange(3))
        text = text[:at] + rng.choice(["", rng.choice(PIECES), rng.choice(PIECES)]) + text[end:]
    return text


def test_random_files_are_read_as_another_reader_does(reader):
    """And a refused one is refused at a place that the file has."""
    seed = int(os.environ.get("HOLDFAST_TEST_SEED", random.randrange(2**32)))
    rng = random.Random(seed)
    taken = refused = 0
    for _ in range(400):
        text = spoilt(rng)
        if re.search(r"[|>]-?#", text):
            continue  # the two readers differ, and both may
        place, message = reader.read(text.encode())
        wanted = by_yaml(text)
        what = f"seed {seed}: {json.dumps(text)}: {place}: {message}; {wanted}"
        if place == "=":
            assert wanted is not None and wanted.get("run", "") == message, what
            taken += 1
            continue
        assert wanted is None, what
        lines = (text + "\n").split("\n")
        line, column = map(int, place.split(":"))
        assert 1 <= line <= len(lines) and 1 <= column <= len(lines[line - 1]) + 1, what
        refused += 1
    assert taken > 50 and refused > 100, (taken, refused)
