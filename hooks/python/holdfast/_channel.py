# SPDX-License-Identifier: Apache-2.0
"""The socket to the supervisor: JSON lines, never waiting."""

import json
import os
import socket

LINE_BYTES = 65536
_UNSENT_MAX = 4 * LINE_BYTES
_ADDRESS_MAX = 107


def encode_path(path):
    """A byte string as JSON: text where it is UTF-8, else {"hex": ...}."""
    try:
        return path.decode("utf-8")
    except UnicodeDecodeError:
        return {"hex": path.hex()}


def decode_path(value):
    if isinstance(value, str):
        return value.encode("utf-8")
    return bytes.fromhex(value["hex"])


def _connect(sock, path):
    """A path that is longer than a socket's address is reached through its folder."""
    if len(os.fsencode(path)) <= _ADDRESS_MAX:
        sock.connect(path)
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sock.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
    finally:
        os.close(folder)


class Channel:
    """One connection. After an error `sock` is None and the object is of no more use."""

    def __init__(self, path):
        self.sock = None
        self._in = b""
        self._out = b""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.setblocking(False)
            _connect(self.sock, path)
        except OSError:
            self.close()

    def close(self):
        if self.sock is not None:
            self.sock.close()
            self.sock = None

    def __del__(self):
        self.close()  # or the socket would warn on stderr in development mode

    @property
    def unsent(self):
        return len(self._out)

    def send(self, message):
        """A message that is too long for one line is not sent."""
        line = json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"
        if len(line) > LINE_BYTES:
            return
        if len(self._out) + len(line) > _UNSENT_MAX:
            self.close()
            return
        self._out += line
        self.flush()

    def flush(self):
        while self._out and self.sock is not None:
            try:
                self._out = self._out[self.sock.send(self._out) :]
            except BlockingIOError:
                return
            except OSError:
                self.close()

    def receive(self):
        """The messages that have come."""
        messages = []
        while self.sock is not None:
            try:
                data = self.sock.recv(LINE_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                self.close()
                break
            self._in += data
            lines = self._in.split(b"\n")
            self._in = lines.pop()
            if len(self._in) > LINE_BYTES:
                self.close()
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:
                    continue
                if isinstance(message, dict):
                    messages.append(message)
        return messages
