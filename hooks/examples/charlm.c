/* SPDX-License-Identifier: Apache-2.0
 *
 * A small language model that learns, by gradient descent on one core, to continue a text
 * character by character: eight characters are looked up in a table, pass one hidden layer, and
 * give a guess for the ninth. It is here to show what a training program does to survive a
 * preemption; every line that is about Holdfast is in load(), save() and main().
 *
 *     charlm README.md docs/architecture.md              trains, alone
 *     holdfast run -- charlm README.md ...               is saved and resumed
 *     holdfast drill -- charlm README.md ...             proves that it is
 *
 * Everything that decides what the next step computes is in the checkpoint: weights, optimiser
 * state, random number generator, place in the data. So an interrupted training ends with the
 * same weights, to the last bit, as one that never stopped: compare the "digest:" lines.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "holdfast.h"

#define WINDOW    8  /* characters that the model sees */
#define EMBED     16 /* numbers that stand for a character */
#define INPUTS    (WINDOW * EMBED)
#define TEXT_MAX  (16u << 20)
#define FILE_NAME "charlm.ckpt"

static int complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Says what is wrong on stderr; -1, for the caller to return. */
static int complain(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fputs("charlm: ", stderr);
    vfprintf(stderr, fmt, args);
    fputc('\n', stderr);
    va_end(args);
    return -1;
}

/* ---- a checksum: FNV-1a of 128 bits ---------------------------------------------------- */

__extension__ typedef unsigned __int128 sum;

#define SUM_START ((sum)0x6c62272e07bb0142 << 64 | 0x62b821756295c58d)
#define SUM_PRIME ((sum)1 << 88 | 0x13b)

static sum sum_add(sum s, const void *data, size_t len)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < len; i++) {
        s = (s ^ p[i]) * SUM_PRIME;
    }
    return s;
}

/* ---- the state of a training ----------------------------------------------------------- */

/* What the weights are; a checkpoint fits only a model of the same shape and text. */
struct shape {
    sum text;
    uint32_t window, embed, hidden, batch, vocabulary;
};

/* Where the training is. With the weights and the optimiser's means this is all of its state. */
struct progress {
    uint64_t step;   /* steps that were made */
    uint64_t random; /* the generator */
    uint64_t at;     /* the next example: position in the text ... */
    uint64_t stride; /* ... how far the one after it is ... */
    uint64_t left;   /* ... and how many are left of this pass over the text */
    double loss;     /* running mean, for the reports */
};

/* Weights, their gradient, and Adam's two running means of it. */
struct tensor {
    const char *name;
    size_t len, inputs; /* inputs: how many numbers flow into one output; 0: start at zero */
    float *w, *grad, *mean, *square;
};

enum { TABLE, HIDDEN_W, HIDDEN_B, OUT_W, OUT_B, TENSORS };

struct model {
    struct shape shape;
    struct progress now;
    struct tensor tensors[TENSORS];
    size_t total;  /* floats in all tensors */
    float *memory; /* the four parts of all tensors, one part after the other */
    float *hidden, *hidden_grad, *out;
    uint8_t *text; /* as indices into letters */
    size_t text_len;
    uint8_t letters[256];
    char loaded[4096]; /* the file that it was resumed from */
};

