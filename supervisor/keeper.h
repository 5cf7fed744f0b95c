/* SPDX-License-Identifier: Apache-2.0
 *
 * The keeper: the small process between Holdfast and the command. Its parent, its reaper
 * (subreaper), the holder of its streams; in its own session; no threads, no HTTP. It outlives
 * the supervisor and serves the next one through the socket "k" in the attempt's folder. This
 * header has both sides: the role's entry point and the supervisor's client (loop thread only).
 *
 * Files in the attempt's folder: "k" socket, "log.*" the command's output as it came (logring.h),
 * "keeper.json" {pid, start, boot_id, command_pid, command_start, cgroup: its folder or ""}, "exit"
 * {status: raw wait status, at_wall_ms, exec_errno: 0 or why it never ran, forced: it was sent
 * SIGKILL by its keeper, log_dropped_bytes} written with fsync and rename when the command itself
 * has ended.
 */
#ifndef HF_SUPERVISOR_KEEPER_H
#define HF_SUPERVISOR_KEEPER_H

#include "base/prelude.h"

#include <signal.h>

#include "base/loop.h"
#include "base/mem.h"

/* What Holdfast itself was started with, taken first thing in main and given to the command
 * unchanged. */
struct hf_inherited {
    sigset_t mask;
    sigset_t ignored; /* signals whose disposition was SIG_IGN */
};
void hf_inherited_take(struct hf_inherited *ret);

/* The role: argv as built by hf_keeper_start. Never returns to a supervisor's code; returns the
 * keeper's exit status. */
int hf_keeper_main(int argc, char **argv);
bool hf_keeper_is_role(int argc, char **argv); /* argv[0] and argv[1] are the private role words */

struct hf_keeper;

/* All are called on the loop thread, never inside a call of this header, and may call
 * hf_keeper_close. */
struct hf_keeper_cb {
    /* The command's exec succeeded; exec_ns is CLOCK_BOOTTIME. */
    void (*started)(void *user, int64_t pid, uint64_t exec_ns);
    /* errno of execvp, or of what the keeper needs before it. gone follows, exited does not. */
    void (*exec_failed)(void *user, int num);
    /* The command itself; raw wait status. Its "exit" file is on disk. forced: it was sent SIGKILL
     * by its keeper. */
    void (*exited)(void *user, int status, bool forced);
    /* The command was stopped by Ctrl-Z (or any stop but SIGSTOP); the terminal is restored. */
    void (*stopped)(void *user);
    /* A person pressed Ctrl-C or Ctrl-\ on the pty, whose line discipline has sent the signal. */
    void (*interrupt)(void *user);
    /* A descendant still there after linger or grace. killed: it was sent SIGKILL, else SIGTERM
     * (or, with "cannot be ended" in its name, it hangs in the kernel and is left). */
    void (*straggler)(void *user, int64_t pid, const char *name, bool killed);
    /* No process of the tree is left, all output is out, the keeper has ended and is reaped.
     * Last callback. */
    void (*gone)(void *user, int status);
    /* Bytes of the output found no room in the log, so many since the attempt began: errno of the
     * last write, 0 when the log is written again. Training is not held up. */
    void (*log_dropped)(void *user, uint64_t bytes, int num);
    /* The keeper died before that, or serves another supervisor; the tree may live. Last
     * callback. */
    void (*lost)(void *user);
};

struct hf_keeper_spec {
    const char *dir;   /* the attempt's folder, absolute */
    char *const *argv; /* NULL-terminated; execvp semantics with `env`'s PATH */
    char *const *env;  /* NULL-terminated, complete: put HOLDFAST_TOKEN=<token> there too */
    const char *token; /* the claim's nonce; by it the tree is found when the keeper is dead */
    const struct hf_inherited *inherited;
    uint32_t linger_ms; /* what descendants get after the command's own end */
    uint64_t log_limit; /* bytes of the log, at least 64 KiB; the oldest go */
};

/* Starts a keeper and, through it, the command. Descriptors 0, 1, 2 (which must be open) and all
 * others that are not close-on-exec are passed on as they are. stdout a terminal: a pty, raw
 * mode and window size are handled by the keeper; otherwise two pipes (one, where stdout and
 * stderr are the same open file). One of exec_failed, started is the first callback. Nothing of
 * `spec` is kept. HF_EEXISTS: a keeper lives in that folder. On failure no process is left. */
enum hf_rc hf_keeper_start(struct hf_loop *loop, const struct hf_keeper_spec *spec,
                           const struct hf_keeper_cb *cb, void *user, struct hf_keeper **ret,
                           struct hf_err *err) HF_MUST_USE;
/* Connects to a living keeper of that folder and hands it our stdout and stderr. HF_ENOTFOUND:
 * none lives. What happened meanwhile is told again (started, exited...). */
enum hf_rc hf_keeper_attach(struct hf_loop *loop, const char *dir, const struct hf_keeper_cb *cb,
                            void *user, struct hf_keeper **ret, struct hf_err *err) HF_MUST_USE;

/* Sends a signal to the command's process group; after its end, to every descendant left. */
void hf_keeper_signal(struct hf_keeper *k, int sig);
/* Ends the tree: whatever is left of it after grace_ms gets SIGKILL, by its cgroup at one stroke
 * or, without one, by walking it. Nothing gets SIGTERM any more. Again: the earlier end counts.
 * gone follows, at the latest about 13 s after the grace, even where a process cannot be ended or
 * nobody reads the output; 1.5 s after it, where all that is left waits in the kernel (D). */
void hf_keeper_end_tree(struct hf_keeper *k, uint32_t grace_ms);
/* After our own stop and continue (Ctrl-Z, fg, bg), or when foreground changes: resumes the
 * command and, in the foreground, raw mode and input. */
void hf_keeper_continue(struct hf_keeper *k, bool foreground);
void hf_keeper_window_changed(struct hf_keeper *k);
int64_t hf_keeper_pid(const struct hf_keeper *k);          /* what the tree descends from */
bool hf_keeper_terminal_is_raw(const struct hf_keeper *k); /* our own lines need \r\n */
int64_t hf_keeper_command_pid(const struct hf_keeper *k);  /* 0: not started */
/* Lets go without ending anything. NULL is fine; run the loop once more. A keeper that this
 * process started and closed before gone or lost is not reaped by it. */
void hf_keeper_close(struct hf_keeper *k);

#endif
