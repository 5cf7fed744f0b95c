# SPDX-License-Identifier: Apache-2.0
"""A real supervisor whose command does nothing: the test itself plays the ranks, by wire.py."""
import json

import wire
from support import PYTHON, until

COMMAND = ("import json, os, sys, time\n"
           "json.dump(dict(os.environ), open(sys.argv[1] + '.new', 'w'))\n"
           "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
           "while True: time.sleep(1000)\n")


class Sleeper:
    def __init__(self, hf, *options, **popen):
        report = hf.tmp / "env.json"
        self.hf = hf
        self.child = hf.run_start(*options, command=[PYTHON, "-c", COMMAND, str(report)], **popen)
        until(report.exists, "the command's environment")
        self.env = json.loads(report.read_text())
        self.control = wire.Control(self.env["HOLDFAST_CONTROL"])
        self.pid = self.child.pid

    def line(self):
        return wire.Line(self.env["HOLDFAST_SOCKET"])

    def rank(self, rank=0, world=1, **more):
        r = wire.Rank(self.env, rank, world, **more)
        answer = r.join()
        assert answer["msg"] == "welcome", answer
        return r

    def state(self):
        return wire.unpack(self.control.head.word)

    def until_state(self, state):
        return until(lambda: self.state()[0] == state and self.state(), f"state {state}")

    def lives(self):
        """It runs, and takes a new rank's word."""
        assert self.child.proc.poll() is None, self.child.err
        line = self.line()
        line.sync()
        line.close()
        return True
