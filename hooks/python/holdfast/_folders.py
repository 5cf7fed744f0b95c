# SPDX-License-Identifier: Apache-2.0
"""Names of the folders that run.path() hands out."""


class Folders:
    """The name is a function of the attempt, the life, the step and `turn`, and turn is one of this
    rank's own calls: equal on all ranks that make the same calls. Within a turn each newly opened
    step is higher than all before, so no folder is handed out twice."""

    def __init__(self):
        self.turn = 0
        self.open_step = None  # handed out, not yet reported
        self.prefix = None  # of the open one
        self._top = -1

    def open(self, step, prefix):
        if step != self.open_step:
            if step <= self._top:
                self.turn += 1
            self._top = self.open_step = step
            self.prefix = prefix
        name = "%s-%d" % (self.prefix, step)
        return name if self.turn == 0 else "%s-%d" % (name, self.turn)

    def close(self):
        self.open_step = None
