# SPDX-License-Identifier: Apache-2.0
"""Encrypted runs as docs/formats.md has them, by the `cryptography` package and from that document
alone: what opens a store for reader.py, and what makes the vectors that the product is held to.

    unseal.py > ../data/crypt-1.json      the vectors
"""
import base64
import hashlib
import hmac
import json

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

SEGMENT = 1048576
HEAD = b'{"format":1,"features":["encrypted"],"type":"sealed","body":"'
PIECE = (0x184D2A50).to_bytes(4, "little") + (12).to_bytes(4, "little") + b'{"format":2}'


class Refused(Exception):
    """It is not what was sealed."""


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def expand(key, info):
    return HKDFExpand(SHA256(), 32, info).derive(key)


def nonce(i, last):
    return bytes(7) + i.to_bytes(4, "big") + bytes([last])


def seal(key, text, bound=b""):
    parts = [text[at:at + SEGMENT] for at in range(0, len(text), SEGMENT)] or [b""]
    aead = AESGCM(key)
    return b"".join(aead.encrypt(nonce(i, i + 1 == len(parts)), p, bound or None)
                    for i, p in enumerate(parts))


def unseal(key, data, bound=b""):
    whole = SEGMENT + 16
    parts = [data[at:at + whole] for at in range(0, len(data), whole)]
    if not parts:
        raise Refused("nothing")
    try:
        aead = AESGCM(key)
        return b"".join(aead.decrypt(nonce(i, i + 1 == len(parts)), p, bound or None)
                        for i, p in enumerate(parts))
    except (InvalidTag, ValueError):
        raise Refused("a segment's tag does not fit") from None


class Keys:
    def __init__(self, master):
        self.id, self.block, self.record_id, self.record, self.run, key_id = (
            expand(master, b"holdfast/1/" + label)
            for label in (b"id", b"block", b"record-id", b"record", b"run", b"key-id"))
        self.key_id = key_id[:8].hex()

    def block_id(self, plain):
        return mac(self.id, plain).hex()

    def block_key(self, ident, codec):
        return expand(self.block, codec.encode() + b"\0" + bytes.fromhex(ident))

    def seal_block(self, plain, codec="raw"):
        return seal(self.block_key(self.block_id(plain), codec), plain)

    def open_block(self, ident, data, codec="raw"):
        plain = unseal(self.block_key(ident, codec), data)
        if self.block_id(plain) != ident:
            raise Refused("another block")
        return plain

    def v(self, name, text):
        return mac(self.record_id, len(name).to_bytes(4, "big"), name.encode(), text)

    def seal_body(self, name, text):
        v = self.v(name, text)
        return v + seal(expand(self.record, v), text, name.encode())

    def open_body(self, name, body):
        v, rest = body[:32], body[32:]
        if len(v) < 32:
            raise Refused("too short")
        text = unseal(expand(self.record, v), rest, name.encode())
        if not hmac.compare_digest(self.v(name, text), v):
            raise Refused("another record")
        return text

    def seal_object(self, name, text):
        body = self.seal_body(name, text)
        if name.startswith("logs/"):
            return PIECE + body
        head = HEAD + base64.b64encode(body) + b'"'
        return head + b',"sum":"' + hashlib.sha256(head).hexdigest().encode() + b'"}'

    def open_object(self, name, data):
        if name.startswith("logs/"):
            if not data.startswith(PIECE):
                raise Refused("no encrypted piece")
            return self.open_body(name, data[len(PIECE):])
        head, tail = data[:-74], data[-74:]
        if tail != b',"sum":"' + hashlib.sha256(head).hexdigest().encode() + b'"}':
            raise Refused("its sum is wrong")
        if not head.startswith(HEAD) or not head.endswith(b'"'):
            raise Refused("it is not sealed")
        try:
            body = base64.b64decode(head[len(HEAD):-1], validate=True)
        except ValueError:
            raise Refused("no base64") from None
        return self.open_body(name, body)


def wrapping_key(kind, secret, way):
    salt = bytes.fromhex(way["salt"])
    if kind == "key-file":
        s = mac(salt, secret)
    else:
        s = Scrypt(salt, 32, way["n"], way["r"], way["p"]).derive(secret)
    return expand(s, b"holdfast/1/wrap/" + kind.encode())


def key_of_file(data):
    if len(data) == 32:
        return data
    return bytes.fromhex(data.decode().removesuffix("\n").removesuffix("\r"))


