# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/: the systemd unit by `systemd-analyze verify` and by its meaning, the
Kubernetes Job by its structure (a reader of the YAML that it uses, and the fields that batch/v1
has; no cluster is asked). Both call a Holdfast that exists, with flags that exist."""
import re
import shlex
import shutil
import subprocess

import pytest

from support import BIN, TOP, trainer, until

UNIT = TOP / "docs" / "holdfast@.service"
JOB = TOP / "docs" / "kubernetes-job.yaml"


def unit():
    """{section: {name: [values]}}"""
    found, section = {}, None
    for line in UNIT.read_text().splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and line[0] not in "#;":
            name, value = line.split("=", 1)
            section.setdefault(name, []).append(value)
    return found


def seconds(text):
    value, what = re.fullmatch(r"(\d+)(s|m)?", text).groups()
    return int(value) * (60 if what == "m" else 1)


def flags_are_known(words):
    """Every option before the wrapped command is one that `holdfast run` has."""
    assert words[1] == "run" and "--" in words
    options = words[2:words.index("--")]
    done = subprocess.run([BIN, "run", *options, "--help"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert words[words.index("--") + 1:], "nothing is wrapped"
    return options


def test_systemd_takes_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    path = tmp_path / "holdfast@cat-1.service"
    path.write_text(UNIT.read_text().replace("/usr/local/bin/holdfast", str(BIN)))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True,
                          text=True)
    # Without a running systemd it says that it cannot find units of the system.
    ours = [line for line in done.stderr.splitlines() if "holdfast" in line]
    assert not ours, ours
    path.write_text(path.read_text().replace("KillMode=mixed", "KillMode=mixd"))
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True,
                          text=True)
    assert "mixd" in done.stderr, "a mistake in it would not be found"


def test_what_the_unit_means():
    service = unit()["Service"]
    env = dict(value.split("=", 1) for value in service["Environment"])
    assert service["KillMode"] == ["mixed"]
    assert seconds(service["TimeoutStopSec"][0]) >= seconds(env["HOLDFAST_GRACE"]) + 10
    assert service["SuccessExitStatus"] == service["RestartForceExitStatus"] == ["75"]
    assert service["RestartPreventExitStatus"] == ["125 126 127"]
    assert service["Restart"] == ["on-abnormal"]
    options = flags_are_known(shlex.split(service["ExecStart"][0].replace("%i", "cat-1")))
    assert "--store-survives" in options
    help_text = subprocess.run([BIN, "run", "--help"], capture_output=True, text=True).stdout
    for name in env:
        flag = name.removeprefix("HOLDFAST_").lower().replace("_", "-")
        assert f"--{flag} " in help_text, name


def test_the_unit_behaves(hf):
    """What systemd would do to it: SIGTERM to the main process alone, whose exit status is then one
    that the unit names; started again it goes on."""
    service = unit()["Service"]
    env = dict(value.split("=", 1) for value in service["Environment"])
    hf.env["HOLDFAST_GRACE"] = env["HOLDFAST_GRACE"]
    command = trainer("loop.py", "--steps", 100000, "--step-ms", 5)
    options = [f"--store=file://{hf.tmp}/store", "--store-survives"]
    child = hf.run_start(*options, command=command)
    until(lambda: hf.step() >= 3, "three steps")
    child.proc.terminate()
    status = child.wait(seconds(service["TimeoutStopSec"][0]))
    assert str(status) in service["SuccessExitStatus"] + service["RestartForceExitStatus"]
    child = hf.run_start(*options, command=command)
    until(lambda: hf.events("restored", 2), "the second attempt")
    assert hf.events("restored", 2)[0]["any"]
    child.proc.terminate()
    assert child.wait() == status
    child = hf.run("--evry=5m", command=command)
    assert str(child.status) in service["RestartPreventExitStatus"][0].split()


def scalar(text):
    if text.startswith("[") and text.endswith("]"):
        return [scalar(part.strip()) for part in text[1:-1].split(",")]
    if text == "{}":
        return {}
    if text[0] == '"':
        return text[1:-1]
    assert text not in ("yes", "no", "on", "off", "true", "false"), "quote it"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def block(lines, indent):
    """The mapping, list or scalar that starts at this indentation; takes its lines away."""
    result = None
    while lines and lines[0][0] >= indent:
        depth, text = lines[0]
        assert depth == indent, f"indentation: {text}"
        if text.startswith("- "):
            result = [] if result is None else result
            lines[0] = (indent + 2, text[2:])
            item = text[2:]
            if re.match(r"[\w.-]+:( |$)", item):
                result.append(block(lines, indent + 2))
            else:
                lines.pop(0)
                result.append(scalar(item))
        else:
            result = {} if result is None else result
            key, value = re.fullmatch(r"([\w.-]+):(?: (.*))?", text).groups()
            assert key not in result, f"twice: {key}"
            lines.pop(0)
            result[key] = scalar(value) if value else block(lines, lines[0][0])
    return result


def job():
    lines = [(len(line) - len(line.lstrip()), line.strip()) for line in JOB.read_text().splitlines()
             if line.strip() and not line.lstrip().startswith("#")]
    return block(lines, 0)


def only(obj, *names):
    """The values of exactly these fields."""
    assert set(obj) == set(names), set(obj) ^ set(names)
    return [obj[name] for name in names]


def test_the_job():
    api, kind, meta, spec = only(job(), "apiVersion", "kind", "metadata", "spec")
    assert (api, kind) == ("batch/v1", "Job") and re.fullmatch(r"[a-z0-9-]{1,63}", meta["name"])
    backoff, policy, template = only(spec, "backoffLimit", "podFailurePolicy", "template")
    assert backoff >= 1
    rules = policy["rules"]
    assert [rule["action"] for rule in rules] == ["Ignore", "Ignore", "FailJob"]
    pod, = only(template, "spec")
    never, grace, containers, volumes = only(pod, "restartPolicy", "terminationGracePeriodSeconds",
                                             "containers", "volumes")
    assert never == "Never", "podFailurePolicy needs it"
    container, = containers
    name, _, command, env, mounts = only(container, "name", "image", "command", "env",
                                         "volumeMounts")
    for rule in rules[0], rules[2]:
        codes = rule["onExitCodes"]
        assert codes["containerName"] == name and codes["operator"] == "In"
        assert all(type(code) is int and 0 < code < 256 for code in codes["values"])
    assert rules[0]["onExitCodes"]["values"] == [75]
    assert rules[1]["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert rules[2]["onExitCodes"]["values"] == [125, 126, 127]
    options = flags_are_known(command)
    ours = next(o for o in options if o.startswith("--grace=")).split("=")[1]
    assert grace >= seconds(ours) + 10
    assert f"--run={meta['name']}" in options and "--store-survives" in options
    assert {mount["name"] for mount in mounts} == {volume["name"] for volume in volumes}
    places = {mount["name"]: mount["mountPath"] for mount in mounts}
    assert f"--store=file://{places['checkpoints']}" in options
    assert {"name": "HOLDFAST_STATE_DIR", "value": places["state"]} in env


def test_the_pages_name_their_files():
    for page, example in (("systemd.md", UNIT), ("kubernetes.md", JOB)):
        assert f"({example.name})" in (TOP / "docs" / page).read_text()
