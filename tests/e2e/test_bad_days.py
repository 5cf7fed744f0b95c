# SPDX-License-Identifier: Apache-2.0
"""Machines in a bad state: a filesystem that hangs (a real ext4, frozen, so that whoever writes to
it waits inside the kernel), too few descriptors, too little memory, a full /tmp. Training is not
touched, what is wrong is named, and nothing is lost."""
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support import alive, loop_digest, process, shell, trainer, tree_digest, until

CGROUP1 = Path("/sys/fs/cgroup/memory")
CGROUP2 = Path("/sys/fs/cgroup")
MEMORY = 32 << 20


def cmdline(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def looped(steps, *options):
    return trainer("loop.py", "--steps", steps, *options)


# --- a filesystem that hangs ---------------------------------------------------------------------


class Disk:
    """An ext4 of its own on a loop device."""

    def __init__(self, folder):
        self.folder = folder / "disk"
        self.folder.mkdir()
        self.frozen = False
        image = folder / "image"
        with open(image, "wb") as f:
            f.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.folder], check=True)

    def freeze(self):
        subprocess.run(["fsfreeze", "-f", self.folder], check=True)
        self.frozen = True

    def thaw(self):
        if self.frozen:
            subprocess.run(["fsfreeze", "-u", self.folder], check=True)
        self.frozen = False

    def close(self):
        self.thaw()
        # What was waiting inside it is let go by the kernel in its own time.
        until(lambda: subprocess.run(["umount", self.folder], check=False,
                                     stderr=subprocess.DEVNULL).returncode == 0, "umount")


@pytest.fixture
def disk(hf, root):
    try:
        made = Disk(hf.tmp)
    except subprocess.CalledProcessError:
        pytest.skip("this machine gives no loop device to mount")
    yield made
    made.thaw()
    hf.clean_up()
    made.close()


def silent(hf, **fields):
    return hf.waits_for("store-silent", deadline=40, **fields)


def test_a_store_that_hangs_stops_no_training(hf, disk):
    """E4: a store that takes a call and never ends it. It is said, and said again when it is over;
    steps go on; the newest state is shipped once it answers."""
    child = hf.run_start(f"--store=file://{disk.folder}/store", "--heartbeat=200ms", "--every=1s",
                         command=looped(5000, "--step-ms", 10))
    hf.waits_for("verdict")
    disk.freeze()
    told = silent(hf)
    assert told["waited_ms"] >= 15000 and told["call"] == "put"
    assert child.warnings == [w for w in child.warnings if "has not answered for" in w] != []
    assert f"file://{disk.folder}/store" in child.warnings[0]
    assert "training goes on" in child.warnings[0]
    assert hf.status()["store_silent_since"]
    before = hf.step()
    until(lambda: hf.step() >= before + 20, "steps all the same")
    disk.thaw()
    hf.waits_for("store-answers")
    late = until(lambda: [e for e in hf.events("verdict") if e["step"] > before], "a new save")
    assert late[0]["kind"] == "local"
    assert hf.status()["store_silent_since"] is None
    child.kill(signal.SIGTERM)
    assert child.wait() == 75


def test_a_store_that_hangs_at_the_start(hf, disk):
    """Nothing is started and the reason is given; it starts when the store answers."""
    disk.freeze()
    child = hf.run_start(f"--store=file://{disk.folder}/store", command=shell("echo ran"))
    child.waits_for_error("has not answered for", 40)
    assert "nothing is started before it answers" in child.err and child.out == ""
    disk.thaw()
    assert child.wait() == 0 and child.out == "ran\n"


def test_a_store_that_hangs_at_the_notice_holds_no_process_of_the_command(hf, disk):
    """The tree is ended in time though the last save cannot be shipped; once the store answers
    that save is committed after all, and said to be late."""
    child = hf.run_start(f"--store=file://{disk.folder}/store", "--heartbeat=200ms", "--grace=4s",
                         command=looped(100000))
    hf.waits_for("first-step")
    command = hf.command_pid()
    disk.freeze()
    child.kill(signal.SIGTERM)
    until(lambda: not alive(command), "the command's end", 8)
    hf.waits_for("tree-gone", deadline=8)
    assert child.proc.poll() is None
    disk.thaw()
    assert child.wait() == 75
    assert hf.events("verdict")[-1]["spare_ms"] is not None
    assert hf.ckpt()[-1]["step"] == hf.events("saved")[-1]["step"]


def test_a6_a_process_that_waits_inside_the_kernel_is_named_and_left(hf, disk):
    """A6: SIGKILL does nothing to it until the device answers. Holdfast ends all the same, and
    says which process it could not end."""
    go = hf.work / "go"
    child = hf.run_start("--grace=2s", "--linger=1s", command=shell(
        f"echo ready; while [ ! -e {go} ]; do sleep 0.02; done; (echo x >{disk.folder}/f) & wait"))
    child.waits_for_output("ready")
    disk.freeze()
    go.touch()
    group = hf.command_pid()

    def group_of(pid):
        try:
            return os.getpgid(pid)
        except ProcessLookupError:
            return None

    def stuck():
        return [pid for pid in hf.left()
                if group_of(pid) == group and (process(pid) or " ")[0] == "D"]
    pid = until(stuck, "a process in state D")[0]
    child.kill(signal.SIGTERM)
    assert child.wait(30) == 75
    assert process(pid)[0] == "D"
    assert f"pid {pid}" in child.err and "cannot be ended" in child.err
    disk.thaw()
    until(lambda: not alive(pid), "its end, once the device answers")