/* splitmix64: the same numbers on every machine. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static float uniform(uint64_t *state)
{
    return (float)(next_random(state) >> 40) * 0x1p-24f;
}

static int model_init(struct model *m)
{
    size_t hidden = m->shape.hidden;
    size_t letters = m->shape.vocabulary;
    const struct tensor tensors[TENSORS] = {
        [TABLE] = {.name = "table", .len = letters * EMBED, .inputs = 1},
        [HIDDEN_W] = {.name = "hidden.weight", .len = INPUTS * hidden, .inputs = INPUTS},
        [HIDDEN_B] = {.name = "hidden.bias", .len = hidden},
        [OUT_W] = {.name = "out.weight", .len = hidden * letters, .inputs = hidden},
        [OUT_B] = {.name = "out.bias", .len = letters},
    };
    memcpy(m->tensors, tensors, sizeof(tensors));
    for (int i = 0; i < TENSORS; i++) {
        m->total += m->tensors[i].len;
    }
    m->memory = calloc(4 * m->total + 2 * hidden + letters, sizeof(float));
    if (m->memory == NULL) {
        return complain("no memory for %zu weights", m->total);
    }
    m->hidden = m->memory + 4 * m->total;
    m->hidden_grad = m->hidden + hidden;
    m->out = m->hidden_grad + hidden;
    m->now = (struct progress){.random = 1, .loss = log((double)letters)};
    float *next = m->memory;
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &m->tensors[i];
        t->w = next;
        t->mean = t->w + m->total;
        t->square = t->mean + m->total;
        t->grad = t->square + m->total;
        next += t->len;
        float range = t->inputs > 0 ? sqrtf(3.0f / (float)t->inputs) : 0;
        for (size_t k = 0; k < t->len; k++) {
            t->w[k] = range * (2 * uniform(&m->now.random) - 1);
        }
    }
    return 0;
}

/* ---- one step -------------------------------------------------------------------------- */

static void add_scaled(float *out, const float *in, float factor, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[i] += factor * in[i];
    }
}

static float dot(const float *a, const float *b, size_t len)
{
    float part[8] = {0}; /* eight sums at a time, always in the same order */
    size_t i = 0;
    for (; i + 8 <= len; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            part[k] += a[i + k] * b[i + k];
        }
    }
    float total = 0;
    for (; i < len; i++) {
        total += a[i] * b[i];
    }
    for (size_t k = 0; k < 8; k++) {
        total += part[k];
    }
    return total;
}

/* From eight characters to the probability of each as the next one, in m->out. */
static void forward(struct model *m, const uint8_t *seen)
{
    size_t hidden = m->shape.hidden;
    size_t letters = m->shape.vocabulary;
    memcpy(m->hidden, m->tensors[HIDDEN_B].w, hidden * sizeof(float));
    for (size_t i = 0; i < INPUTS; i++) {
        float in = m->tensors[TABLE].w[(size_t)seen[i / EMBED] * EMBED + i % EMBED];
        add_scaled(m->hidden, m->tensors[HIDDEN_W].w + i * hidden, in, hidden);
    }
    memcpy(m->out, m->tensors[OUT_B].w, letters * sizeof(float));
    for (size_t j = 0; j < hidden; j++) {
        m->hidden[j] = tanhf(m->hidden[j]);
        add_scaled(m->out, m->tensors[OUT_W].w + j * letters, m->hidden[j], letters);
    }
    float top = m->out[0];
    for (size_t k = 1; k < letters; k++) {
        top = m->out[k] > top ? m->out[k] : top;
    }
    float total = 0;
    for (size_t k = 0; k < letters; k++) {
        m->out[k] = expf(m->out[k] - top);
        total += m->out[k];
    }
    for (size_t k = 0; k < letters; k++) {
        m->out[k] /= total;
    }
}

/* Adds the gradient of the last forward() to all tensors; gives the loss. */
static double backward(struct model *m, const uint8_t *seen, uint8_t next)
{
    size_t hidden = m->shape.hidden;
    size_t letters = m->shape.vocabulary;
    double loss = -log((double)m->out[next] + 1e-12);
    float *wrong = m->out; /* the gradient of the loss, in place */
    wrong[next] -= 1;
    add_scaled(m->tensors[OUT_B].grad, wrong, 1, letters);
    for (size_t j = 0; j < hidden; j++) {
        float h = m->hidden[j];
        add_scaled(m->tensors[OUT_W].grad + j * letters, wrong, h, letters);
        m->hidden_grad[j] = dot(m->tensors[OUT_W].w + j * letters, wrong, letters) * (1 - h * h);
    }
    add_scaled(m->tensors[HIDDEN_B].grad, m->hidden_grad, 1, hidden);
    for (size_t i = 0; i < INPUTS; i++) {
        size_t cell = (size_t)seen[i / EMBED] * EMBED + i % EMBED;
        float in = m->tensors[TABLE].w[cell];
        add_scaled(m->tensors[HIDDEN_W].grad + i * hidden, m->hidden_grad, in, hidden);
        m->tensors[TABLE].grad[cell] +=
            dot(m->tensors[HIDDEN_W].w + i * hidden, m->hidden_grad, hidden);
    }
    return loss;
}

