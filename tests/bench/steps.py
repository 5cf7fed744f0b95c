# SPDX-License-Identifier: Apache-2.0
"""What run.step() costs in Python: prints "active" or "outside" and nanoseconds a call."""
import sys
import time

import holdfast


def main():
    run = holdfast.init()
    steps = int(sys.argv[1])
    begun = time.perf_counter_ns()
    for step in range(steps):
        pass
    empty = time.perf_counter_ns() - begun
    begun = time.perf_counter_ns()
    for step in range(steps):
        if run.step(step):
            return 1
    took = time.perf_counter_ns() - begun
    print("active" if run.active else "outside", (took - empty) / steps)
    run.done()
    return 0


if __name__ == "__main__":
    sys.exit(main())
