/* SPDX-License-Identifier: MIT */
#include "agent/gpu/gpu_monitor.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/gpu/gpu_probe.h"
#include "agent/gpu/nvml.h"
#include "rendezvous/base/clock.h"
#include "agent/gpu/limits.h"
#include "rendezvous/base/limits.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/xalloc.h"

struct xid {
    uint64_t number, at_ms;
    bool told;
};

struct care_gpu {
    struct gpu_health sight;
    bool seen;
    uint64_t uncorrected; /* when it was seen first, or told last */
    bool ecc, repair_told, silent_told, recovery_told;
    struct xid xid[GPU_XIDS_KEPT]; /* of this epoch, the newest last */
    unsigned xids;
};

struct gpu_monitor {
    const struct config *config;
    struct gpu_monitor_calls calls;
    int socket; /* -1: the probe is gone */
    struct event *readable;
    struct loop_timer deadline; /* armed while a look is under way */
    uint64_t looked_ms;
    bool silent; /* the driver hangs */
    bool answered;
    void (*checked)(void *arg, const char *unfit); /* NULL: nobody waits for that */
    void *checked_arg;
    uint32_t count;
    struct care_gpu gpu[GPUS_PER_NODE_MAX];
    bool placed;
    uint32_t first_rank;
};

/* -- in words ------------------------------------------------------------------- */

static void remark(const struct gpu_monitor *c, enum note_kind kind, const char *text)
{
    c->calls.remark(c->calls.arg, kind, text);
}

/* "rank 3", or "ranks 0, 2" where they share it. */
static char *ranks_of(const struct gpu_monitor *c, uint32_t at, char *buf, size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "rank%s %" PRIu32,
                                   at + c->count < c->config->workers ? "s" : "",
                                   c->first_rank + at);

    for (uint32_t i = at + c->count; i < c->config->workers && used + 12 < size;
         i += c->count)
        used += (size_t)snprintf(buf + used, size - used, ", %" PRIu32,
                                 c->first_rank + i);
    return buf;
}

/* "rank 3: GPU 3 (0000:1b:00.0) WHAT" */
static void remark_on(const struct gpu_monitor *c, uint32_t at, enum note_kind kind,
                      const char *what)
{
    char text[ERROR_TEXT_MAX_BYTES + 1], ranks[64], name[64];

    snprintf(text, sizeof(text), "%s: %s %s", ranks_of(c, at, ranks, sizeof(ranks)),
             gpu_health_name(&c->gpu[at].sight, name, sizeof(name)), what);
    remark(c, kind, text);
}

/* "had XID 79 WHEN: it has fallen off the bus" */
static char *xid_text(uint64_t xid, const char *when, char *buf, size_t size)
{
    const char *text = gpu_health_xid_text(xid);

    snprintf(buf, size, "had XID %" PRIu64 "%s%s%s", xid, when, *text ? ": " : "",
             text);
    return buf;
}

/* A word or two for the status, or "". */
static void trouble(const struct care_gpu *g, char *buf, size_t size)
{
    const struct gpu_health *s = &g->sight;

    *buf = '\0';
    if (g->xids)
        snprintf(buf, size, "XID %" PRIu64, g->xid[g->xids - 1].number);
    else if (!s->answers)
        snprintf(buf, size, "lost");
    else if (g->ecc || s->repair_waits || s->repair_fails)
        snprintf(buf, size, "ECC");
    else if (s->recovery)
        snprintf(buf, size, "to be reset");
    else if (s->hot)
        snprintf(buf, size, "hot");
}

/* -- judging -------------------------------------------------------------------- */

static void tell_xids(struct gpu_monitor *c, uint32_t at)
{
    struct care_gpu *g = &c->gpu[at];
    char what[128];

    for (unsigned i = 0; i < g->xids; i++) {
        if (g->xid[i].told)
            continue;
        g->xid[i].told = true;
        remark_on(c, at, NOTE_XID, xid_text(g->xid[i].number, "", what, sizeof(what)));
    }
}

static void tell_errors(struct gpu_monitor *c, uint32_t at)
{
    struct care_gpu *g = &c->gpu[at];
    const struct gpu_health *s = &g->sight;
    char what[128];

    if (s->uncorrected > g->uncorrected) {
        snprintf(what, sizeof(what), "had %" PRIu64 " uncorrected memory error%s",
                 s->uncorrected - g->uncorrected,
                 text_plural(s->uncorrected - g->uncorrected));
        g->ecc = true;
        remark_on(c, at, NOTE_ECC, what);
    }
    g->uncorrected = s->uncorrected;
    if ((s->repair_waits || s->repair_fails) && !g->repair_told) {
        g->repair_told = true;
        remark_on(c, at, NOTE_ECC, gpu_health_repair_text(s));
    }
}

