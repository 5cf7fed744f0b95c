# SPDX-License-Identifier: Apache-2.0
"""A training loop that knows nothing of Holdfast: it renames finished checkpoints into a folder and
goes on from what it is told by HOLDFAST_RESUME or by an argument."""
import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path


def save(folder, kind, name, state):
    scratch = folder / ".scratch"
    if kind == "file":
        scratch.write_text(json.dumps(state))
    else:
        scratch.mkdir()
        (scratch / "state.json").write_text(json.dumps(state))
        (scratch / "sub").mkdir()
        (scratch / "sub" / "tensor.bin").write_bytes(bytes(range(256)) * 300)
        (scratch / "link").symlink_to("sub/tensor.bin")
    os.rename(scratch, folder / name)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder", type=Path)
    p.add_argument("--kind", choices=["file", "folder"], default="file")
    p.add_argument("--name", default="step_%d")
    p.add_argument("--every", type=int, default=5)
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--step-ms", type=float, default=20)
    p.add_argument("--load")
    a = p.parse_args()
    a.folder.mkdir(exist_ok=True)
    state = {"step": -1, "digest": hashlib.sha256(b"rank 0").hexdigest()}
    path = a.load or os.environ.get("HOLDFAST_RESUME")
    if path:
        state = json.loads((Path(path) / "state.json" if a.kind == "folder" else Path(path))
                           .read_text())
    print("start %d" % (state["step"] + 1), flush=True)
    for step in range(state["step"] + 1, a.steps):
        time.sleep(a.step_ms / 1000)
        digest = hashlib.sha256(f"{state['digest']}:{step}".encode()).hexdigest()
        state = {"step": step, "digest": digest}
        if step % a.every == a.every - 1:
            save(a.folder, a.kind, a.name % step, state)
            print("saved %d" % step, flush=True)
    print("digest %s" % state["digest"], flush=True)


if __name__ == "__main__":
    sys.exit(main())
