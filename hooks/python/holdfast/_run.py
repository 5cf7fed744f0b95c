# SPDX-License-Identifier: Apache-2.0
"""The run object. Everything that could go wrong on Holdfast's side ends in "go on training"."""

import os
import time
import weakref

from . import _control as ctl
from ._channel import Channel, decode_path, encode_path
from ._control import Control
from ._folders import Folders

EXIT_LEAVE = 75
"""The exit status that means "start the same command again"."""

_WELCOME_S = 1.0  # longest wait in init()
_RETRY_S = 1.0  # between two tries to connect
_RETRY_NOW_S = 0.05  # the same while a save waits for its answer
_SPIN_S = 50e-6  # of holding before sleeping
_NO_WORD = (1 << 64) - 1

_OUTSIDE, _WAITING, _JOINED, _DEAD = range(4)

_RANK_NAMES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
)


def _boottime():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _number(text):
    return int(text) if text and text.isascii() and text.isdigit() else None


def _find_rank():
    for rank_name, world_name in _RANK_NAMES:
        rank = _number(os.environ.get(rank_name))
        world = _number(os.environ.get(world_name))
        if rank is not None and world is not None and rank < world:
            return rank, world
    return 0, 1


def _die_in_child(ref):
    run = ref()
    if run is not None:
        run._die()


def init(steps=None, framework="python", rank=None, world=None, save_dir="checkpoints"):
    """Connects to Holdfast if there is one; see Run.

    steps: how many steps the training has, if known (the last one is steps - 1).
    rank, world: this process among those that train together; by default from RANK and
    WORLD_SIZE, or what mpirun and srun set, else 0 of 1.
    save_dir: where path() makes folders outside Holdfast.
    """
    return Run(steps, framework, rank, world, save_dir)


