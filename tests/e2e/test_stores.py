# SPDX-License-Identifier: Apache-2.0
"""s3:// against SeaweedFS and moto's server, and against a server of our own that fails as planned
(simulated): conformance, whole runs over several machines, and what each failure leads to."""
import itertools
import os
import re
import signal
import ssl
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import objects
from support import TOP, loop_digest, trainer, until

CONFORM = TOP / "build" / "conform"


def keys_env(url):
    return {"AWS_ACCESS_KEY_ID": objects.KEY, "AWS_SECRET_ACCESS_KEY": objects.SECRET,
            "AWS_EC2_METADATA_DISABLED": "true", "HOLDFAST_STORE_ENDPOINT": url,
            "HOLDFAST_STORE": "s3://bucket/runs"}


@pytest.fixture(scope="module", params=["seaweed", "moto"])
def real(request):
    with tempfile.TemporaryDirectory(prefix="hf-objects-") as folder:
        server = objects.started(getattr(objects, request.param), Path(folder))
        yield server
        server.stop()


@pytest.fixture
def faulty():
    server = objects.Faulty()
    yield server
    server.stop()


@pytest.fixture
def s3(hf, real):
    hf.env.update(keys_env(real.url))
    return hf


@pytest.fixture
def fs3(hf, faulty):
    hf.env.update(keys_env(faulty.url))
    return hf


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


# --- real stores --------------------------------------------------------------------------------


