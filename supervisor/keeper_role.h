/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside the keeper's process: what its files share. One thread, one poll loop; nothing here may
 * block, but the two small records on the local disk. No function fails towards its caller: what
 * goes wrong is told to the supervisor or survived.
 */
#ifndef HF_SUPERVISOR_KEEPER_ROLE_H
#define HF_SUPERVISOR_KEEPER_ROLE_H

#include "base/prelude.h"

#include <sys/stat.h>
#include <termios.h>

#include "supervisor/cgroup.h"
#include "supervisor/keeper.h"
#include "supervisor/keeper_wire.h"
#include "supervisor/logring.h"
#include "supervisor/tree.h"

#define HF_KEEPER_WORD   "holdfast-keeper"
#define HF_KEEPER_OPTION "--keeper-role"
#define HF_STREAM_BYTES  (size_t)(64 * 1024)
#define HF_NEVER         UINT64_MAX

enum hf_sink_kind {
    HF_SINK_NONE,   /* what is written is dropped (the log has it) */
    HF_SINK_OWN,    /* our own, non-blocking description of a pipe or terminal */
    HF_SINK_FILE,   /* regular file or device, shared description: never blocks for long */
    HF_SINK_SOCKET, /* MSG_DONTWAIT */
    HF_SINK_CAREFUL /* shared description: short writes, only when poll says so */
};

struct hf_sink {
    int fd; /* owned */
    enum hf_sink_kind kind;
};

/* One output of the command: what is read goes to the log at once and to the sink when it can. No
 * more is read until the sink has taken it: that is the back-pressure. */
struct hf_stream {
    int src; /* pipe's end (owned) or the pty's master (borrowed); -1: at its end */
    bool pty;
    bool dry; /* the last read found nothing */
    struct hf_sink sink;
    size_t off, len;
    char data[HF_STREAM_BYTES];
};

struct hf_tty {
    int master, slave; /* -1: the command has no pty */
    int real;          /* the terminal: its mode and size. -1: none (any more) */
    int in;            /* the terminal's input, our own description. -1: not read */
    bool relays;       /* the command's stdin is the pty */
    bool foreground, raw;
    struct termios saved;
    size_t off, len;
    char data[4096];
};

struct hf_role {
    /* from the spec */
    char *dir, *token;
    struct hf_strv argv, env;
    struct hf_inherited inherited;
    uint32_t linger_ms;
    mode_t umask;

    int signal_fd, listen_fd;
    struct hf_logring log;
    uint64_t log_limit;      /* from the spec */
    uint64_t log_told_bytes; /* of what was dropped: the supervisor knows of so much, */
    uint64_t log_told_ns;    /* since then */
    int log_told_why;
    int exec_fd;         /* closes at the command's exec; -1: known */
    struct hf_wire wire; /* the supervisor */
    struct hf_wire next; /* a connection that has not said what it wants */
    struct hf_stream streams[2];
    struct hf_tty tty;

    struct hf_cgroup cgroup; /* holds the command and all that it starts, where there is one */
    pid_t command;           /* 0: not started */
    uint64_t exec_ns;
    int exec_errno; /* not 0: the command never ran */
    int status;     /* valid when ended */
    bool started, ended, stopped;

    bool childless;     /* nothing is left to wait for */
    bool forced;        /* the supervisor asked for the end */
    bool killed;        /* the command was sent SIGKILL by us */
    uint64_t killed_at; /* the first SIGKILL to anything left */
    bool draining, done;
    uint64_t term_at, kill_at, give_up_at, scan_at, drain_until;
    struct hf_procs told; /* stragglers; state 'K': its SIGKILL was told too */
};

/* keeper_role.c */
void hf_role_tell(struct hf_role *r, enum hf_wire_type type, int64_t a, uint64_t b,
                  const char *text);
bool hf_role_attached(const struct hf_role *r);

/* keeper_exec.c */
bool hf_role_read_spec(struct hf_role *r, struct hf_span body);
void hf_role_start(struct hf_role *r);      /* pty or pipes, fork; the result comes by exec_fd */
void hf_role_check_exec(struct hf_role *r); /* exec_fd is readable */

/* keeper_streams.c */
void hf_sink_open(struct hf_sink *s, int fd); /* borrows fd; what was open before is closed */
void hf_sink_close(struct hf_sink *s);
void hf_stream_pump(struct hf_role *r, struct hf_stream *s);
void hf_streams_pump(struct hf_role *r);
bool hf_streams_drained(struct hf_role *r); /* pumps; with no writer left, is all of it out? */
int hf_reopen(int fd, int flags); /* our own non-blocking description of the same file, or -1 */
bool hf_same_description(int a, int b);
void hf_log_tell(struct hf_role *r, bool at_once); /* what the log lost, if the supervisor */
                                                   /* does not know */

/* keeper_tty.c */
bool hf_tty_open(struct hf_role *r); /* the pty; false: this machine gives none */
void hf_tty_attach(struct hf_role *r, int in, int out, bool foreground); /* borrows in and out */
void hf_tty_enter(struct hf_role *r); /* raw mode, if it is our turn */
void hf_tty_leave(struct hf_role *r);
void hf_tty_window(struct hf_role *r);
void hf_tty_input(struct hf_role *r);
/* Bytes of the pty on their way to the terminal: takes out what it will add itself. */
size_t hf_tty_uncook(const struct hf_role *r, char *data, size_t len);
void hf_tty_hang_up_slave(struct hf_role *r);
void hf_tty_close(struct hf_role *r);

/* keeper_end.c */
void hf_role_reap(struct hf_role *r);
void hf_role_command_ended(struct hf_role *r, int status);
void hf_role_tick(struct hf_role *r);
uint64_t hf_role_next_ns(const struct hf_role *r);
void hf_role_signal(struct hf_role *r, int sig);
void hf_role_end_tree(struct hf_role *r, uint64_t grace_ms);

#endif