class Run:
    """One training process. Made by init(). One thread at a time; dead in forked children."""

    def __init__(self, steps, framework, rank, world, save_dir):
        self._mode = _OUTSIDE
        self._control = None
        # What step() touches; replaced by shared memory after the welcome.
        self._words = [0] * 16
        self._line = [0] * 8
        self._calm = 0
        self._line_words = self._line_flags = None
        self._step = -1
        self._asked = None  # (step, request id) of the last step() that said True
        self._given_up = 0
        self._channel = None
        self._welcomed = False
        self._epoch = 0
        self._try_at = 0.0
        self._saved_message = None
        self._resumed = None
        self._done = False
        self._attempt = self._life = 0
        self._folders = Folders()
        self._countable = True
        found = _find_rank()
        self._rank = found[0] if world is None else int(rank or 0)
        self._world = found[1] if world is None else int(world)
        self._last = int(steps) - 1 if steps else -1
        self._framework = str(framework)[:31]
        self._save_dir = os.environ.get("HOLDFAST_SAVE_DIR") or save_dir
        self._resume_path = os.environ.get("HOLDFAST_RESUME") or None
        self._resume_step = _number(os.environ.get("HOLDFAST_RESUME_STEP"))
        self._enter()

    def _enter(self):
        control = os.environ.get("HOLDFAST_CONTROL")
        self._socket_path = os.environ.get("HOLDFAST_SOCKET")
        if not control or not self._socket_path:
            return
        try:
            self._control = Control(control)
        except (OSError, ValueError):
            return
        self._token = os.urandom(8).hex()
        self._mode = _WAITING
        self._calm = _NO_WORD
        ref = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _die_in_child(ref))
        limit = time.monotonic() + _WELCOME_S
        self._service(_RETRY_NOW_S)
        while self._mode == _WAITING and time.monotonic() < limit:
            time.sleep(0.001)
            self._service(_RETRY_NOW_S)

    def _die(self):
        """Refused, or the child of a fork: from here on as outside."""
        self._mode = _DEAD
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._words = [0] * 16
        self._line = [0] * 8
        self._calm = 0

    # --- what there is to know -------------------------------------------

    @property
    def active(self):
        """True after the supervisor has welcomed this process."""
        return self._mode == _JOINED

    @property
    def rank(self):
        return self._rank

    @property
    def world(self):
        return self._world

    @property
    def leaving(self):
        """True while the save that is asked for is one after which ranks leave."""
        if self._mode != _JOINED:
            return False
        word = self._words[ctl.WORD]
        if ctl.state_of(word) == ctl.LEAVE:
            return True
        return ctl.state_of(word) in (ctl.RAISED, ctl.TARGET) and (
            self._words[ctl.LEAVE_ID] == ctl.id_of(word)
        )

    @property
    def resume_path(self):
        """The checkpoint to go on from, or None."""
        return self._resume_path

    # --- the training loop -----------------------------------------------

    def resume(self, load=None):
        """Calls load(path) if there is a checkpoint to go on from, exactly the path that was saved.

        Returns the step to start with: 0, or the saved step + 1. An int that load returns is
        taken instead. What load raises is the caller's.
        """
        start = 0
        if self._resume_path is not None:
            if self._resume_step is not None:
                start = self._resume_step + 1
            given = load(self._resume_path) if load is not None else None
            if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
                start = given
        self._resumed = start
        if self._mode == _JOINED:
            self._send({"msg": "resumed", "step": start})
        return start

    def step(self, step):
        """At every boundary, after the work of `step`. True: save now.

        Raises SystemExit(75) when the program is to leave, and nothing else.
        """
        try:
            self._line[0] = step
            self._step = step
            if self._words[8] == self._calm:
                return False
            return self._slow_step(step)
        except Exception:  # a step that is no number, a closed descriptor: training goes on
            return False

    def path(self, step):
        """A new folder for the checkpoint of `step`, made now, the same on every rank."""
        step = int(step)
        if self._mode == _JOINED:
            prefix = "%d-%d" % (self._attempt, self._life)
        else:
            prefix = "step" if self._control is None else "alone"
        if step != self._folders.open_step:
            self._countable = self._mode == _JOINED
        name = self._folders.open(step, prefix)
        path = os.path.join(os.path.abspath(os.fspath(self._save_dir)), name)
        os.makedirs(path, exist_ok=True)
        return path

    def saved(self, paths=None):
        """This rank's part is complete: its files are written and closed.

        For the step of the last path(), or else of the last step(). paths: the files and folders
        of this rank's part (one, or a list); by default the folder of path(). Call it on every
        rank, after saves that were asked for and after your own. Raises SystemExit(75) when the
        program is to leave, and nothing else.
        """
        try:
            self._report_save(paths)
        except Exception:
            return

    def done(self):
        """This rank's training is complete; nothing will be asked of it again."""
        if self._mode != _JOINED or self._done:
            return
        try:
            self._done = True
            self._line_flags[9] = 1
            self._service(_RETRY_S)
            if self._welcomed:
                self._send({"msg": "done"})
        except Exception:
            return

    def close(self):
        """Disconnects. The process may go on; it takes no more part."""
        try:
            if self._mode == _JOINED:
                self._send({"msg": "bye"})
        except Exception:
            pass
        self._die()

    # --- the slow paths ---------------------------------------------------

    def _slow_step(self, step):
        self._service(_RETRY_S)
        if self._mode != _JOINED or not 0 <= step <= ctl.STEP_MAX:
            return False
        self._line[ctl.STEP] = step  # the welcome may have come just now
        word = self._look(int(step))
        if word is not None:
            self._asked = (step, ctl.id_of(word))
            return True
        word = self._words[ctl.WORD]
        quiet = (
            self._welcomed
            and not self._channel.unsent
            and ctl.state_of(word) == ctl.IDLE
            and ctl.step_of(word) == self._epoch
        )
        self._calm = word if quiet else _NO_WORD
        return False

    def _look(self, step):
        """The word that says "save here", or None: go on. Holds while it is undecided."""
        words = self._words
        held = 0
        since = 0.0
        while True:
            word = words[ctl.WORD]
            state = ctl.state_of(word)
            if state == ctl.LEAVE:
                raise SystemExit(EXIT_LEAVE)
            request = ctl.id_of(word)
            if request == self._given_up:
                return None
            if state == ctl.TARGET and ctl.step_of(word) == step:
                return word
            if state != ctl.RAISED:
                return None
            if request != held:
                held = request
                since = time.monotonic()
                self._line_words[ctl.HOLD] = ctl.pack(ctl.RAISED, request, step)
            if self._hold(request, time.monotonic() - since):
                return None

    def _hold(self, request, waited):
        """One moment of holding. True: gave up."""
        limit = self._control.hold_limit_s()
        if waited >= limit and not self._control.cancel(request) and waited >= 2 * limit:
            self._given_up = request  # a frozen process has the lock: training comes first
            self._line_flags[8] = request
            return True
        if waited > _SPIN_S:
            time.sleep(0.001)
        return False

    def _absolute(self, path):
        return encode_path(os.fsencode(os.path.abspath(os.fspath(path))))

    def _report_save(self, paths):
        folders = self._folders
        step = folders.open_step if folders.open_step is not None else self._step
        countable = folders.open_step is None or self._countable
        if paths is None:
            paths = [self.path(step)] if folders.open_step is not None else []
        elif isinstance(paths, (str, bytes, os.PathLike)):
            paths = [paths]
        turn = folders.turn
        folders.close()
        asked, self._asked = self._asked, None
        if self._mode != _JOINED or not countable or step < 0:
            return
        request = asked[1] if asked is not None and asked[0] == step else 0
        self._service(_RETRY_S)
        self._saved_message = {
            "msg": "saved",
            "id": request,
            "step": int(step),
            "turn": turn,
            "paths": [self._absolute(p) for p in paths],
        }
        if request:
            self._line_words[ctl.SAVED] = ctl.pack(ctl.TARGET, request, int(step))
        if self._welcomed:
            self._send(self._saved_message)  # else it is told after the welcome
        self._wait_release(request)

    def _wait_release(self, request):
        """A rank that left while others still save would get them killed by their launcher."""
        words = self._words
        connected = time.monotonic()
        while self._mode == _JOINED:
            self._service(_RETRY_NOW_S)
            word = words[ctl.WORD]
            if ctl.state_of(word) == ctl.LEAVE:
                raise SystemExit(EXIT_LEAVE)
            if (
                ctl.state_of(word) != ctl.TARGET
                or ctl.id_of(word) != request
                or words[ctl.LEAVE_ID] != request
                or _boottime() * 1e9 >= words[ctl.DEADLINE]
            ):
                return
            now = time.monotonic()
            if self._welcomed:
                connected = now
            elif now - connected > self._control.hold_limit_s():
                return
            time.sleep(0.001)

    # --- the connection ---------------------------------------------------

    def _lose(self):
        if self._channel is not None:
            self._channel.close()
        self._channel = None
        self._welcomed = False
        if self._mode in (_WAITING, _JOINED):
            self._calm = _NO_WORD

    def _send(self, message):
        if self._channel is not None:
            self._channel.send(message)
            if self._channel.sock is None:
                self._lose()
            elif self._channel.unsent:
                self._calm = _NO_WORD

    def _connect(self, retry_s):
        now = time.monotonic()
        if now < self._try_at:
            return
        self._try_at = now + retry_s
        self._epoch = self._control.epoch()
        self._channel = Channel(self._socket_path)
        if self._channel.sock is None:
            self._lose()
            return
        self._send(
            {
                "msg": "hello",
                "protocol": 1,
                "client": "python",
                "framework": self._framework,
                "rank": self._rank,
                "world": self._world,
                "pid": os.getpid(),
                "last": self._last,
                "token": self._token,
            }
        )

    def _service(self, retry_s):
        """Keeps the connection: never waits."""
        if self._mode not in (_WAITING, _JOINED):
            return
        if self._channel is not None and self._epoch != self._control.epoch():
            self._lose()
            self._try_at = 0.0
        if self._channel is None:
            self._connect(retry_s)
        channel = self._channel
        if channel is None:
            return
        channel.flush()
        for message in channel.receive():
            name = message.get("msg")
            if name == "welcome" and not self._welcomed:
                try:
                    self._on_welcome(message)
                except (KeyError, TypeError, ValueError, IndexError):
                    self._lose()
                    return
            elif name == "refused":
                self._die()
                return
        if channel.sock is None:
            self._lose()

    def _on_welcome(self, message):
        slot = int(message["slot"])
        self._line, self._line_words, self._line_flags = self._control.slot(slot)
        self._words = self._control.head
        self._attempt, self._life = int(message["attempt"]), int(message["life"])
        self._save_dir = os.fsdecode(decode_path(message["save_dir"]))
        self._welcomed = True
        if self._mode == _JOINED:
            self._tell_again()
            return
        self._mode = _JOINED
        # The reply wins over the environment, also when it says "nothing".
        resume = message.get("resume")
        self._resume_path = self._resume_step = None
        if isinstance(resume, dict):
            self._resume_path = os.fsdecode(decode_path(resume["path"]))
            self._resume_step = resume.get("step")

    def _tell_again(self):
        if self._resumed is not None:
            self._send({"msg": "resumed", "step": self._resumed})
        if self._saved_message is not None:
            self._send(self._saved_message)
        if self._done:
            self._send({"msg": "done"})
