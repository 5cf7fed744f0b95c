# SPDX-License-Identifier: Apache-2.0
"""A scripted instance metadata service (IMDSv2), written from its public description: a token by
PUT, then GETs that bear it; 404 means that no notice stands.

Run as a program it serves on one address until it is killed, for a network namespace of its own:
    imds.py ADDRESS PORT NOTICE-FILE     the notice appears when the file does
"""
import datetime
import http.server
import json
import os
import secrets
import socket
import sys
import threading
import time

TOKEN_PATH = "/latest/api/token"
NOTICE_PATH = "/latest/meta-data/spot/instance-action"
HINT_PATH = "/latest/meta-data/events/recommendations/rebalance"


def utc(seconds_from_now):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds_from_now)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


class Imds:
    def __init__(self, address="127.0.0.1", port=0):
        self.lock = threading.Lock()
        self.notice = None       # what instance-action answers, None: 404
        self.hint = None         # the time of a rebalance recommendation, None: 404
        self.hint_path = HINT_PATH
        self.tokens = set()
        self.token_uses = None   # a token is good for so many GETs, None: for ever
        self.uses = {}
        self.script = []         # statuses to answer with first, one a request
        self.mute = False        # nothing is answered
        self.mute_tokens = False  # PUT is accepted and never answered: a hop limit of 1
        self.requests = []       # (method, path, status)
        self.over = threading.Event()
        service = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self):
                self.answer(*service.put(self))

            def do_GET(self):
                self.answer(*service.get(self))

            def answer(self, status, body="", headers=()):
                with service.lock:
                    service.requests.append((self.command, self.path, status))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.server = Server((address, port), Handler)
        self.url = "http://%s:%d" % self.server.server_address[:2]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def scripted(self):
        with self.lock:
            return self.script.pop(0) if self.script else None

    def put(self, request):
        if self.mute_tokens:
            self.over.wait(60)
        status = self.scripted()
        if status is not None:
            return status, "scripted"
        ttl = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
        if request.path != TOKEN_PATH or not ttl.isdigit() or not 1 <= int(ttl) <= 21600:
            return 400, "bad token request"
        token = secrets.token_urlsafe(40)
        with self.lock:
            self.tokens.add(token)
        return 200, token, [("X-aws-ec2-metadata-token-ttl-seconds", ttl)]

    def get(self, request):
        if self.mute:
            self.over.wait(5)
        status = self.scripted()
        if status is not None:
            return status, "scripted"
        token = request.headers.get("X-aws-ec2-metadata-token", "")
        with self.lock:
            if token not in self.tokens:
                return 401, "no token"
            self.uses[token] = self.uses.get(token, 0) + 1
            if self.token_uses is not None and self.uses[token] > self.token_uses:
                self.tokens.discard(token)
                return 401, "token has expired"
        if request.path == HINT_PATH and self.hint is not None:
            return 200, json.dumps({"noticeTime": self.hint}), [("Content-Type",
                                                                 "application/json")]
        if request.path != NOTICE_PATH or self.notice is None:
            return 404, "<?xml version='1.0'?><html>404 - Not Found</html>"
        return 200, json.dumps(self.notice), [("Content-Type", "application/json")]

    def give_notice(self, seconds=120, action="terminate"):
        self.notice = {"action": action, "time": utc(seconds)}

    def statuses(self, path=NOTICE_PATH):
        with self.lock:
            return [s for _, p, s in self.requests if p == path]

    def close(self):
        self.over.set()
        self.server.shutdown()
        self.server.server_close()


class Hole:
    """An address that takes no connection and refuses none: its queue is full."""

    def __init__(self):
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(0)
        self.url = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        self.fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self.listener.getsockname())
            self.fillers.append(filler)

    def close(self):
        for one in [self.listener, *self.fillers]:
            one.close()


def main():
    service = Imds(sys.argv[1], int(sys.argv[2]))
    print("ready", flush=True)
    while True:
        if service.notice is None and os.path.exists(sys.argv[3]):
            service.give_notice()
        time.sleep(0.02)


if __name__ == "__main__":
    main()