/* Adam. Uses the gradient up. */
static void update(struct tensor *t, uint64_t step, uint32_t batch)
{
    const float keep_mean = 0.9f;
    const float keep_square = 0.99f;
    const float rate = 0.002f;
    float mean_part = 1 - powf(keep_mean, (float)(step + 1));
    float square_part = 1 - powf(keep_square, (float)(step + 1));
    for (size_t i = 0; i < t->len; i++) {
        float g = t->grad[i] / (float)batch;
        t->mean[i] = keep_mean * t->mean[i] + (1 - keep_mean) * g;
        t->square[i] = keep_square * t->square[i] + (1 - keep_square) * g * g;
        t->w[i] -= rate * (t->mean[i] / mean_part) / (sqrtf(t->square[i] / square_part) + 1e-8f);
        t->grad[i] = 0;
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Every place of the text once, in an order that each pass draws anew. */
static const uint8_t *next_example(struct model *m)
{
    uint64_t examples = m->text_len - WINDOW;
    struct progress *p = &m->now;
    if (p->left == 0) {
        p->left = examples;
        p->at = next_random(&p->random) % examples;
        do {
            p->stride = next_random(&p->random) % examples;
        } while (common_divisor(p->stride, examples) != 1);
    }
    p->left--;
    p->at = (p->at + p->stride) % examples;
    return m->text + p->at;
}

static void train_step(struct model *m)
{
    double loss = 0;
    for (uint32_t i = 0; i < m->shape.batch; i++) {
        const uint8_t *seen = next_example(m);
        forward(m, seen);
        loss += backward(m, seen, seen[WINDOW]);
    }
    for (int i = 0; i < TENSORS; i++) {
        update(&m->tensors[i], m->now.step, m->shape.batch);
    }
    m->now.loss += 0.02 * (loss / m->shape.batch - m->now.loss);
    m->now.step++;
}

/* ---- checkpoints ----------------------------------------------------------------------- */

/* A file is: this head, weights, means and squares of all tensors, checksum of all before. */
#define MAGIC   UINT64_C(0x54504b434d4c4843) /* reads otherwise where bytes are swapped */
#define VERSION 1

struct head {
    uint64_t magic;
    uint32_t version, head_bytes;
    struct shape shape;
    struct progress now;
    uint64_t floats;
};

static int write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno != EINTR) {
            return -1;
        }
        p += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_parts(int fd, const struct head *head, const void *body, size_t body_len)
{
    sum all = sum_add(sum_add(SUM_START, head, sizeof(*head)), body, body_len);
    bool ok = write_all(fd, head, sizeof(*head)) == 0 && write_all(fd, body, body_len) == 0 &&
              write_all(fd, &all, sizeof(all)) == 0 && fsync(fd) == 0;
    return ok ? 0 : -1;
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    int rc = fsync(fd);
    close(fd);
    return rc;
}

/* Writes the checkpoint into the folder: under another name first, so that a file with the right
 * name is always complete. */
static int save(const struct model *m, const char *folder)
{
    char path[4096];
    char tmp[sizeof(path) + 8];
    struct head head;
    memset(&head, 0, sizeof(head)); /* padding is written too */
    head.magic = MAGIC;
    head.version = VERSION;
    head.head_bytes = sizeof(head);
    head.shape = m->shape;
    head.now = m->now;
    head.floats = 3 * m->total;
    if (folder == NULL) {
        return complain("no folder for the checkpoint: %s", strerror(errno));
    }
    snprintf(path, sizeof(path), "%s/%s", folder, FILE_NAME);
    snprintf(tmp, sizeof(tmp), "%s.tmp", path);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return complain("create '%s': %s", tmp, strerror(errno));
    }
    int rc = write_parts(fd, &head, m->memory, 3 * m->total * sizeof(float));
    int saved_errno = errno;
    close(fd);
    errno = saved_errno;
    if (rc != 0 || rename(tmp, path) != 0 || sync_folder(folder) != 0) {
        complain("write '%s': %s", path, strerror(errno));
        unlink(tmp);
        return -1;
    }
    return 0;
}

