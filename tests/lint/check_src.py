#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house rules that no compiler checks; docs/contributing.md says what they are for.

Prints PATH:LINE: what, one a line, and exits 1 when there is any.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
LAYERS = {
    # folder: folders whose headers it may include
    "base": {"base"},
    "cloud": {"base", "cloud"},
    "hooks": {"base", "hooks"},
    "checkpoint": {"base", "hooks", "checkpoint"},
    "supervisor": {"base", "cloud", "hooks", "checkpoint", "supervisor"},
}
LAYER_EXCEPTIONS = {("checkpoint", "cloud/store.h")}
ENTRIES = {"base", "cloud", "checkpoint", "hooks", "supervisor", "tests", "docs", "Makefile",
           "README.md", "LICENSE", "CHANGELOG.md", "build", "compile_commands.json"}
SKIPPED = {"build", "__pycache__", "corpus", "data"}
MAX_LINES = {".c": 700, ".h": 300, ".py": 700, ".sh": 300}
MAX_FUNCTION = 80
MAX_PARAMETERS = 6
# What every asynchronous or fallible function takes, and what a library's callback must take.
UNCOUNTED = r"\b(err|scope|done|user|ret_op|file|line)$|\bMHD_|\bcls$|^\.\.\.$"
MAX_COLUMNS = 100
MAX_MAIN_LINES = 19

BANNED = {
    "strcpy": "hf_strdup or snprintf", "strcat": "hf_buf_add", "strncpy": "hf_strndup",
    "strncat": "hf_buf_add", "sprintf": "snprintf", "vsprintf": "vsnprintf", "gets": "fgets",
    "strtok": "hf_buf_next_line or strcspn", "atoi": "hf_int_parse", "atol": "hf_int_parse",
    "atof": "strtod", "gmtime": "hf_utc_format", "localtime": "hf_utc_format",
    "system": "hf_keeper_start or posix_spawn", "popen": "posix_spawn", "signal": "sigaction",
    "sleep": "hf_timer_start", "usleep": "hf_timer_start", "alloca": "hf_calloc",
    "mktemp": "mkstemp", "tmpnam": "mkstemp",
}
BANNED_ABOVE_BASE = {
    "malloc": "hf_calloc", "calloc": "hf_calloc", "realloc": "hf_realloc", "free": "hf_free",
    "strdup": "hf_strdup", "strndup": "hf_strndup", "asprintf": "hf_asprintf",
    "time": "hf_wall_ms", "gettimeofday": "hf_wall_ms", "clock_gettime": "hf_now_ns",
    "rand": "hf_random_u64", "random": "hf_random_u64",
}
# The client and what is below it stand alone and may use the C library's own memory and clock;
# so may tests.
STANDS_ALONE = ("hooks/c/", "hooks/examples/", "tests/")
WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|farm)/[\w.]")

problems = []


def complain(path, line, text):
    problems.append(f"{path.relative_to(TOP)}:{line}: {text}")


def sources(*suffixes):
    for path in sorted(TOP.rglob("*")):
        parts = path.relative_to(TOP).parts
        hidden = any(p.startswith(".") or p in SKIPPED or p.endswith(".egg-info") for p in parts)
        if path.suffix in suffixes and path.is_file() and not hidden:
            yield path


