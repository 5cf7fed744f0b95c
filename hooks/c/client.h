/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the C client share. Private; the functions are not visible outside the
 * library. On the thread of the training loop.
 */
#ifndef HOLDFAST_CLIENT_H
#define HOLDFAST_CLIENT_H

#include "agree_step.h"
#include "holdfast.h"
#include "json_line.h"

#define MS           UINT64_C(1000000)
#define WELCOME_MS   1000       /* longest wait in holdfast_init */
#define RETRY_MS     1000       /* between two tries to connect */
#define RETRY_NOW_MS 50         /* the same while a save waits for its answer */
#define NO_WORD      UINT64_MAX /* no word that can be in the file */

enum mode {
    OUTSIDE, /* no Holdfast */
    WAITING, /* not welcomed yet */
    JOINED,  /* owns a slot */
    DEAD     /* refused, or the child of a fork */
};

struct holdfast {
    enum mode mode;
    /* what holdfast_step touches */
    struct hfw_head *head;
    struct hfw_slot *slot;
    uint64_t calm; /* a word that asks for nothing while the connection stands */
    int64_t step;  /* of the last holdfast_step, -1: none */

    struct hfw_rank rank;
    uint32_t asked_id; /* request of the last HOLDFAST_SAVE, and its step */
    int64_t asked_step;

    int fd;          /* socket, -1: none */
    bool welcomed;   /* on this connection */
    uint32_t epoch;  /* of the supervisor that fd was opened for */
    uint64_t try_ns; /* not before that */
    char *in;        /* HFW_LINE_BYTES */
    size_t in_len;
    struct hfj_out out; /* what the socket would not take yet */
    size_t out_pos;

    uint32_t world, rank_no;
    int64_t last;
    char framework[32];
    char token[17];
    uint32_t attempt, life;
    /* told again after a reconnection */
    char *saved_line;
    int64_t resumed; /* -1: not told */
    bool done;

    char *control_path, *socket_path;
    char *save_dir;
    char *resume_path;
    int64_t resume_step; /* -1: unknown */

    /* folders handed out; see holdfast_path */
    int64_t turn, top, open_step; /* top, open_step -1: none */
    bool open_reported_ok;        /* opened after the welcome */
    char *path;

    struct holdfast *prev, *next; /* in `runs` */
};

uint64_t holdfast_now_ns(void); /* CLOCK_BOOTTIME */

/* Keeps the connection: opens it again at most every retry_ms, sends what is left over, reads what
 * has come. Never waits. run->mode may change. */
void holdfast_service(struct holdfast *run, uint64_t retry_ms);
/* Sends a line if there is a connection; never waits. */
void holdfast_send(struct holdfast *run, const char *line);
void holdfast_send_resumed(struct holdfast *run);

#endif