static int check_head(const struct head *head, const struct model *m, const char *path)
{
    if (head->magic != MAGIC || head->head_bytes != sizeof(*head)) {
        return complain("'%s' is no checkpoint of this program", path);
    }
    if (head->version != VERSION) {
        return complain("'%s' has format %u, this program reads %d", path, head->version, VERSION);
    }
    if (head->shape.hidden != m->shape.hidden || head->shape.batch != m->shape.batch) {
        return complain("'%s' was made with --hidden %u --batch %u, not --hidden %u --batch %u",
                        path, head->shape.hidden, head->shape.batch, m->shape.hidden,
                        m->shape.batch);
    }
    if (head->shape.text != m->shape.text) {
        return complain("'%s' was made from another text", path);
    }
    bool same = head->shape.window == WINDOW && head->shape.embed == EMBED &&
                head->shape.vocabulary == m->shape.vocabulary && head->floats == 3 * m->total;
    return same ? 0 : complain("'%s' was made by a model of another size", path);
}

/* Reads a checkpoint that save() wrote; the model is untouched unless all of it is right. */
static int read_checkpoint(struct model *m, FILE *f, float *body, const char *path)
{
    struct head head;
    sum want = 0;
    if (fread(&head, sizeof(head), 1, f) != 1) {
        return complain("'%s' is cut off", path);
    }
    if (check_head(&head, m, path) != 0) {
        return -1;
    }
    if (fread(body, sizeof(float), 3 * m->total, f) != 3 * m->total ||
        fread(&want, sizeof(want), 1, f) != 1) {
        return complain("'%s' is cut off", path);
    }
    sum have = sum_add(SUM_START, &head, sizeof(head));
    if (sum_add(have, body, 3 * m->total * sizeof(float)) != want) {
        return complain("'%s' is damaged: its checksum is wrong", path);
    }
    memcpy(m->memory, body, 3 * m->total * sizeof(float));
    m->now = head.now;
    return 0;
}

/* Called by holdfast_resume with the folder that save() wrote into. */
static int load(void *user, const char *folder)
{
    struct model *m = user;
    snprintf(m->loaded, sizeof(m->loaded), "%s/%s", folder, FILE_NAME);
    FILE *f = fopen(m->loaded, "rb");
    if (f == NULL) {
        return complain("open '%s': %s", m->loaded, strerror(errno));
    }
    float *body = malloc(3 * m->total * sizeof(float));
    int rc = body != NULL ? read_checkpoint(m, f, body, m->loaded) : complain("no memory");
    free(body);
    fclose(f);
    return rc;
}

/* ---- text in, text out ----------------------------------------------------------------- */

static int read_file(struct model *m, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        return complain("open '%s': %s", path, strerror(errno));
    }
    m->text_len += fread(m->text + m->text_len, 1, TEXT_MAX - m->text_len, f);
    int rc = ferror(f)                 ? complain("read '%s' failed", path)
             : m->text_len == TEXT_MAX ? complain("more than %u bytes of text", TEXT_MAX)
                                       : 0;
    fclose(f);
    return rc;
}

