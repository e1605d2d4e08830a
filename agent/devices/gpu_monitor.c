/* SPDX-License-Identifier: MIT */
#include "agent/devices/gpu_monitor.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/devices/gpu_probe.h"
#include "agent/devices/limits.h"
#include "agent/devices/nvml.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

struct gpu_xid {
    uint64_t number, at_ms;
    bool reported;
};

struct monitored_gpu {
    struct gpu_health health;
    bool seen;
    uint64_t uncorrected; /* when first read, or last reported */
    bool ecc, repair_reported, silence_reported, recovery_reported;
    struct gpu_xid xid[GPU_XIDS_KEPT]; /* of this epoch, the latest last */
    unsigned xids;
};

struct gpu_monitor {
    const struct config *config;
    struct gpu_monitor_calls calls;
    int socket; /* -1: the probe is gone */
    struct event *readable;
    struct loop_timer deadline; /* armed while a reading is under way */
    uint64_t requested_ms;
    bool driver_hangs; /* the driver does not answer */
    bool answered;
    void (*check_done)(void *arg, const char *unfit); /* NULL: no check is under way */
    void *checked_arg;
    uint32_t count;
    struct monitored_gpu gpu[GPUS_PER_NODE_MAX];
    uint32_t last_xid, all_xids; /* of any GPU, since the start */
    bool placed;
    uint32_t first_rank;
};

/* -- remarks -------------------------------------------------------------------- */

static void send_gpu_remark(const struct gpu_monitor *m, enum note_kind kind,
                            const char *text)
{
    m->calls.remark(m->calls.arg, kind, text);
}

/* "rank 3", or "ranks 0, 2" if they share the GPU. */
static char *format_ranks(const struct gpu_monitor *m, uint32_t at, char *buf,
                          size_t size)
{
    size_t used = (size_t)snprintf(buf, size, "rank%s %" PRIu32,
                                   at + m->count < m->config->workers ? "s" : "",
                                   m->first_rank + at);

    for (uint32_t i = at + m->count; i < m->config->workers && used + 12 < size;
         i += m->count)
        used += (size_t)snprintf(buf + used, size - used, ", %" PRIu32,
                                 m->first_rank + i);
    return buf;
}

/* "rank 3: GPU 3 (0000:1b:00.0) WHAT" */
static void send_remark_on(const struct gpu_monitor *m, uint32_t at,
                           enum note_kind kind, const char *what)
{
    char text[ERROR_TEXT_MAX_BYTES + 1], ranks[64], name[GPU_NAME_SIZE];

    snprintf(text, sizeof(text), "%s: %s %s", format_ranks(m, at, ranks, sizeof(ranks)),
             gpu_health_name(&m->gpu[at].health, name, sizeof(name)), what);
    send_gpu_remark(m, kind, text);
}

/* "had XID 79 WHEN: it has fallen off the bus" */
static char *describe_xid(uint64_t xid, const char *when, char *buf, size_t size)
{
    const char *text = gpu_health_xid_text(xid);

    snprintf(buf, size, "had XID %" PRIu64 "%s%s%s", xid, when, *text ? ": " : "",
             text);
    return buf;
}

