# SPDX-License-Identifier: Apache-2.0
"""A command that leaves all kinds of descendants: argv[1] names a file that gets their pids; the
other words choose which. Each sleeps for ever and ignores SIGTERM."""
import os
import signal
import subprocess
import sys
import time

SLEEPER = ("import os,signal,sys,time\n"
           "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
           "open(sys.argv[1], 'a').write('%d\\n' % os.getpid())\n"
           "while True: time.sleep(1000)\n")


def start(book, **popen):
    return subprocess.Popen([sys.executable, "-c", SLEEPER, book], **popen)


def double_fork(book):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            start(book, env={}).wait()
        os._exit(0)


def chain(book):
    """Each generation lives for a moment only: whoever lists processes sees the last one."""
    if os.fork() != 0:
        return
    os.setsid()
    with open(book + ".chain", "w") as f:
        f.write("begun")
    while True:
        if os.fork() != 0:
            os._exit(0)


def main():
    book, kinds = sys.argv[1], sys.argv[2:]
    wanted = 0
    for kind in kinds:
        if kind == "setsid":
            start(book, start_new_session=True)
        elif kind == "double-fork":
            double_fork(book)
        elif kind == "no-environment":
            start(book, env={}, start_new_session=True)
        elif kind == "stopped":
            os.kill(start(book).pid, 0)
        elif kind == "chain":
            chain(book)
            continue
        wanted += 1
    while wanted and (not os.path.exists(book) or len(open(book).readlines()) < wanted):
        time.sleep(0.01)
    if "stopped" in kinds:
        for line in open(book).readlines()[:1]:
            os.kill(int(line), signal.SIGSTOP)
    signal.signal(signal.SIGTERM, lambda *_: None)
    print("up", flush=True)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