/* Reads all files as one text, and numbers the characters that occur. */
static int read_text(struct model *m, char **paths, int count)
{
    uint8_t number[256] = {0};
    m->text = malloc(TEXT_MAX);
    if (m->text == NULL) {
        return complain("no memory for the text");
    }
    for (int i = 0; i < count; i++) {
        if (read_file(m, paths[i]) != 0) {
            return -1;
        }
    }
    if (m->text_len < 100 * WINDOW) {
        return complain("%zu characters are too short a text", m->text_len);
    }
    m->shape.text = sum_add(SUM_START, m->text, m->text_len);
    for (size_t i = 0; i < m->text_len; i++) {
        number[m->text[i]] = 1;
    }
    for (unsigned c = 0; c < 256; c++) {
        if (number[c] != 0) {
            number[c] = (uint8_t)m->shape.vocabulary;
            m->letters[m->shape.vocabulary++] = (uint8_t)c;
        }
    }
    for (size_t i = 0; i < m->text_len; i++) {
        m->text[i] = number[m->text[i]];
    }
    return 0;
}

/* What the model makes of the beginning of the text. */
static void print_sample(struct model *m, int length)
{
    uint8_t seen[WINDOW];
    uint64_t random = 2;
    memcpy(seen, m->text, WINDOW);
    puts("sample:");
    for (int i = 0; i < length; i++) {
        forward(m, seen);
        float ball = uniform(&random);
        uint8_t next = 0;
        while (next + 1u < m->shape.vocabulary && (ball -= m->out[next]) > 0) {
            next++;
        }
        memmove(seen, seen + 1, WINDOW - 1);
        seen[WINDOW - 1] = next;
        uint8_t c = m->letters[next];
        putchar(c == '\n' || (c >= ' ' && c < 0x7f) ? c : '?');
    }
    putchar('\n');
}

/* Two trainings ended alike if and only if these are equal. */
static void print_digest(const struct model *m)
{
    sum all = SUM_START;
    for (int i = 0; i < TENSORS; i++) {
        all = sum_add(all, m->tensors[i].name, strlen(m->tensors[i].name) + 1);
        all = sum_add(all, m->tensors[i].w, m->tensors[i].len * sizeof(float));
    }
    printf("digest: %016llx%016llx\n", (unsigned long long)(all >> 64), (unsigned long long)all);
}

static int write_weights(const struct model *m, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(m->memory, sizeof(float), m->total, f) != m->total || fclose(f) != 0) {
        return complain("write '%s': %s", path, strerror(errno));
    }
    return 0;
}

/* ---- the program ----------------------------------------------------------------------- */

struct options {
    long steps, batch, hidden, report, save_every, slow_ms;
    const char *out, *save_dir;
    char **files;
    int file_count;
};

static const char usage[] =
    "usage: charlm [options] FILE...\n"
    "  --steps N       steps to train (8000)\n"
    "  --batch N       examples a step (64)\n"
    "  --hidden N      size of the hidden layer (192)\n"
    "  --report N      print the loss every N steps (200)\n"
    "  --save-every N  save every N steps by itself, besides what Holdfast asks for (0: never)\n"
    "  --save-dir DIR  where such saves go outside Holdfast (checkpoints)\n"
    "  --out FILE      write the final weights\n"
    "  --slow MS       rest after every step, for trying things out\n";

static int take_number(const char *name, const char *text, long min, long max, long *ret)
{
    char *end = NULL;
    errno = 0;
    long n = text != NULL ? strtol(text, &end, 10) : 0;
    if (text == NULL || end == text || *end != '\0' || errno != 0 || n < min || n > max) {
        return complain("%s wants a number from %ld to %ld", name, min, max);
    }
    *ret = n;
    return 0;
}

static int take_option(struct options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        long min, max, *to;
    } numbers[] = {
        {"--steps", 1, 1000000000, &o->steps},
        {"--batch", 1, 65536, &o->batch},
        {"--hidden", 1, 65536, &o->hidden},
        {"--report", 1, 1000000, &o->report},
        {"--save-every", 0, 1000000000, &o->save_every},
        {"--slow", 0, 60000, &o->slow_ms},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(name, numbers[i].name) == 0) {
            return take_number(name, value, numbers[i].min, numbers[i].max, numbers[i].to);
        }
    }
    bool out = strcmp(name, "--out") == 0;
    if ((!out && strcmp(name, "--save-dir") != 0) || value == NULL) {
        return complain("what is '%s'?\n%s", name, usage);
    }
    *(out ? &o->out : &o->save_dir) = value;
    return 0;
}

