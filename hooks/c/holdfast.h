/* SPDX-License-Identifier: Apache-2.0
 *
 * Holdfast's client for training programs in C and C++: link libholdfast.a (or .so); no other
 * library is needed. docs/protocols.md says what happens underneath.
 *
 *     struct holdfast *run = holdfast_init(NULL);
 *     int64_t start = holdfast_resume(run, load, &model);
 *     if (start < 0) {
 *         return 1;                                     the checkpoint could not be loaded
 *     }
 *     for (int64_t step = start; step < steps; step++) {
 *         train(&model, step);
 *         enum holdfast_verb verb = holdfast_step(run, step);
 *         if (verb == HOLDFAST_SAVE) {
 *             save(&model, step, holdfast_path(run, step));
 *             verb = holdfast_saved(run, NULL);
 *         }
 *         if (verb == HOLDFAST_LEAVE) {
 *             return HOLDFAST_EXIT_LEAVE;               before any code for "training is over"
 *         }
 *     }
 *     holdfast_done(run);
 *     holdfast_close(run);
 *
 * THE NUMBER OF A STEP. holdfast_step(run, s) is called at the boundary AFTER the work of step s.
 * What is saved there is "checkpoint s": steps 0..s are in it. A run that resumes from it goes on
 * with step s + 1, and that is what holdfast_resume returns.
 *
 * With several ranks every rank makes the same calls with the same step numbers, at every
 * boundary, and all save on the same step without any message between them.
 *
 * Outside Holdfast (no HOLDFAST_* in the environment) every call is a cheap no-op that says "go
 * on". The client writes nothing to stdout or stderr, raises no signal, and never ends or holds up
 * the program because Holdfast is slow or dead: the longest pauses are 1 s in holdfast_init, 2 s
 * in holdfast_step while a request is being decided, and, after a save that was asked for because
 * the machine is going away, in holdfast_saved until Holdfast says what to do (at most until that
 * deadline). Run pointers may be NULL everywhere. One thread at a time per run. After fork() the
 * child's copy is dead: its calls are no-ops.
 */
#ifndef HOLDFAST_H
#define HOLDFAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define HOLDFAST_API __attribute__((visibility("default")))
#else
#    define HOLDFAST_API
#endif

struct holdfast;

enum holdfast_verb {
    HOLDFAST_GO_ON = 0, /* nothing to do */
    HOLDFAST_SAVE = 1,  /* save now: holdfast_path, your writing, holdfast_saved */
    HOLDFAST_LEAVE = 2  /* end the program now with status HOLDFAST_EXIT_LEAVE */
};

/* The exit status that means "start the same command again" (EX_TEMPFAIL). */
#define HOLDFAST_EXIT_LEAVE 75

/* Zero-initialise, set `size` to sizeof(struct holdfast_opts), then what is known. */
struct holdfast_opts {
    size_t size;
    const char *framework; /* a short name for status displays; NULL: "c" */
    uint32_t world;        /* ranks that train together; 0: rank and world come from RANK and
                              WORLD_SIZE, or what mpirun and srun set, else 0 of 1 */
    uint32_t rank;         /* 0..world-1; read only when world is not 0 */
    int64_t steps;         /* how many steps the training has (the last one is steps - 1); 0:
                              unknown. Lets Holdfast not ask for a save that is never reached */
    const char *save_dir;  /* where holdfast_path makes folders outside Holdfast; NULL:
                              "checkpoints" */
};

/* Connects to Holdfast if there is one. opts may be NULL. NULL only when memory is short, which
 * every other call takes for "outside Holdfast". Texts are copied. Free it by holdfast_close. */
HOLDFAST_API struct holdfast *holdfast_init(const struct holdfast_opts *opts);

/* True after the supervisor has welcomed this process. */
HOLDFAST_API bool holdfast_active(const struct holdfast *run);

/* Calls load(user, path) if there is a checkpoint to go on from: `path` is exactly the path that
 * was saved (the folder of holdfast_path, or the first one named to holdfast_saved). Returns the
 * step to start with: 0, or the saved step + 1, and tells Holdfast so. Returns -1, and tells
 * nothing, when load returned other than 0: then end with an error, do not start at 0. */
HOLDFAST_API int64_t holdfast_resume(struct holdfast *run,
                                     int (*load)(void *user, const char *path), void *user);
/* The same facts without a call: the path (NULL: nothing to resume from; valid until close) and
 * in *ret_start (may be NULL) the step to start with. Tells Holdfast nothing. */
HOLDFAST_API const char *holdfast_resume_path(const struct holdfast *run, int64_t *ret_start);

/* At every boundary, after the work of `step`. About 10 ns when nothing is asked. */
HOLDFAST_API enum holdfast_verb holdfast_step(struct holdfast *run, int64_t step);

/* An absolute folder for the checkpoint of `step`: made now, the same for every rank, never
 * handed out for another save. Valid until the next call or close. NULL with errno set when it
 * cannot be made (or run is NULL). May also be used for saves that nobody asked for. */
HOLDFAST_API const char *holdfast_path(struct holdfast *run, int64_t step);

/* This rank's part of the checkpoint is complete: all its files are written and closed. For the
 * step of the last holdfast_path, or else of the last holdfast_step. paths: NULL-terminated list
 * of the files and folders that make up this rank's part, or NULL for the folder of holdfast_path.
 * Call it from every rank, after saves that were asked for and after your own alike. Returns
 * HOLDFAST_LEAVE when the program must end now, else HOLDFAST_GO_ON. */
HOLDFAST_API enum holdfast_verb holdfast_saved(struct holdfast *run, const char *const *paths);

/* This rank's training is complete; nothing will be asked of it again. */
HOLDFAST_API void holdfast_done(struct holdfast *run);

/* Disconnects and frees. NULL is fine. */
HOLDFAST_API void holdfast_close(struct holdfast *run);

#ifdef __cplusplus
}
#endif

#endif
