# SPDX-License-Identifier: Apache-2.0
"""A training loop that knows nothing of Holdfast and saves the way a framework does. The layouts
are simulated: the names and the order of the files are the framework's, the content is ours.

    hf         checkpoint-N/, in place, trainer_state.json last; --limit N keeps the newest N
    deepspeed  global_stepN/ with a file a rank, then `latest` names it
    nanogpt    ckpt.pt, one file, over and over in place
    odd        state.bin, no known format, in place

It goes on from the highest number (or what `latest` names) without a look at whether that is whole,
as frameworks do, and fails if it is not; --load PATH or HOLDFAST_RESUME is taken first."""
import argparse
import hashlib
import io
import json
import os
import random
import shutil
import signal
import struct
import sys
import time
import zipfile
from pathlib import Path


class Writer:
    """Writes files piece by piece; dies by SIGKILL once so many bytes of a save are out."""

    def __init__(self, die_after, pause):
        self.left = die_after
        self.pause = pause

    def write(self, path, data):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "wb", buffering=0) as f:
            for at in range(0, len(data), 65536):
                piece = data[at:at + 65536]
                if self.left is not None and len(piece) >= self.left:
                    f.write(piece[:self.left])
                    os.kill(os.getpid(), signal.SIGKILL)
                if self.left is not None:
                    self.left -= len(piece)
                f.write(piece)
                time.sleep(self.pause)


def torch_file(state, filler):
    """A zip as torch.save writes it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as z:
        z.writestr("archive/data.pkl", json.dumps(state))
        z.writestr("archive/version", "3\n")
        z.writestr("archive/data/0", filler)
    return out.getvalue()


def torch_state(path):
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        return json.loads(z.read("archive/data.pkl"))


def safetensors(filler):
    header = json.dumps({"w": {"dtype": "U8", "shape": [len(filler)],
                               "data_offsets": [0, len(filler)]}},
                        separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + filler


def files_of(layout, state, filler):
    step = state["step"]
    if layout == "hf":
        folder = f"checkpoint-{step}"
        return [(f"{folder}/config.json", b'{"model_type": "tiny"}'),
                (f"{folder}/model.safetensors", safetensors(filler)),
                (f"{folder}/optimizer.pt", torch_file(state, b"o")),
                (f"{folder}/scheduler.pt", torch_file(state, b"s")),
                (f"{folder}/rng_state.pth", torch_file(state, b"r")),
                (f"{folder}/trainer_state.json",
                 json.dumps({"global_step": step, "state": state}).encode())]
    if layout == "deepspeed":
        folder = f"global_step{step}"
        return [(f"{folder}/mp_rank_00_model_states.pt", torch_file(state, filler)),
                (f"{folder}/zero_pp_rank_0_mp_rank_00_optim_states.pt", torch_file(state, b"0")),
                (f"{folder}/zero_pp_rank_1_mp_rank_00_optim_states.pt", torch_file(state, b"1")),
                ("latest", folder.encode())]
    if layout == "nanogpt":
        return [("ckpt.pt", torch_file(state, filler))]
    return [("state.bin", json.dumps(state).encode())]


def newest(layout, folder):
    if layout == "hf":
        found = [p for p in folder.glob("checkpoint-*") if p.name.split("-")[1].isdigit()]
        return max(found, key=lambda p: int(p.name.split("-")[1]), default=None)
    if layout == "deepspeed":
        latest = folder / "latest"
        return folder / latest.read_text() if latest.exists() else None
    path = folder / ("ckpt.pt" if layout == "nanogpt" else "state.bin")
    return path if path.exists() else None


def load(layout, path):
    if layout == "hf":
        data = (path / "model.safetensors").read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        assert len(data) == 8 + size + json.loads(data[8:8 + size])["w"]["data_offsets"][1]
        torch_state(path / "optimizer.pt")
        return json.loads((path / "trainer_state.json").read_text())["state"]
    if layout == "deepspeed":
        states = [torch_state(p) for p in sorted(path.iterdir())]
        assert len(states) == 3 and all(s == states[0] for s in states)
        return states[0]
    return torch_state(path) if layout == "nanogpt" else json.loads(path.read_text())


def prune(folder, limit):
    found = sorted((p for p in folder.glob("checkpoint-*")),
                   key=lambda p: int(p.name.split("-")[1]))
    for old in found[:len(found) - limit] if limit else []:
        shutil.rmtree(old)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("layout", choices=["hf", "deepspeed", "nanogpt", "odd"])
    p.add_argument("folder", type=Path)
    p.add_argument("--every", type=int, default=5)
    p.add_argument("--steps", type=int, default=1000000)
    p.add_argument("--step-ms", type=float, default=10)
    p.add_argument("--piece-ms", type=float, default=0, help="pause after 64 KiB of a save")
    p.add_argument("--bytes", type=int, default=100000)
    p.add_argument("--limit", type=int, default=0)
    p.add_argument("--die-save", type=int, default=0, help="die in the Nth save...")
    p.add_argument("--die-after", type=int, default=0, help="...after so many bytes of it")
    p.add_argument("--from-scratch", action="store_true")
    p.add_argument("--ignore-environment", action="store_true")
    p.add_argument("--load", type=Path)
    a = p.parse_args()
    a.folder.mkdir(exist_ok=True)
    state = {"step": 0, "digest": hashlib.sha256(b"rank 0").hexdigest()}
    told = a.load or (None if a.ignore_environment else os.environ.get("HOLDFAST_RESUME"))
    path = Path(told) if told else newest(a.layout, a.folder)
    if path is not None and not a.from_scratch:
        state = load(a.layout, path)
    print("start %d" % state["step"], flush=True)
    saves = 0
    while state["step"] < a.steps:
        time.sleep(a.step_ms / 1000)
        digest = hashlib.sha256(f"{state['digest']}:{state['step']}".encode()).hexdigest()
        state = {"step": state["step"] + 1, "digest": digest}
        if state["step"] % a.every == 0:
            saves += 1
            writer = Writer(a.die_after if saves == a.die_save else None, a.piece_ms / 1000)
            filler = random.Random(digest).randbytes(a.bytes)
            for name, data in files_of(a.layout, state, filler):
                writer.write(a.folder / name, data)
            if a.layout == "hf":
                prune(a.folder, a.limit)
            print("saved %d" % state["step"], flush=True)
    print("digest %s" % state["digest"], flush=True)


if __name__ == "__main__":
    sys.exit(main())