def test_conformance(real):
    env = {**os.environ, **keys_env(real.url), "HOLDFAST_TEST_STORE": "s3://bucket/conform"}
    done = subprocess.run([CONFORM], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_preempted_twice_and_finished_on_a_third_machine(s3, real, request):
    run = re.sub(r"\W", "-", request.node.name)[:40]
    child = None
    for machine in range(2):
        if machine:
            s3.new_machine()
        child = s3.preempt(looped(100000, "--pad", 70000), "--resume", "--block-size=64KiB",
                           run=run)
        assert child.status == 75, child.err
        assert "durable" in child.err
    s3.new_machine()
    step = s3.ckpt(run)[-1]["step"]
    child = s3.run("--resume", "--keep=1", run=run, command=looped(step + 30, "--own-every", 7,
                                                                  "--pad", 70000))
    assert child.status == 0 and f"start {step + 1}\n" in child.out, child.err
    assert f"digest {loop_digest(step + 30)}" in child.out
    assert "whole" in s3.call("ckpt", "verify", run).out
    # Another machine, which knows nothing of the run.
    s3.new_machine()
    there = s3.json("status", "--run", run, "--json")["runs"][0]
    assert (there["state"], there["outcome"], there["attempt"]) == ("ended", "finished", 3)
    assert "start 0\n" in s3.call("logs", "--attempt=1", run).out
    names = {o["Key"] for page in real.client().get_paginator("list_objects_v2").paginate(
        Bucket="bucket", Prefix=f"runs/{run}/") for o in page.get("Contents", [])}
    assert f"runs/{run}/run.json" in names and not [n for n in names if "probe" in n]
    # Retention has removed what nobody needs: beside the newest and the newest of the attempt
    # before, at most the last but one, where the end came before its turn.
    live = [c for c in s3.json("ckpt", "ls", run, "--json")["checkpoints"]
            if c["kind"] == "checkpoint" and not c["retired"]]
    assert len(live) <= 3 and len([c for c in live if c["attempt"] < 3]) <= 1
    assert s3.call("ckpt", "gc", run).out.startswith("removed: 0 blocks")


def test_two_machines_of_one_run(s3, request):
    run = re.sub(r"\W", "-", request.node.name)[:40]
    first = s3.run_start("--heartbeat=100ms", run=run, command=looped(100000))
    s3.waits_for("joined", run=run)
    home, s3.state = s3.state, s3.tmp / "other"
    s3.env["HOLDFAST_STATE_DIR"] = str(s3.state)
    second = s3.run("--heartbeat=100ms", run=run, command=looped(100000))
    assert second.status == 125 and "attempt 1, started" in second.err
    s3.state = home
    first.kill(signal.SIGTERM)
    assert first.wait() == 75


def test_no_secret_anywhere(s3, real, request):
    run = re.sub(r"\W", "-", request.node.name)[:40]
    child = s3.run_start("--debug", run=run, command=looped(100000, "--own-every", 5))
    s3.waits_for("verdict", run=run)
    assert objects.SECRET not in Path(f"/proc/{child.pid}/cmdline").read_text()
    said = s3.call("status", "--json").out + s3.call("ckpt", "ls", run, "--debug").err
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    s3.env["AWS_SECRET_ACCESS_KEY"] = objects.SECRET + "-wrong"
    said += s3.call("doctor", "--spend=1s", status=1 if "seaweed" in request.node.name else 0).err
    assert objects.SECRET not in said + child.err + child.out
    for path in s3.tmp.rglob("*"):
        assert not path.is_file() or objects.SECRET.encode() not in path.read_bytes(), path
    for page in real.client().get_paginator("list_objects_v2").paginate(Bucket="bucket",
                                                                       Prefix=f"runs/{run}/"):
        for o in page["Contents"]:
            body = real.client().get_object(Bucket="bucket", Key=o["Key"])["Body"].read()
            assert objects.SECRET.encode() not in body, o["Key"]


# --- against botocore ---------------------------------------------------------------------------


def test_signatures_as_botocore_makes_them(fs3, faulty):
    """Every request of a whole run, signed again by botocore from what arrived."""
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from unittest import mock
    import datetime
    fs3.env["AWS_SESSION_TOKEN"] = "to/ken+=="
    assert fs3.run("--keep=1", command=looped(40, "--own-every", 9)).status == 0
    fs3.call("ckpt", "gc", "r")
    kinds = {a.method if not a.lists else "LIST" for a in faulty.asked}
    assert kinds == {"GET", "PUT", "DELETE", "LIST"}
    for ask in faulty.asked:
        stamp = ask.headers["x-amz-date"]
        query = "&".join(f"{k}={objects.urllib.parse.quote(v, safe='-_.~')}"
                         for k, v in ask.query.items())
        path = objects.urllib.parse.quote("/bucket/" + ("" if ask.lists else ask.key))
        signed = re.search(r"SignedHeaders=([^,]+)", ask.headers["authorization"]).group(1)
        again = AWSRequest(ask.method, f"{faulty.url}{path}" + (f"?{query}" if query else ""),
                           {h: ask.headers[h] for h in signed.split(";")
                            if h in ("if-none-match", "content-type", "content-md5")}, ask.body)
        at = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
        with mock.patch("botocore.auth.get_current_datetime", return_value=at), \
                mock.patch.object(S3SigV4Auth, "payload", return_value=ask.headers[
                    "x-amz-content-sha256"]):
            S3SigV4Auth(Credentials(objects.KEY, objects.SECRET, "to/ken+=="), "s3",
                        "us-east-1").add_auth(again)
        assert again.headers["Authorization"] == ask.headers["authorization"], ask.key


# --- failures (simulated) -----------------------------------------------------------------------

TRANSIENT = [(503, "SlowDown"), (500, "InternalError"), (400, "RequestTimeout"),
             (409, "ConditionalRequestConflict"), (429, "TooManyRequests"),
             (200, "InternalError"), "reset", "lost", "head", "portal"]


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_run_in_bad_weather(fs3, faulty, every):
    """Each request may fail for a while; what is reported is what is there, and nothing is done
    twice."""
    count, kinds = itertools.count(1), itertools.cycle(TRANSIENT)
    faulty.plan = lambda ask: next(kinds) if next(count) % every == 0 else None
    child = fs3.preempt(looped(100000, "--pad", 70000), "--block-size=64KiB", "--grace=60s")
    assert child.status == 75, child.err
    faulty.plan = lambda ask: None
    step = fs3.ckpt()[-1]["step"]
    assert "whole" in fs3.call("ckpt", "verify", "r").out
    fs3.new_machine()
    child = fs3.run("--resume", command=looped(step + 5, "--pad", 70000))
    assert f"digest {loop_digest(step + 5)}" in child.out, child.err
    assert sorted(k for k in faulty.objects if re.search(r"attempts/\d+\.json$", k)) == [
        f"runs/r/attempts/{n:06}.json" for n in (1, 2, 3)]


@pytest.mark.parametrize("fault", ["lost", "head", (200, "SlowDown"), (503, "SlowDown")])
def test_whose_an_object_is_after_a_lost_reply(fs3, faulty, fault):
    """The first try of each create-only put may have been carried out: then the second finds it
    there, and it is ours; another's is not."""
    seen = set()

    def first(ask):
        if ask.method != "PUT" or "if-none-match" not in ask.headers or ask.key in seen:
            return None
        seen.add(ask.key)
        return fault
    faulty.plan = first
    child = fs3.run(command=looped(20, "--own-every", 5))
    assert child.status == 0 and f"digest {loop_digest(20)}" in child.out, child.err
    assert len(seen) > 4
    assert not child.warnings


def test_an_answer_that_is_no_stores_is_not_believed(fs3, faulty):
    """A 404 that does not name the object says nothing of it."""
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    faulty.plan = lambda ask: (404, "") if ask.method == "GET" and not ask.lists else None
    fs3.new_machine()
    child = fs3.run(command=["touch", "ran"])
    assert child.status == 125 and "Is the endpoint an object store's?" in child.err
    assert not (fs3.work / "ran").exists()


def test_replies_that_are_cut_off_are_asked_for_again(fs3, faulty):
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    seen = set()

    def once_each(ask):
        there = ask.lists or ask.key in faulty.objects
        first = ask.method == "GET" and there and (ask.key, str(ask.query)) not in seen
        seen.add((ask.key, str(ask.query)))
        return "short" if first else None
    faulty.plan = once_each
    assert "whole" in fs3.call("ckpt", "verify", "r").out
    assert len(seen) > 3


def test_the_stores_clock_counts(fs3, faulty):
    """An hour apart: refused once, then signed by the store's clock."""
    faulty.skew = 3600

    def judge(ask):
        at = time.strptime(ask.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        late = abs(time.time() + 3600 - objects.time.mktime(at) + time.timezone) > 900
        return (403, "RequestTimeTooSkewed") if late else None
    faulty.plan = judge
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    stamps = [a.headers["x-amz-date"] for a in faulty.asked]
    assert len(stamps) > 5 and stamps[0] != stamps[1]
    wrong = [a for a in faulty.asked if judge(a)]
    assert len(wrong) == 1


def test_another_region_is_learned_once(fs3, faulty):
    faulty.region = "eu-west-1"
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    assert [a.region for a in faulty.asked].count("us-east-1") == 1
    asked = len(faulty.asked)
    assert fs3.call("ckpt", "ls", "r", "--store-region=eu-west-1").out
    assert {a.region for a in faulty.asked[asked:]} == {"eu-west-1"}


def test_keys_that_expire_are_found_again(fs3, faulty):
    """The file is renewed by another tool in the midst of a run."""
    path = fs3.tmp / "credentials"
    path.write_text("[default]\naws_access_key_id = OLD\naws_secret_access_key = one\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del fs3.env[name]
    fs3.env["AWS_SHARED_CREDENTIALS_FILE"] = str(path)
    child = fs3.run_start("--every=100ms", command=looped(100000))
    fs3.waits_for("verdict")
    path.write_text("[default]\naws_access_key_id = NEW\naws_secret_access_key = two\n")
    faulty.plan = lambda ask: (400, "ExpiredToken") if ask.access_key == "OLD" else None
    fs3.waits_for("verdict", number=max(e["number"] for e in fs3.events("verdict")) + 3)
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert not [e for e in fs3.events("verdict") if e["kind"] != "durable"]


@pytest.fixture
def role():
    server = objects.Role(lasts=7)
    yield server
    server.stop()


def test_keys_of_the_machines_role(fs3, faulty, role):
    """Found in the metadata service, and again ahead of their end: none that has ended is shown
    to the store, and a service that is out of order for a while costs nothing."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
        del fs3.env[name]
    fs3.env["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = role.url + "/"
    fs3.env["HOME"] = str(fs3.tmp)
    child = fs3.run_start("--every=100ms", "--heartbeat=100ms", command=looped(100000))
    fs3.waits_for("verdict")
    until(lambda: role.given > 2, "keys found again")
    role.ready = False
    asked = len(role.asked)
    until(lambda: len(role.asked) > asked, "a look in vain")
    role.ready = True
    fs3.waits_for("verdict", number=max(e["number"] for e in fs3.events("verdict")) + 3)
    child.kill(signal.SIGTERM)
    assert child.wait() == 75, child.err
    assert not [e for e in fs3.events("verdict") if e["kind"] != "durable"]
    for ask in faulty.asked:
        assert ask.headers["x-amz-security-token"] == f"token-{ask.access_key[1:]}"
        assert "x-amz-security-token" in ask.headers["authorization"]
    assert len({a.access_key for a in faulty.asked}) > 2


def test_no_keys_anywhere(fs3, faulty, role):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del fs3.env[name]
    fs3.env["HOME"] = str(fs3.tmp)
    child = fs3.run(command=["touch", "ran"])
    assert child.status == 125 and "no access key" in child.err
    assert "AWS_ACCESS_KEY_ID" in child.err and not (fs3.work / "ran").exists()
    assert not faulty.asked


def test_a_put_that_is_changed_on_its_way(fs3, faulty):
    """The store checks what arrives by the checksum that comes with it; a store that knows none is
    told none (--store-checksum none)."""
    bad = itertools.count(1)
    faulty.plan = lambda ask: ((400, "BadDigest") if ask.method == "PUT" and next(bad) % 4 == 0
                               else None)
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    puts = [a for a in faulty.asked if a.method == "PUT"]
    assert len(puts) > 8 and all("content-md5" in a.headers for a in puts)
    faulty.plan = lambda ask: (400, "InvalidDigest") if "content-md5" in ask.headers else None
    child = fs3.run(run="other", command=looped(20))
    assert child.status == 125 and "--store-checksum none" in child.err
    child = fs3.run("--store-checksum=none", run="other", command=looped(20, "--own-every", 5))
    assert child.status == 0, child.err


def test_listings_that_do_not_advance(fs3, faulty):
    assert fs3.run(command=looped(20, "--own-every", 5)).status == 0
    faulty.page = 2
    assert "whole" in fs3.call("ckpt", "verify", "r").out
    assert fs3.call("ckpt", "gc", "r").out.startswith("removed: 0 blocks")
    stuck = objects.Handler.listing
    try:
        objects.Handler.listing = lambda self, ask: (
            "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>same"
            "</NextContinuationToken></ListBucketResult>")
        assert "does not advance" in fs3.call("ckpt", "gc", "r", status=1).err
    finally:
        objects.Handler.listing = stuck


@pytest.mark.parametrize("fault,says,hint", [
    ((403, "AccessDenied"), "AccessDenied", "s3:PutObject"),
    ((403, "InvalidAccessKeyId"), "InvalidAccessKeyId", "AWS_ACCESS_KEY_ID"),
    ((403, "SignatureDoesNotMatch"), "SignatureDoesNotMatch", "AWS_SECRET_ACCESS_KEY"),
    ((404, "NoSuchBucket"), "NoSuchBucket", "the bucket 'bucket' spelt right"),
    ((507, "XMinioStorageFull"), "XMinioStorageFull", None),
])
def test_what_cannot_be_mended_is_said_at_the_start(fs3, faulty, fault, says, hint):
    faulty.plan = lambda ask: fault
    child = fs3.run(command=["touch", "ran"])
    assert child.status == 125 and says in child.err
    assert hint is None or hint in child.err
    assert not (fs3.work / "ran").exists()
    assert len(faulty.asked) <= 3, "what is final is not tried again"


def test_a_store_that_ignores_conditions_is_named(fs3, faulty):
    def forget(ask):
        if "if-none-match" in ask.headers:
            faulty.objects.pop(ask.key, None)
    faulty.plan = forget
    d = fs3.json("doctor", "--spend=1s", "--block-size=64KiB", "--json")
    assert d["create_only"] is False
    assert not faulty.objects
    child = fs3.run_start(command=looped(100000))
    fs3.waits_for("joined")
    assert fs3.status()["store_create_only"] is False
    assert "weaker" in fs3.call("status", "r").out
    child.kill(signal.SIGTERM)
    assert child.wait() == 75
    assert "overwrites what it is told only to create" in child.warnings[0]
    fs3.new_machine()
    assert fs3.json("status", "--run=r")["runs"][0]["store_create_only"] is None


def test_a_store_that_hangs_at_the_notice(fs3, faulty):
    """No process of the command is held; Holdfast goes on trying while the machine lives, and the
    save is durable when the store answers again, as late as it was."""
    child = fs3.run_start("--every=200ms", "--grace=3s", command=looped(100000))
    fs3.waits_for("verdict")
    faulty.plan = lambda ask: "hang" if ask.method == "PUT" and "/data/" in ask.key else None
    begun = time.monotonic()
    child.kill(signal.SIGTERM)
    fs3.waits_for("tree-gone")
    assert time.monotonic() - begun < 5, child.err
    time_over = fs3.events("notice")[0]["left_ms"] / 1000
    until(lambda: time.monotonic() - begun > time_over + 0.5, "the deadline")
    faulty.plan = lambda ask: None
    faulty.go_on.set()
    assert child.wait() == 75
    last = fs3.events("verdict")[-1]
    assert last["kind"] == "durable" and last["spare_ms"] < 0


def test_tls_and_a_certificate_of_ones_own(hf):
    cert, key = hf.tmp / "cert.pem", hf.tmp / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    faulty = objects.Faulty((cert, key))
    hf.env.update(keys_env(faulty.url))
    try:
        child = hf.run(command=["true"])
        assert child.status == 125 and "AWS_CA_BUNDLE" in child.err and not faulty.asked
        for name in ("AWS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
            hf.env[name] = str(cert)
            child = hf.run(command=looped(20, "--own-every", 5), run=name)
            assert child.status == 0, child.err
            del hf.env[name]
        hf.env["SSL_CERT_FILE"] = str(cert)
        assert hf.run("--tls=1.3", command=["true"], run="new").status == 0
        faulty.context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert hf.run(command=["true"], run="old").status == 0
        child = hf.run("--tls=1.3", command=["true"], run="older")
        assert child.status == 125 and "older TLS than --tls allows" in child.err
        hf.env["AWS_CA_BUNDLE"] = str(hf.tmp / "nosuch")
        assert hf.run(command=["true"]).status == 125
    finally:
        faulty.stop()