static void judge(struct gpu_monitor *c)
{
    for (uint32_t i = 0; c->placed && i < c->count; i++) {
        struct care_gpu *g = &c->gpu[i];

        tell_xids(c, i);
        if (!g->sight.answers && !g->silent_told) {
            g->silent_told = true;
            remark_on(c, i, NOTE_GPU, "does not answer");
        }
        if (!g->sight.answers)
            continue;
        tell_errors(c, i);
        if (g->sight.recovery && !g->recovery_told) {
            g->recovery_told = true;
            remark_on(c, i, NOTE_GPU, gpu_health_recovery_text(g->sight.recovery));
        }
    }
}

/* -- fit for a job -------------------------------------------------------------- */

static void end_check(struct gpu_monitor *c)
{
    void (*checked)(void *arg, const char *unfit) = c->checked;
    char text[ERROR_TEXT_MAX_BYTES + 1] = "";

    if (!checked)
        return;
    if (!c->answered || c->silent)
        snprintf(text, sizeof(text), "the driver of its GPUs does not answer");
    for (uint32_t i = 0; i < c->count && !*text; i++)
        gpu_health_unfit(&c->gpu[i].sight, text, sizeof(text));
    c->checked = NULL;
    checked(c->checked_arg, text);
}

void gpu_monitor_check(struct gpu_monitor *c,
                       void (*done)(void *arg, const char *unfit), void *arg)
{
    if (!c) {
        done(arg, "");
        return;
    }
    c->checked = done;
    c->checked_arg = arg;
    if (c->answered || c->socket < 0)
        end_check(c);
}

/* -- what the probe says -------------------------------------------------------- */

static void on_sight(struct gpu_monitor *c, const struct gpu_tell *t)
{
    struct care_gpu *g = &c->gpu[t->at];

    g->sight = t->sight;
    if (!g->seen && g->sight.answers)
        g->uncorrected = g->sight.uncorrected;
    g->seen |= g->sight.answers;
}

static void on_seen(struct gpu_monitor *c, const struct gpu_tell *t)
{
    c->count = t->count < GPUS_PER_NODE_MAX ? t->count : GPUS_PER_NODE_MAX;
    c->silent = false;
    c->answered = true;
    loop_timer_cancel(&c->deadline);
    judge(c);
    end_check(c);
}

/* A program at fault brings the same one again and again. */
static void on_xid(struct gpu_monitor *c, const struct gpu_tell *t)
{
    struct care_gpu *g = &c->gpu[t->at];
    struct xid fresh = { .number = t->xid, .at_ms = clock_ms() };

    for (unsigned i = 0; i < g->xids; i++)
        if (g->xid[i].number == t->xid) {
            fresh.told = g->xid[i].told;
            memmove(&g->xid[i], &g->xid[i + 1], (--g->xids - i) * sizeof(*g->xid));
        }
    if (g->xids == GPU_XIDS_KEPT)
        memmove(&g->xid[0], &g->xid[1], --g->xids * sizeof(*g->xid));
    g->xid[g->xids++] = fresh;
    judge(c);
}

static void (*const told[])(struct gpu_monitor *, const struct gpu_tell *) = {
    [GPU_TELL_SIGHT] = on_sight,
    [GPU_TELL_SEEN] = on_seen,
    [GPU_TELL_XID] = on_xid,
};

/* No GPU at all, or a library that crashed: nothing more will come. */
static void probe_is_gone(struct gpu_monitor *c)
{
    event_free(c->readable);
    c->readable = NULL;
    close(c->socket);
    c->socket = -1;
    loop_timer_cancel(&c->deadline);
    if (c->count)
        remark(c, NOTE_GPU, "the process that looks after this node's GPUs has died");
    c->count = 0;
    c->silent = false;
    end_check(c);
}

