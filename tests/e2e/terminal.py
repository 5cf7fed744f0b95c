# SPDX-License-Identifier: Apache-2.0
"""A terminal with a program in it, as a person would have it."""
import fcntl
import os
import pty
import re
import signal
import struct
import termios
import threading

from support import until


class Terminal:
    def __init__(self, args, env, cwd, rows=33, columns=77):
        env = {**env, "TERM": "xterm-256color", "PS1": "prompt$ ", "HISTFILE": "/dev/null",
               "INPUTRC": "/dev/null"}
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.chdir(cwd)
                os.execvpe(args[0], [os.fspath(a) for a in args], env)
            finally:
                os._exit(127)
        self.data = b""
        self.seen = 0
        self.status = None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while True:
            try:
                chunk = os.read(self.fd, 65536)
            except OSError:
                return
            if not chunk:
                return
            self.data += chunk

    @property
    def text(self):
        return self.data.decode("utf-8", "replace")

    def type(self, text):
        os.write(self.fd, text.encode())

    def shows(self, pattern, deadline=30):
        """Waits for what a pattern matches, from where the last one ended."""
        def look():
            return re.compile(pattern, re.S).search(self.text, self.seen)
        try:
            match = until(look, f"{pattern!r} on the terminal", deadline)
        except AssertionError as e:
            raise AssertionError(f"{e}; shown: {self.text[self.seen:]!r}, all: {self.text!r}"
                                 ) from None
        self.seen = match.end()
        return match

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def modes(self):
        """iflag, oflag and lflag of the terminal."""
        mode = termios.tcgetattr(self.fd)
        return mode[0], mode[1], mode[3]

    def is_raw(self):
        """As Holdfast sets it: a shell's line editor leaves the keys for signals on."""
        return not self.modes()[2] & (termios.ICANON | termios.ISIG)

    def ended(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status is not None

    def wait(self, deadline=30):
        until(self.ended, f"the end of the program in the terminal; shown: {self.text!r}", deadline)
        self._reader.join(0.5)
        return self.status

    def close(self):
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            until(self.ended, "its end")
        os.close(self.fd)