def open_run(text, run, kind, secret):
    """The keys of the run whose run.json this is."""
    record = json.loads(text)
    ways = [w for w in record["wraps"] if w["kind"] == kind]
    if record["features"] != ["encrypted"] or not ways:
        raise Refused(f"not encrypted under a {kind}")
    keys = Keys(unseal(wrapping_key(kind, secret, ways[0]), bytes.fromhex(ways[0]["wrapped"])))
    head, tail = text[:-74], text[-74:]
    if tail != b',"mac":"' + mac(keys.run, head).hex().encode() + b'"}':
        raise Refused("run.json was changed")
    if keys.open_body("run.json", bytes.fromhex(record["probe"])) != b"holdfast":
        raise Refused("the probe is another")
    if record["run"] != run or record["key_ids"] != [keys.key_id] \
            or ways[0]["key_id"] != keys.key_id:
        raise Refused("another run's")
    if (record["hash"], record["cipher"], record["segment_bytes"]) != \
            ("hmac-sha256", "aes-256-gcm", SEGMENT):
        raise Refused("another hash or cipher")
    return keys


# --- vectors ------------------------------------------------------------------------------------


def content(n):
    """What stands in place of n random bytes in the vectors."""
    return bytes((i * 131 + (i >> 8) * 17) & 0xff for i in range(n))


def run_text(master, kind, secret, **cost):
    keys = Keys(master)
    way = {"kind": kind, "key_id": keys.key_id, **cost, "salt": content(32).hex()}
    way["wrapped"] = seal(wrapping_key(kind, secret, way), master).hex()
    record = {"format": 1, "features": ["encrypted"], "type": "run", "run": "job",
              "hash": "hmac-sha256", "cipher": "aes-256-gcm", "block_bytes": 16777216,
              "store": {"create_only": True, "outlives": False}, "at_ms": 1796078221250,
              "key_ids": [keys.key_id], "segment_bytes": SEGMENT, "wraps": [way],
              "probe": keys.seal_body("run.json", b"holdfast").hex()}
    head = json.dumps(record, separators=(",", ":")).encode()[:-1]
    return (head + b',"mac":"' + mac(keys.run, head).hex().encode() + b'"}').decode()


def vectors():
    master = bytes(range(0x40, 0x60))
    keys = Keys(master)
    blocks = []
    for n in (1, 2, 16, 4096, SEGMENT - 1, SEGMENT, SEGMENT + 1, 2 * SEGMENT, 3 * SEGMENT + 17):
        plain = content(n)
        sealed = keys.seal_block(plain)
        one = {"len": n, "id": keys.block_id(plain), "stored": len(sealed),
               "sealed_sha256": hashlib.sha256(sealed).hexdigest(),
               "zeros": keys.block_id(bytes(n))}
        blocks.append(one | ({"sealed": sealed.hex()} if n <= 16 else {}))
    records = []
    for name, n in (("attempts/000001.json", 3), ("attempts/000003.alive", 70),
                    ("checkpoints/000001-000002.json", SEGMENT + 5),
                    ("logs/000003/000001.log.zst", 40), ("attempts/000001.end.json", 3)):
        stored = keys.seal_object(name, content(n))
        one = {"name": name, "len": n, "v": keys.v(name, content(n)).hex(),
               "stored_sha256": hashlib.sha256(stored).hexdigest()}
        records.append(one | ({"stored": stored.hex()} if n < 100 else {}))
    # Whole in every segment, and yet not what the key was made from.
    name, v = "attempts/000001.json", content(32)
    head = HEAD + base64.b64encode(v + seal(expand(keys.record, v), b"{}", name.encode())) + b'"'
    odd = head + b',"sum":"' + hashlib.sha256(head).hexdigest().encode() + b'"}'
    key, passphrase = content(32), "correct horse \u00e4"
    return {"master": master.hex(), "key_id": keys.key_id, "blocks": blocks, "records": records,
            "refused": {"name": name, "text": odd.decode()},
            "runs": [
                {"kind": "key-file", "secret": key.hex(),
                 "text": run_text(master, "key-file", key)},
                {"kind": "passphrase", "secret": passphrase.encode().hex(),
                 "text": run_text(master, "passphrase", passphrase.encode(), kdf="scrypt", n=1024,
                                  r=8, p=2)}]}


if __name__ == "__main__":
    print(json.dumps(vectors(), indent=1))
