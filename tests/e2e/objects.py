# SPDX-License-Identifier: Apache-2.0
"""Object stores for tests: real ones on loopback (SeaweedFS, moto's server), and a server of our
own that keeps objects in memory, speaks enough of S3, and fails as it is told (simulated)."""
import base64
import hashlib
import json
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

from support import TOP, until

KEY, SECRET = "HFTESTACCESSKEY", "planted-secret-7f1d03c2"
BIN = TOP / ".venv" / "bin"


def free_ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return ports


def answers(url):
    try:
        urllib.request.urlopen(url, timeout=1).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


class Server:
    """A process that serves; its bucket is made."""

    def __init__(self, command, cwd, url):
        self.log = open(Path(cwd) / "server.log", "wb")
        self.proc = subprocess.Popen([str(c) for c in command], cwd=cwd, stdout=self.log,
                                     stderr=subprocess.STDOUT)
        self.url = url
        until(lambda: answers(url) or self.proc.poll() is not None, f"the server at {url}", 120)
        until(lambda: self.make_bucket() or self.proc.poll() is not None, "a bucket", 120)

    def client(self):
        import boto3
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1",
                            aws_access_key_id=KEY, aws_secret_access_key=SECRET)

    def make_bucket(self):
        from botocore.exceptions import BotoCoreError, ClientError
        try:
            self.client().create_bucket(Bucket="bucket")
        except (BotoCoreError, ClientError):
            return False
        return True

    def stop(self):
        self.proc.terminate()
        self.proc.wait()
        self.log.close()


def started(start, folder):
    """A port may be taken between its choice and its use: then others are tried."""
    for n in range(3):
        place = folder / str(n)
        place.mkdir()
        server = start(place)
        if server.proc.poll() is None:
            return server
        server.stop()
    raise AssertionError((place / "server.log").read_text()[-2000:])


def seaweed(folder):
    master, volume, filer, s3, *grpc = free_ports(8)
    (folder / "s3.json").write_text(json.dumps({"identities": [{
        "name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List"]}]}))
    return Server([BIN / "weed", "-v", "0", "server", f"-dir={folder}", "-ip=127.0.0.1",
                   f"-master.port={master}", f"-master.port.grpc={grpc[0]}",
                   f"-volume.port={volume}", f"-volume.port.grpc={grpc[1]}", "-filer=true",
                   f"-filer.port={filer}", f"-filer.port.grpc={grpc[2]}", "-s3=true",
                   f"-s3.port={s3}", f"-s3.port.grpc={grpc[3]}", "-s3.config=s3.json",
                   "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.iam=false",
                   "-volume.max=20", "-master.volumeSizeLimitMB=100"], folder,
                  f"http://127.0.0.1:{s3}")


def moto(folder):
    port, = free_ports(1)
    return Server([BIN / "moto_server", "-p", port], folder, f"http://127.0.0.1:{port}")


class Role:
    """The metadata service of a machine with a role (simulated): keys K1, K2, ... each good for
    `lasts` seconds; every look may bring new ones."""

    def __init__(self, lasts):
        self.given, self.asked, self.lasts, self.ready = 0, [], lasts, True
        role = self

        class Service(BaseHTTPRequestHandler):
            def log_message(self, *args):
                pass

            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self):
                ttl = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                self.answer(200 if ttl and self.path == "/latest/api/token" else 400, b"session==")

            def do_GET(self):
                role.asked.append(self.path)
                path = "/latest/meta-data/iam/security-credentials/"
                if self.headers.get("X-aws-ec2-metadata-token") != "session==":
                    self.answer(401)
                elif not role.ready:
                    self.answer(503)
                elif self.path == path:
                    self.answer(200, b"the-role")
                elif self.path == path + "the-role":
                    role.given += 1
                    end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + role.lasts))
                    self.answer(200, json.dumps({
                        "Code": "Success", "AccessKeyId": f"K{role.given}", "Expiration": end,
                        "SecretAccessKey": SECRET, "Token": f"token-{role.given}"}).encode())
                else:
                    self.answer(404)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Faulty:
    """Objects in memory. `plan` is called for each request and gives what goes wrong with it: None,
    a status with a code, or one of the words of Handler.fail."""

    def __init__(self, tls=None):
        """tls: the certificate and the key, two files."""
        self.objects = {}
        self.go_on = threading.Event()  # what ends a "hang"
        self.asked = []
        self.plan = lambda ask: None
        self.skew = 0
        self.region = "us-east-1"
        self.page = 1000
        self.lock = threading.Lock()
        store = self

        class Bound(Handler):
            faulty = store
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self.server.daemon_threads = True
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"
        if tls:
            self.context = context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.go_on.set()
        self.server.shutdown()
        self.server.server_close()


