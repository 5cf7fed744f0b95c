# SPDX-License-Identifier: Apache-2.0
"""Prints all that a process is given by its parent, as JSON."""
import json
import os
import resource
import sys


def status_field(name):
    with open("/proc/self/status") as f:
        return next(line.split()[1] for line in f if line.startswith(name + ":"))


def main():
    text = os.fsdecode
    with open("/proc/self/cmdline", "rb") as f:
        argv = f.read().split(b"\0")[:-1]
    with open("/proc/self/environ", "rb") as f:
        env = [pair.partition(b"=") for pair in f.read().split(b"\0")[:-1]]
    mask = os.umask(0)
    os.umask(mask)
    fds = []
    for name in os.listdir("/proc/self/fd"):
        try:
            os.fstat(int(name))
            fds.append(int(name))
        except OSError:
            pass
    json.dump({
        "argv": [text(a) for a in argv],
        "env": [[text(k), text(v)] for k, _, v in env],
        "cwd": os.getcwd(),
        "umask": mask,
        "nice": os.nice(0),
        "mask": status_field("SigBlk"),
        "ignored": status_field("SigIgn"),
        "limits": [resource.getrlimit(n) for n in range(16)],
        "fds": sorted(fds),
        "tty": [os.isatty(n) for n in range(3)],
    }, sys.stdout)


if __name__ == "__main__":
    main()