static void take_in(struct gpu_monitor *c)
{
    while (c->socket >= 0) {
        struct gpu_tell t;
        ssize_t n = recv(c->socket, &t, sizeof(t), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            probe_is_gone(c);
        else if (n == sizeof(t) && (size_t)t.type < sizeof(told) / sizeof(*told) &&
                 t.at < GPUS_PER_NODE_MAX)
            told[t.type](c, &t);
    }
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    take_in(arg);
}

static void on_deadline(void *arg)
{
    struct gpu_monitor *c = arg;

    c->silent = true;
    remark(c, NOTE_GPU, "the driver of this node's GPUs does not answer");
    end_check(c);
}

/* -- the heartbeats ------------------------------------------------------------- */

static void sum_up(const struct gpu_monitor *c, struct msg_gpus *sum)
{
    uint32_t known = 0, percent = 0;
    uint64_t milliwatts = 0;

    *sum = (struct msg_gpus){ .count = c->count };
    for (uint32_t i = 0; i < c->count; i++) {
        const struct gpu_health *s = &c->gpu[i].sight;

        known += s->percent >= 0;
        percent += s->percent >= 0 ? (uint32_t)s->percent : 0;
        milliwatts += s->milliwatts;
        if (s->celsius > sum->celsius)
            sum->celsius = s->celsius;
        if (s->memory_used >> 20 < sum->used_mib || !s->memory_total)
            continue;
        sum->used_mib = (uint32_t)(s->memory_used >> 20);
        sum->total_mib = (uint32_t)(s->memory_total >> 20);
    }
    sum->percent = known ? (int32_t)(percent / known) : -1;
    sum->watts = (uint32_t)(milliwatts / 1000);
}

/* "GPU 3 XID 79, GPU 5 hot", then what else there is to say. */
static void put_note(const struct gpu_monitor *c, char *note, size_t size)
{
    char before[sizeof(((struct msg_heartbeat *)0)->note)], words[32];
    size_t used = 0;

    snprintf(before, sizeof(before), "%s", note);
    if (c->silent)
        used = (size_t)snprintf(note, size, "GPU driver does not answer");
    for (uint32_t i = 0; i < c->count && !c->silent && used + 1 < size; i++) {
        trouble(&c->gpu[i], words, sizeof(words));
        if (*words)
            used += (size_t)snprintf(note + used, size - used, "%sGPU %" PRIu32 " %s",
                                     used ? ", " : "", c->gpu[i].sight.index, words);
    }
    if (used && used + 3 < size && *before)
        snprintf(note + used, size - used, "; %s", before);
}

void gpu_monitor_progress(struct gpu_monitor *c, struct msg_heartbeat *progress)
{
    uint64_t now = clock_ms();

    if (!c || c->socket < 0)
        return;
    if (!c->silent)
        sum_up(c, &progress->gpus);
    put_note(c, progress->note, sizeof(progress->note));
    if (c->deadline.armed || c->silent || now < c->looked_ms + GPU_LOOK_MS)
        return;
    c->looked_ms = now;
    if (gpu_probe_ask(c->socket))
        loop_timer_arm(&c->deadline, now + GPU_SILENT_MS);
}

/* -- failures ------------------------------------------------------------------- */

void gpu_monitor_explain(struct gpu_monitor *c, struct failure *f)
{
    char name[64], had[128], age[32], when[48];
    const struct care_gpu *g;
    const struct xid *x;
    size_t used;

    if (!c)
        return;
    take_in(c);
    if (c->count == 0)
        return;
    g = &c->gpu[f->local_rank % c->count];
    x = g->xids ? &g->xid[g->xids - 1] : NULL;
    /* whoever hangs may have begun to long ago */
    if (!x || (f->kind != FAILURE_HANG && x->at_ms + GPU_XID_BEFORE_MS < f->at_ms))
        return;
    snprintf(when, sizeof(when), " %s before",
             clock_format_duration(f->at_ms > x->at_ms ? f->at_ms - x->at_ms : 0, age,
                                   sizeof(age)));
    used = strlen(f->what);
    snprintf(f->what + used, sizeof(f->what) - used, "%s%s %s", used ? "; " : "",
             gpu_health_name(&g->sight, name, sizeof(name)),
             xid_text(x->number, when, had, sizeof(had)));
}

/* -- the whole ------------------------------------------------------------------ */

void gpu_monitor_begin(struct gpu_monitor *c, const struct msg_start *start)
{
    if (!c)
        return;
    c->placed = true;
    c->first_rank = start->first_rank;
    for (uint32_t i = 0; i < GPUS_PER_NODE_MAX; i++) {
        struct care_gpu *g = &c->gpu[i];
        unsigned kept = 0;

        for (unsigned k = 0; k < g->xids; k++)
            if (!g->xid[k].told)
                g->xid[kept++] = g->xid[k];
        g->xids = kept;
    }
    judge(c);
}

struct gpu_monitor *gpu_monitor_create(struct loop *loop, const struct config *config,
                                       const struct gpu_monitor_calls *calls)
{
    struct gpu_monitor *c;
    struct err e;
    int socket;

    if (!nvml_may_exist())
        return NULL;
    socket = gpu_probe_start(config->workers, &e);
    if (socket < 0) {
        log_warn("%s: this node's GPUs are not looked after", e.text);
        return NULL;
    }
    c = xcalloc(1, sizeof(*c));
    c->config = config;
    c->calls = *calls;
    c->socket = socket;
    c->readable = event_new(loop_base(loop), socket, EV_READ | EV_PERSIST, on_readable,
                            c);
    if (!c->readable)
        abort();
    event_add(c->readable, NULL);
    loop_timer_init(&c->deadline, loop, on_deadline, c);
    loop_timer_arm(&c->deadline, clock_ms() + GPU_FIRST_MS);
    return c;
}

void gpu_monitor_destroy(struct gpu_monitor *c)
{
    if (!c)
        return;
    if (c->readable)
        event_free(c->readable);
    if (c->socket >= 0)
        close(c->socket);
    loop_timer_fini(&c->deadline);
    free(c);
}
