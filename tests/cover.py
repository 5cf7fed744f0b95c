#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Line coverage from build/cover by gcovr: one line a file (least covered first), one a layer.

Ends with status 1 when base, checkpoint or supervisor is below GOAL. Beside it the ratio of test
lines to product lines. What a killed process ran is not counted, so the numbers are a floor.
"""
import json
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
LAYERS = ("base", "cloud", "hooks", "checkpoint", "supervisor")
GOAL = {"base": 90.0, "checkpoint": 90.0, "supervisor": 90.0}
RATIO = 1.2


def lines_of(folders, suffixes):
    total = 0
    for folder in folders:
        for path in (TOP / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file():
                total += len(path.read_bytes().splitlines())
    return total


def main():
    summary = TOP / "build" / "cover.json"
    command = [TOP / ".venv/bin/gcovr", "-r", TOP, "--object-directory", TOP / "build/cover",
               "--gcov-ignore-errors=no_working_dir_found", "--merge-mode-functions=separate",
               "--json-summary", summary]
    command += [f"--filter={layer}/.*\\.[ch]" for layer in LAYERS]
    subprocess.run([str(part) for part in command] + [str(TOP / "build/cover")], cwd=TOP,
                   check=True)
    files = json.loads(summary.read_text())["files"]
    files = [entry for entry in files if entry["line_total"] > 0]
    sums = {layer: [0, 0] for layer in LAYERS}
    for entry in sorted(files, key=lambda entry: entry["line_percent"]):
        covered, total = entry["line_covered"], entry["line_total"]
        print(f"{100 * covered / total:6.1f} %  {covered:5} of {total:5}  {entry['filename']}")
        layer = sums[entry["filename"].split("/")[0]]
        layer[0] += covered
        layer[1] += total
    low = False
    for name, (covered, total) in sums.items():
        percent = 100 * covered / max(total, 1)
        below = percent < GOAL.get(name, 0)
        low = low or below
        print(f"{name:12} {percent:5.1f} %{'  below the goal' if below else ''}")
    product = lines_of(LAYERS, {".c", ".h", ".py"})
    tests = lines_of(["tests"], {".c", ".h", ".py", ".pml", ".sh"})
    print(f"test lines : product lines = {tests} : {product} = "
          f"{tests / product:.2f} (goal {RATIO})")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