static int take_options(struct options *o, char **argv)
{
    char **arg = argv + 1;
    if (*arg != NULL && strcmp(*arg, "--help") == 0) {
        fputs(usage, stdout);
        exit(0);
    }
    for (; *arg != NULL && strncmp(*arg, "--", 2) == 0; arg += 2) {
        if (take_option(o, arg[0], arg[1]) != 0) {
            return -1;
        }
    }
    o->files = arg;
    for (; *arg != NULL; arg++) {
        o->file_count++;
    }
    return o->file_count > 0 ? 0 : complain("no text to learn from\n%s", usage);
}

static enum holdfast_verb save_step(const struct model *m, struct holdfast *run, int64_t step)
{
    const char *folder = holdfast_path(run, step);
    if (save(m, folder) != 0) {
        exit(1);
    }
    printf("saved step %lld in %s\n", (long long)step, folder);
    fflush(stdout);
    return holdfast_saved(run, NULL);
}

/* The loop that every training program has. HOLDFAST_LEAVE: the machine is going away. */
static enum holdfast_verb train(struct model *m, struct holdfast *run, const struct options *o)
{
    for (int64_t step = (int64_t)m->now.step; step < o->steps; step++) {
        train_step(m);
        if ((step + 1) % o->report == 0 || step + 1 == o->steps) {
            printf("step %lld loss %.4f\n", (long long)step, m->now.loss);
            fflush(stdout);
        }
        if (o->slow_ms > 0) {
            poll(NULL, 0, (int)o->slow_ms);
        }

        enum holdfast_verb verb = holdfast_step(run, step);
        bool own = o->save_every > 0 && (step + 1) % o->save_every == 0;
        if (verb == HOLDFAST_SAVE || (verb == HOLDFAST_GO_ON && own)) {
            verb = save_step(m, run, step);
        }
        if (verb == HOLDFAST_LEAVE) {
            return verb;
        }
    }
    return HOLDFAST_GO_ON;
}

static int finish(struct model *m, const struct options *o)
{
    print_sample(m, 240);
    print_digest(m);
    return o->out != NULL && write_weights(m, o->out) != 0 ? 1 : 0;
}

static int run_all(struct model *m, const struct options *o)
{
    if (read_text(m, o->files, o->file_count) != 0 || model_init(m) != 0) {
        return 1;
    }
    struct holdfast_opts opts = {
        .size = sizeof(opts), .framework = "charlm", .steps = o->steps, .save_dir = o->save_dir};
    struct holdfast *run = holdfast_init(&opts);
    int status = 1; /* load() has said why; starting at 0 would throw the training away */
    if (holdfast_resume(run, load, m) >= 0) {
        bool resumed = m->loaded[0] != '\0';
        printf("charlm: %s at step %llu%s%s\n", resumed ? "resumed" : "starting",
               (unsigned long long)m->now.step, resumed ? " from " : "", m->loaded);
        fflush(stdout);
        if (train(m, run, o) == HOLDFAST_LEAVE) {
            status = HOLDFAST_EXIT_LEAVE; /* before anything that a finished training does */
        } else {
            holdfast_done(run);
            status = finish(m, o);
        }
    }
    holdfast_close(run);
    return status;
}

int main(int argc, char **argv)
{
    (void)argc;
    struct options o = {
        .steps = 8000, .batch = 64, .hidden = 192, .report = 200, .save_dir = "checkpoints"};
    struct model m = {0};
    if (take_options(&o, argv) != 0) {
        return 2;
    }
    m.shape.window = WINDOW;
    m.shape.embed = EMBED;
    m.shape.hidden = (uint32_t)o.hidden;
    m.shape.batch = (uint32_t)o.batch;
    int status = run_all(&m, &o);
    free(m.text);
    free(m.memory);
    return status;
}