# --- too little of everything --------------------------------------------------------------------


def test_few_descriptors_are_enough(hf):
    """`ulimit -n 64`: a run, a save of many files, a preemption and a restore."""
    def few():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    first = hf.preempt(looped(100000, "--pad", 5 << 20), "--lanes=16", "--block-size=64KiB",
                       preexec_fn=few)
    assert first.status == 75, first.err
    step = hf.events("verdict")[-1]["step"]
    again = hf.run_start("--lanes=16", command=looped(step + 5, "--pad", 5 << 20), preexec_fn=few)
    assert again.wait() == 125 and "another command" in again.err
    again = hf.run("--lanes=16", "--resume", command=looped(step + 5, "--pad", 5 << 20),
                   preexec_fn=few)
    assert again.status == 0 and f"digest {loop_digest(step + 5)}" in again.out


def memory_group():
    """A cgroup with a limit of 32 MiB, v1 or v2, or a skip."""
    name = f"hf-test-{os.getpid()}"
    group, limit, events = ((CGROUP1 / name, "memory.limit_in_bytes", "memory.oom_control")
                            if CGROUP1.is_dir() else
                            (CGROUP2 / name, "memory.max", "memory.events"))
    try:
        group.mkdir()
        (group / limit).write_text(str(MEMORY))
    except OSError as e:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {e}")
    return group, events


@pytest.fixture
def small_memory(root):
    group, events = memory_group()
    yield group, events
    until(lambda: not (group / "cgroup.procs").read_text().split(), "an empty cgroup")
    group.rmdir()


def killed_for_memory(group, events):
    text = (group / events).read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("oom_kill ")))


@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_b4_10000_files_in_32_mib(hf, small_memory, encrypted):
    """B4: memory at the worst moment. Supervisor and keeper live in a cgroup of 32 MiB, the
    command is a shell in it too; at the notice a checkpoint of 10,000 files is shipped."""
    group, events = small_memory
    if encrypted:
        key = hf.tmp / "key"
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        hf.env["HOLDFAST_KEY_FILE"] = str(key)
    ckpt = hf.work / "ck"
    ready = hf.tmp / "ready"
    ready.mkdir()
    for i in range(10000):
        (ready / f"file-{i:05}").write_bytes(b"%d" % i * 40)
    ckpt.mkdir()
    command = shell(f"mv {ready} {ckpt}/step_7; echo moved; while :; do sleep 0.1; done")

    def join():
        (group / "cgroup.procs").write_text(str(os.getpid()))
    notice = hf.tmp / "notice"
    child = hf.run_start(f"--checkpoint-dir={ckpt}", f"--notice-file={notice}", "--grace=60s",
                         command=command, preexec_fn=join)
    child.waits_for_output("moved")
    notice.touch()
    assert child.wait(90) == 75, child.err
    assert killed_for_memory(group, events) == 0
    row = hf.ckpt()[-1]
    assert row["step"] == 7
    assert "whole" in hf.call("ckpt", "verify", "r").out
    before = tree_digest(ckpt / "step_7")
    subprocess.run(["rm", "-rf", ckpt / "step_7"], check=True)
    again = hf.run(f"--checkpoint-dir={ckpt}", "--resume", command=shell("exit 0"),
                   preexec_fn=join)
    assert again.status == 0, again.err
    assert killed_for_memory(group, events) == 0
    assert tree_digest(ckpt / "step_7") == before


def test_a_full_tmp(hf, root):
    """/tmp is full (a tmpfs in a mount namespace, the state folder lies elsewhere)."""
    state = Path("/var/tmp") / hf.tmp.name
    hf.env["HOLDFAST_STATE_DIR"] = str(state)
    hf.state = state
    fill = ("mount -t tmpfs -o size=64k none /tmp && (cat /dev/zero >/tmp/fill; true) 2>/dev/null; "
            'exec "$@"')
    before = ["unshare", "-m", "sh", "-c", fill, "sh"]
    work = state.with_name(state.name + "-work")
    work.mkdir()
    program = shutil.copy(hf.program(), work)  # which may lie below /tmp
    child = hf.run_start(command=shell("echo ran; echo x >/tmp/more || echo full"), cwd=work,
                         before=before, program=program)
    assert child.wait() == 0, child.err
    assert child.out == "ran\nfull\n"
    assert hf.events("attempt-ended")[0]["outcome"] == "finished"
    subprocess.run(["rm", "-rf", state, work], check=True)


def test_processes_whose_environment_cannot_be_read(hf, root):
    """No /proc/PID/environ: an ordinary user may not look into a program that he may run but not
    read. The tree is found by its ancestry alone, and ended as ever, also what called setsid."""
    hidden = hf.work / "hidden"
    shutil.copy(shutil.which("sleep"), hidden)
    hidden.chmod(0o111)
    for folder in (hf.tmp, hf.work):
        folder.chmod(0o777)
    child = hf.run_start("--grace=3s", "--linger=1s",
                         before=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"],
                         command=shell(f"setsid {hidden} 1001 & {hidden} 1002 & echo ready; wait"))
    child.waits_for_output("ready")

    def tree():
        pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
        return [pid for pid in pids if alive(pid) and b"hidden\x00100" in cmdline(pid)]
    pids = until(lambda: len(tree()) == 2 and tree(), "both of them")
    assert os.stat(f"/proc/{pids[0]}/environ").st_uid == 0
    child.kill(signal.SIGTERM)
    assert child.wait(10) == 75, child.err
    assert tree() == []