/* A short text for the status, or "". */
static void describe_trouble(const struct monitored_gpu *g, char *buf, size_t size)
{
    const struct gpu_health *s = &g->health;

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

/* -- troubles ------------------------------------------------------------------- */

static void report_xids(struct gpu_monitor *m, uint32_t at)
{
    struct monitored_gpu *g = &m->gpu[at];
    char what[128];

    for (unsigned i = 0; i < g->xids; i++) {
        if (g->xid[i].reported)
            continue;
        g->xid[i].reported = true;
        send_remark_on(m, at, NOTE_XID,
                       describe_xid(g->xid[i].number, "", what, sizeof(what)));
    }
}

static void report_memory_errors(struct gpu_monitor *m, uint32_t at)
{
    struct monitored_gpu *g = &m->gpu[at];
    const struct gpu_health *s = &g->health;
    char what[128];

    if (s->uncorrected > g->uncorrected) {
        snprintf(what, sizeof(what), "had %" PRIu64 " uncorrected memory error%s",
                 s->uncorrected - g->uncorrected,
                 text_plural(s->uncorrected - g->uncorrected));
        g->ecc = true;
        send_remark_on(m, at, NOTE_ECC, what);
    }
    g->uncorrected = s->uncorrected;
    if ((s->repair_waits || s->repair_fails) && !g->repair_reported) {
        g->repair_reported = true;
        send_remark_on(m, at, NOTE_ECC, gpu_health_repair_text(s));
    }
}

static void report_troubles(struct gpu_monitor *m)
{
    for (uint32_t i = 0; m->placed && i < m->count; i++) {
        struct monitored_gpu *g = &m->gpu[i];

        report_xids(m, i);
        if (!g->health.answers && !g->silence_reported) {
            g->silence_reported = true;
            send_remark_on(m, i, NOTE_GPU, "does not answer");
        }
        if (!g->health.answers)
            continue;
        report_memory_errors(m, i);
        if (g->health.recovery && !g->recovery_reported) {
            g->recovery_reported = true;
            send_remark_on(m, i, NOTE_GPU,
                           gpu_health_recovery_text(g->health.recovery));
        }
    }
}

/* -- fit for a job -------------------------------------------------------------- */

static void finish_check(struct gpu_monitor *m)
{
    void (*check_done)(void *arg, const char *unfit) = m->check_done;
    char text[ERROR_TEXT_MAX_BYTES + 1] = "";

    if (!check_done)
        return;
    if (!m->answered || m->driver_hangs)
        snprintf(text, sizeof(text), "the driver of its GPUs does not answer");
    for (uint32_t i = 0; i < m->count && !*text; i++)
        gpu_health_unfit(&m->gpu[i].health, text, sizeof(text));
    m->check_done = NULL;
    check_done(m->checked_arg, text);
}

void gpu_monitor_check(struct gpu_monitor *m,
                       void (*done)(void *arg, const char *unfit), void *arg)
{
    if (!m) {
        done(arg, "");
        return;
    }
    m->check_done = done;
    m->checked_arg = arg;
    if (m->answered || m->socket < 0)
        finish_check(m);
}

/* -- events of the probe -------------------------------------------------------- */

static void on_health(struct gpu_monitor *m, const struct gpu_probe_event *t)
{
    struct monitored_gpu *g = &m->gpu[t->at];

    g->health = t->health;
    if (!g->seen && g->health.answers)
        g->uncorrected = g->health.uncorrected;
    g->seen |= g->health.answers;
}

static void on_complete(struct gpu_monitor *m, const struct gpu_probe_event *t)
{
    m->count = t->count < GPUS_PER_NODE_MAX ? t->count : GPUS_PER_NODE_MAX;
    m->driver_hangs = false;
    m->answered = true;
    loop_timer_cancel(&m->deadline);
    report_troubles(m);
    finish_check(m);
}

/* A faulty program causes the same XID again and again: each is kept once. */
static void on_xid(struct gpu_monitor *m, const struct gpu_probe_event *t)
{
    struct monitored_gpu *g = &m->gpu[t->at];
    struct gpu_xid fresh = { .number = t->xid, .at_ms = clock_ms() };

    m->last_xid = (uint32_t)t->xid;
    m->all_xids++;
    for (unsigned i = 0; i < g->xids; i++)
        if (g->xid[i].number == t->xid) {
            fresh.reported = g->xid[i].reported;
            memmove(&g->xid[i], &g->xid[i + 1], (--g->xids - i) * sizeof(*g->xid));
        }
    if (g->xids == GPU_XIDS_KEPT)
        memmove(&g->xid[0], &g->xid[1], --g->xids * sizeof(*g->xid));
    g->xid[g->xids++] = fresh;
    report_troubles(m);
}

static void (*const event_handlers[])(struct gpu_monitor *,
                                      const struct gpu_probe_event *) = {
    [GPU_PROBE_HEALTH] = on_health,
    [GPU_PROBE_COMPLETE] = on_complete,
    [GPU_PROBE_XID] = on_xid,
};

/* The probe has ended: it found no GPU, or NVML crashed in it. */
static void on_probe_death(struct gpu_monitor *m)
{
    event_free(m->readable);
    m->readable = NULL;
    close(m->socket);
    m->socket = -1;
    loop_timer_cancel(&m->deadline);
    if (m->count)
        send_gpu_remark(m, NOTE_GPU,
                        "the process that monitors this node's GPUs has died");
    m->count = 0;
    m->driver_hangs = false;
    finish_check(m);
}

static void read_probe_events(struct gpu_monitor *m)
{
    while (m->socket >= 0) {
        struct gpu_probe_event t;
        ssize_t n = recv(m->socket, &t, sizeof(t), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0)
            on_probe_death(m);
        else if (n == sizeof(t) &&
                 (size_t)t.type < sizeof(event_handlers) / sizeof(*event_handlers) &&
                 t.at < GPUS_PER_NODE_MAX)
            event_handlers[t.type](m, &t);
    }
}

static void on_probe_readable(evutil_socket_t fd, short what, void *arg)
{
    read_probe_events(arg);
}

static void on_read_deadline(void *arg)
{
    struct gpu_monitor *m = arg;

    m->driver_hangs = true;
    send_gpu_remark(m, NOTE_GPU, "the driver of this node's GPUs does not answer");
    finish_check(m);
}

/* -- the heartbeats ------------------------------------------------------------- */

/* Writes "0:97 1:-" */
static void list_gpus(const struct gpu_monitor *m, char *each, size_t size)
{
    char item[32];
    size_t used = 0;

    for (uint32_t i = 0; i < m->count; i++) {
        const struct gpu_health *s = &m->gpu[i].health;
        const char *blank = i ? " " : "";
        size_t length = (size_t)snprintf(item, sizeof(item),
                                         s->percent >= 0 ? "%s%" PRIu32 ":%d"
                                                         : "%s%" PRIu32 ":-",
                                         blank, s->index, (int)s->percent);

        if (used + length >= size)
            return;
        memcpy(each + used, item, length + 1);
        used += length;
    }
}

static void sum_up_gpus(const struct gpu_monitor *m, struct msg_gpus *sum)
{
    uint32_t known = 0, percent = 0;
    uint64_t milliwatts = 0;

    *sum = (struct msg_gpus){ .count = m->count };
    for (uint32_t i = 0; i < m->count; i++) {
        const struct gpu_health *s = &m->gpu[i].health;

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
    list_gpus(m, sum->each, sizeof(sum->each));
}

/* Writes "GPU 3 XID 79, GPU 5 hot" before the existing note. */
static void write_note(const struct gpu_monitor *m, char *note, size_t size)
{
    char before[sizeof(((struct msg_heartbeat *)0)->note)], trouble[32];
    size_t used = 0;

    snprintf(before, sizeof(before), "%s", note);
    if (m->driver_hangs)
        used = (size_t)snprintf(note, size, "GPU driver does not answer");
    for (uint32_t i = 0; i < m->count && !m->driver_hangs && used + 1 < size; i++) {
        describe_trouble(&m->gpu[i], trouble, sizeof(trouble));
        if (*trouble)
            used += (size_t)snprintf(note + used, size - used, "%sGPU %" PRIu32 " %s",
                                     used ? ", " : "", m->gpu[i].health.index, trouble);
    }
    if (used && used + 3 < size && *before)
        snprintf(note + used, size - used, "; %s", before);
}

void gpu_monitor_fill_heartbeat(struct gpu_monitor *m, struct msg_heartbeat *progress)
{
    uint64_t now = clock_ms();

    if (!m || m->socket < 0)
        return;
    if (!m->driver_hangs)
        sum_up_gpus(m, &progress->gpus);
    progress->xid = m->last_xid;
    progress->xids = m->all_xids;
    write_note(m, progress->note, sizeof(progress->note));
    if (m->deadline.armed || m->driver_hangs || now < m->requested_ms + GPU_READ_MS)
        return;
    m->requested_ms = now;
    if (gpu_probe_request(m->socket))
        loop_timer_arm(&m->deadline, now + GPU_SILENT_MS);
}

/* -- failures ------------------------------------------------------------------- */

void gpu_monitor_explain(struct gpu_monitor *m, struct failure *f)
{
    char name[GPU_NAME_SIZE], had[128], age[32], when[48];
    const struct monitored_gpu *g;
    const struct gpu_xid *x;
    size_t used;

    if (!m)
        return;
    read_probe_events(m);
    if (m->count == 0)
        return;
    g = &m->gpu[f->local_rank % m->count];
    x = g->xids ? &g->xid[g->xids - 1] : NULL;
    /* a hang may have begun long before it is found */
    if (!x || (f->kind != FAILURE_HANG && x->at_ms + GPU_XID_BEFORE_MS < f->at_ms))
        return;
    snprintf(when, sizeof(when), " %s before",
             clock_format_duration(f->at_ms > x->at_ms ? f->at_ms - x->at_ms : 0, age,
                                   sizeof(age)));
    used = strlen(f->what);
    snprintf(f->what + used, sizeof(f->what) - used, "%s%s %s", used ? "; " : "",
             gpu_health_name(&g->health, name, sizeof(name)),
             describe_xid(x->number, when, had, sizeof(had)));
}

/* -- the whole ------------------------------------------------------------------ */

void gpu_monitor_begin(struct gpu_monitor *m, const struct msg_start *start)
{
    if (!m)
        return;
    m->placed = true;
    m->first_rank = start->first_rank;
    for (uint32_t i = 0; i < GPUS_PER_NODE_MAX; i++) {
        struct monitored_gpu *g = &m->gpu[i];
        unsigned kept = 0;

        for (unsigned k = 0; k < g->xids; k++)
            if (!g->xid[k].reported)
                g->xid[kept++] = g->xid[k];
        g->xids = kept;
    }
    report_troubles(m);
}

struct gpu_monitor *gpu_monitor_create(struct loop *loop, const struct config *config,
                                       const struct gpu_monitor_calls *calls)
{
    struct gpu_monitor *m;
    struct err e;
    int socket;

    if (!nvml_may_exist())
        return NULL;
    socket = gpu_probe_start(config->workers, &e);
    if (socket < 0) {
        log_warn("%s: this node's GPUs are not monitored", e.text);
        return NULL;
    }
    m = xcalloc(1, sizeof(*m));
    m->config = config;
    m->calls = *calls;
    m->socket = socket;
    m->readable = event_new(loop_base(loop), socket, EV_READ | EV_PERSIST,
                            on_probe_readable, m);
    if (!m->readable)
        abort();
    event_add(m->readable, NULL);
    loop_timer_init(&m->deadline, loop, on_read_deadline, m);
    loop_timer_arm(&m->deadline, clock_ms() + GPU_FIRST_MS);
    return m;
}

void gpu_monitor_destroy(struct gpu_monitor *m)
{
    if (!m)
        return;
    if (m->readable)
        event_free(m->readable);
    if (m->socket >= 0)
        close(m->socket);
    loop_timer_fini(&m->deadline);
    free(m);
}