def without_comments_and_strings(text):
    """The same text with the content of comments and literals blanked, line breaks kept."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))
    token = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(token, blank, text, flags=re.S)


def check_text(path, text):
    lines = text.split("\n")
    limit = MAX_LINES.get(path.suffix)
    if limit and len(lines) - 1 > limit:
        complain(path, limit + 1, f"{len(lines) - 1} lines, {limit} are allowed; split the file")
    for number, line in enumerate(lines, 1):
        if path.suffix in (".c", ".h", ".py") and len(line) > MAX_COLUMNS:
            complain(path, number, f"{len(line)} columns, {MAX_COLUMNS} are allowed")
        if line != line.rstrip():
            complain(path, number, "white space at the end of the line")
        if path != Path(__file__).resolve():
            if WORDS.search(line):
                complain(path, number, "a word for unfinished work; finish it, or file an issue")
            if MACHINE_PATH.search(line):
                complain(path, number, "a path of one machine")
    if "SPDX-License-Identifier: Apache-2.0" not in "\n".join(lines[:3]):
        complain(path, 1, "no SPDX-License-Identifier in the first lines")
    if text and not text.endswith("\n"):
        complain(path, len(lines), "no line break at the end of the file")


def check_includes(path, text):
    name = path.relative_to(TOP).as_posix()
    layer = name.split("/")[0]
    found = [(m.group(1), text.count("\n", 0, m.start()) + 1)
             for m in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)]
    any_first = re.search(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, re.M)
    for include, line in found:
        other = include.split("/")[0]
        allowed = LAYERS.get(layer)
        if (allowed is not None and other in LAYERS and other not in allowed
                and (layer, include) not in LAYER_EXCEPTIONS):
            complain(path, line, f"{layer}/ may not see {include}: arrows run downwards only")
    if name.startswith(("hooks/c/", "hooks/examples/")) or not any_first:
        if any(include.split("/")[0] == "base" for include, _ in found):
            complain(path, 1, "the client stands alone: nothing of base/")
        return
    first = any_first.group(1)
    own_header = path.suffix == ".h" and name != "base/prelude.h"
    if path.suffix == ".c" and not name.startswith("tests/fuzz/") and first != "base/prelude.h":
        complain(path, 1, "base/prelude.h must be the first include")
    if own_header and not first.startswith(tuple(LAYERS)):
        complain(path, 1, "a header's first include is base/prelude.h, or a header that has it")


def check_c(path, text):
    name = path.relative_to(TOP).as_posix()
    check_includes(path, text)
    code = without_comments_and_strings(text)
    banned = dict(BANNED)
    if not name.startswith("base/") and not name.startswith(STANDS_ALONE):
        banned.update(BANNED_ABOVE_BASE)
    for number, line in enumerate(code.split("\n"), 1):
        for match in re.finditer(r"(?<![\w.>])(\w+)\s*\(", line):
            if match.group(1) in banned:
                complain(path, number,
                         f"{match.group(1)} is not used here; see {banned[match.group(1)]}")
        if re.search(r"\btypedef\s+(struct|enum|union)\b[^(]*[;{]", line):
            complain(path, number, "no typedef of a struct, enum or union")
    for match in re.finditer(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//', text, re.S):
        if match.group(0) == "//":
            complain(path, text.count("\n", 0, match.start()) + 1, "comments are /* */")
    if path.suffix == ".c" and not re.match(
            r"/\* SPDX-License-Identifier: Apache-2\.0\n \*\n \* \S", text):
        complain(path, 1, "the file does not open with the licence and what it does")
    if name == "supervisor/main.c" and text.count("\n") > MAX_MAIN_LINES:
        complain(path, 1, f"more than {MAX_MAIN_LINES} lines")


def check_functions(paths):
    command = ["ctags", "-L", "-", "-o", "-", "--output-format=json", "--fields=+neS",
               "--kinds-C=f", "--languages=C"]
    listed = subprocess.run(command, input="\n".join(map(str, paths)), text=True, check=True,
                            stdout=subprocess.PIPE).stdout
    for line in listed.splitlines():
        tag = json.loads(line)
        if tag.get("_type") != "tag" or "end" not in tag:
            continue
        path, length = Path(tag["path"]), tag["end"] - tag["line"] + 1
        if length > MAX_FUNCTION:
            complain(path, tag["line"],
                     f"{tag['name']} has {length} lines, {MAX_FUNCTION} are allowed")
        signature = tag.get("signature", "").strip("()").split(",")
        parameters = sum(not re.search(UNCOUNTED, each) for each in signature)
        if parameters > MAX_PARAMETERS:
            complain(path, tag["line"],
                     f"{tag['name']} has {parameters} parameters, {MAX_PARAMETERS} are allowed")


def main():
    for entry in sorted(TOP.iterdir()):
        if not entry.name.startswith(".") and entry.name not in ENTRIES:
            complain(entry, 1, "not one of the agreed top-level entries")
    c_files = list(sources(".c", ".h"))
    for path in [*c_files, *sources(".py", ".sh", ".mk", ".pml"), TOP / "Makefile",
                 TOP / ".ci/run"]:
        text = path.read_text(encoding="utf-8")
        check_text(path, text)
        if path.suffix in (".c", ".h"):
            check_c(path, text)
    check_functions([p for p in c_files if p.suffix == ".c"])
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