class Ask:
    def __init__(self, method, path, headers, body):
        parts = urllib.parse.urlsplit(path)
        self.method, self.headers, self.body = method, headers, body
        self.query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
        self.key = urllib.parse.unquote(parts.path).removeprefix("/bucket/")
        self.lists = method == "GET" and "list-type" in self.query
        scope = re.search(r"Credential=([^/]+)/(\d+)/([^/]+)/s3", headers.get("authorization", ""))
        self.access_key, self.region = scope.group(1), scope.group(3)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def date_time_string(self, timestamp=None):
        return formatdate(time.time() + self.faulty.skew, usegmt=True)

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def error(self, status, code, **headers):
        text = f"<Error><Code>{code}</Code><Message>as planned</Message></Error>"
        self.reply(status, text.encode(), **headers)

    def reset(self):
        """Closes at once, with a RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.connection.close()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        if self.headers.get("content-md5", md5) != md5:
            self.error(400, "BadDigest")
            return
        tls = self.faulty.url.startswith("https")
        assert self.headers["x-amz-content-sha256"] == (
            "UNSIGNED-PAYLOAD" if tls else hashlib.sha256(body).hexdigest())
        ask = Ask(self.command, self.path, self.headers, body)
        with self.faulty.lock:
            self.faulty.asked.append(ask)
            fault = self.faulty.plan(ask)
        if isinstance(fault, tuple):
            self.error(*fault[:2], **(fault[2] if len(fault) > 2 else {}))
        elif fault == "reset":
            self.reset()
        elif fault == "hang":
            self.faulty.go_on.wait()
            self.reset()
        elif fault == "lost":  # done, and nobody hears of it
            self.do(ask, quiet=True)
            self.reset()
        elif fault == "head":  # done, and the reply's headers are cut off
            self.do(ask, quiet=True)
            self.wfile.write(b'HTTP/1.1 200 OK\r\nETag: "1"\r\nContent-Len')
            self.close_connection = True
        elif fault == "portal":
            self.reply(200, b"<html><body>Please log in<br></body></html>")
        elif fault == "short":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
            self.reset()
        else:
            self.do(ask)

    do_GET = do_PUT = do_DELETE = lambda self: self.serve()

    def do(self, ask, quiet=False):
        f = self.faulty
        with f.lock:
            if ask.region != f.region:
                return self.error(301, "PermanentRedirect", x_amz_bucket_region=f.region)
            if quiet and ask.method == "GET":
                return None
            if ask.lists:
                return self.reply(200, self.listing(ask).encode())
            there = f.objects.get(ask.key)
            if ask.method == "GET":
                return (self.reply(200, there, ETag='"1"') if there is not None
                        else self.error(404, "NoSuchKey"))
            if ask.method == "DELETE":
                f.objects.pop(ask.key, None)
                return None if quiet else self.reply(204)
            if there is not None and ask.headers.get("if-none-match") == "*":
                return self.error(412, "PreconditionFailed")
            f.objects[ask.key] = ask.body
        return None if quiet else self.reply(200, ETag='"1"')

    def listing(self, ask):
        f = self.faulty
        keys = sorted(k for k in f.objects if k.startswith(ask.query["prefix"])
                      and k > ask.query.get("continuation-token", ""))
        more = len(keys) > f.page
        keys = keys[:f.page]
        rows = "".join(f"<Contents><Key>{escape(urllib.parse.quote(k))}</Key>"
                       f"<Size>{len(f.objects[k])}</Size></Contents>" for k in keys)
        after = f"<NextContinuationToken>{escape(keys[-1])}</NextContinuationToken>" if more else ""
        return (f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{after}{rows}"
                "</ListBucketResult>")
