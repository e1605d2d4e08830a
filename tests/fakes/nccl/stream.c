/* SPDX-License-Identifier: MIT */
/* What the worker library asks of CUDA, with memory of the host for a device's. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fakes/nccl/standin.h"
#include "worker-lib/device/gpu_calls.h"
#include "worker-lib/numeric/reduce.h"

#define VERSION 13000
#define GPUS 64

struct task {
    struct task *next;
    void (*run)(void *arg);
    void *arg;
};

struct gpu_stream {
    pthread_t thread;
    struct task *first, *last;
    bool closing;
};

/* Every record is a generation; users count tasks that have still to do with it. */
struct gpu_event {
    uint64_t recorded, completed;
    unsigned users;
    bool destroyed;
    double at_ms;
};

struct block {
    struct block *next;
    char *memory;
    size_t bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct gpu_stream *default_stream[GPUS]; /* of each device */
static _Thread_local int current;
static struct block *blocks;
static _Atomic int broken[GPUS]; /* the error of a device, which all its calls return */

/* For tests, which find it by name. */
__attribute__((visibility("default"))) void crun_standin_break(int device, int code);
void crun_standin_break(int device, int code)
{
    atomic_store(&broken[device], code);
}

/* -- streams ---------------------------------------------------------------- */

static void *run_tasks(void *arg)
{
    struct gpu_stream *s = arg;

    pthread_mutex_lock(&lock);
    for (;;) {
        struct task *t = s->first;

        if (!t && s->closing)
            break;
        if (!t) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        pthread_mutex_unlock(&lock);
        t->run(t->arg);
        pthread_mutex_lock(&lock);
        s->first = t->next;
        if (!s->first)
            s->last = NULL;
        free(t);
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

static struct gpu_stream *make_stream(void)
{
    struct gpu_stream *s = calloc(1, sizeof(*s));

    if (!s || pthread_create(&s->thread, NULL, run_tasks, s) != 0)
        abort();
    return s;
}

static struct gpu_stream *stream_of(struct gpu_stream *s)
{
    if (s)
        return s;
    if (!default_stream[current])
        default_stream[current] = make_stream();
    return default_stream[current];
}

static void enqueue_locked(struct gpu_stream *s, void (*run)(void *arg), void *arg)
{
    struct task *t = calloc(1, sizeof(*t));

    if (!t)
        abort();
    t->run = run;
    t->arg = arg;
    s = stream_of(s);
    if (s->last)
        s->last->next = t;
    else
        s->first = t;
    s->last = t;
    pthread_cond_broadcast(&changed);
}

void standin_enqueue(struct gpu_stream *stream, void (*run)(void *arg), void *arg)
{
    pthread_mutex_lock(&lock);
    enqueue_locked(stream, run, arg);
    pthread_mutex_unlock(&lock);
}

static int stream_create(struct gpu_stream **stream)
{
    *stream = make_stream();
    return GPU_OK;
}

static int stream_destroy(struct gpu_stream *s)
{
    pthread_mutex_lock(&lock);
    s->closing = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    pthread_join(s->thread, NULL);
    free(s);
    return GPU_OK;
}

/* -- events ----------------------------------------------------------------- */

struct mark {
    struct gpu_event *event;
    uint64_t generation;
};

/* Under the lock. */
static void let_go(struct gpu_event *e)
{
    if (e->users == 0 && e->destroyed)
        free(e);
}

static void record(void *arg)
{
    struct mark *m = arg;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    pthread_mutex_lock(&lock);
    m->event->completed = m->generation;
    m->event->at_ms = (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
    m->event->users--;
    let_go(m->event);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    free(m);
}

static void wait_for(void *arg)
{
    struct mark *m = arg;

    pthread_mutex_lock(&lock);
    while (m->event->completed < m->generation)
        pthread_cond_wait(&changed, &lock);
    m->event->users--;
    let_go(m->event);
    pthread_mutex_unlock(&lock);
    free(m);
}

static int use_event(struct gpu_event *e, struct gpu_stream *s, bool records)
{
    struct mark *m = calloc(1, sizeof(*m));

    if (!m)
        return GPU_NO_MEMORY;
    pthread_mutex_lock(&lock);
    e->recorded += records;
    e->users++;
    *m = (struct mark){ e, e->recorded };
    enqueue_locked(s, records ? record : wait_for, m);
    pthread_mutex_unlock(&lock);
    return GPU_OK;
}

static int event_record(struct gpu_event *event, struct gpu_stream *stream)
{
    return use_event(event, stream, true);
}

static int stream_wait(struct gpu_stream *stream, struct gpu_event *event)
{
    return use_event(event, stream, false);
}

static int event_create(struct gpu_event **event)
{
    *event = calloc(1, sizeof(**event));
    return *event ? GPU_OK : GPU_NO_MEMORY;
}

static _Atomic bool default_captured;

/* For tests, which find it by name. */
__attribute__((visibility("default"))) void crun_standin_capture(bool captured);
void crun_standin_capture(bool captured)
{
    atomic_store(&default_captured, captured);
}

static int stream_capturing(struct gpu_stream *stream, bool *capturing)
{
    *capturing = !stream && atomic_load(&default_captured);
    return GPU_OK;
}

static int event_destroy(struct gpu_event *event)
{
    pthread_mutex_lock(&lock);
    event->destroyed = true;
    let_go(event);
    pthread_mutex_unlock(&lock);
    return GPU_OK;
}

static int event_query(struct gpu_event *event)
{
    int code = atomic_load(&broken[current]);
    bool done;

    if (code)
        return code;
    pthread_mutex_lock(&lock);
    done = event->completed >= event->recorded;
    pthread_mutex_unlock(&lock);
    return done ? GPU_OK : GPU_NOT_READY;
}

static int event_elapsed(float *ms, struct gpu_event *from, struct gpu_event *to)
{
    pthread_mutex_lock(&lock);
    *ms = (float)(to->at_ms - from->at_ms);
    pthread_mutex_unlock(&lock);
    return GPU_OK;
}

/* -- memory ----------------------------------------------------------------- */

void *standin_alloc(size_t bytes)
{
    struct block *b = calloc(1, sizeof(*b));
    size_t whole = (bytes + 4096) / 4096 * 4096;

    if (!b)
        return NULL;
    b->memory = aligned_alloc(4096, whole);
    b->bytes = whole;
    if (!b->memory) {
        free(b);
        return NULL;
    }
    memset(b->memory, 0xa5, whole);
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    return b->memory;
}

bool standin_free(void *memory)
{
    struct block **at = &blocks, *b;

    pthread_mutex_lock(&lock);
    while (*at && (*at)->memory != memory)
        at = &(*at)->next;
    b = *at;
    if (b)
        *at = b->next;
    pthread_mutex_unlock(&lock);
    if (b)
        free(b->memory);
    free(b);
    return b != NULL;
}

static bool is_ours(const void *memory)
{
    const char *m = memory;
    bool ours = false;

    pthread_mutex_lock(&lock);
    for (const struct block *b = blocks; b; b = b->next)
        ours = ours || (m >= b->memory && m < b->memory + b->bytes);
    pthread_mutex_unlock(&lock);
    return ours;
}

static int on_device(const void *memory, bool *device)
{
    *device = is_ours(memory);
    return GPU_OK;
}

static int memory_info(size_t *available, size_t *total)
{
    *available = *total = (size_t)1 << 30;
    return GPU_OK;
}

static int alloc(void **memory, size_t bytes)
{
    *memory = standin_alloc(bytes);
    return *memory ? GPU_OK : GPU_NO_MEMORY;
}

static int release(void *memory)
{
    return standin_free(memory) ? GPU_OK : 1;
}

struct transfer {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
    bool *over; /* the host waits for it */
};

static void transfer(void *arg)
{
    struct transfer *t = arg;

    if (t->from)
        memcpy(t->to, t->from, t->bytes);
    else
        memset(t->to, 0, t->bytes);
    if (t->over) {
        pthread_mutex_lock(&lock);
        *t->over = true;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    free(t);
}

/* Of the host's memory the host waits for, as with CUDA where it is not pinned. */
static int start_transfer(struct transfer t, struct gpu_stream *stream, bool host)
{
    struct transfer *copy = malloc(sizeof(*copy));
    bool over = false;

    if (!copy)
        return GPU_NO_MEMORY;
    *copy = t;
    copy->over = host ? &over : NULL;
    standin_enqueue(stream, transfer, copy);
    pthread_mutex_lock(&lock);
    while (host && !over)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return GPU_OK;
}

static int copy(void *to, const void *from, size_t bytes, struct gpu_stream *stream)
{
    return start_transfer((struct transfer){ to, from, bytes, NULL }, stream,
                          !is_ours(to) || !is_ours(from));
}

static int zero(void *memory, size_t bytes, struct gpu_stream *stream)
{
    return start_transfer((struct transfer){ memory, NULL, bytes, NULL }, stream,
                          false);
}

/* -- numbers ---------------------------------------------------------------- */

struct division {
    void *memory;
    size_t count;
    crun_dtype type;
    unsigned divisor;
};

static void run_division(void *arg)
{
    struct division *d = arg;
    const void *in[] = { d->memory };

    reduce_inputs(d->memory, in, 1, d->count, d->type, CRUN_MEAN, d->divisor);
    free(d);
}

static int divide(void *memory, size_t count, crun_dtype type, unsigned divisor,
                  struct gpu_stream *stream)
{
    struct division *d = malloc(sizeof(*d));

    if (!d)
        return GPU_NO_MEMORY;
    *d = (struct division){ memory, count, type, divisor };
    standin_enqueue(stream, run_division, d);
    return GPU_OK;
}

/* -- devices ---------------------------------------------------------------- */

static int versions(int *driver, int *runtime)
{
    *driver = standin_number("CRUN_STANDIN_DRIVER", VERSION);
    *runtime = VERSION;
    return GPU_OK;
}

static int count(int *devices)
{
    *devices = standin_number("CRUN_STANDIN_GPUS", GPUS);
    return standin_number("CRUN_STANDIN_COUNT", GPU_OK);
}

static int set_device(int device)
{
    if (device >= GPUS || device >= standin_number("CRUN_STANDIN_GPUS", GPUS))
        return GPU_NO_DEVICE;
    current = device;
    return GPU_OK;
}

static int thread_relaxed(void)
{
    return GPU_OK;
}

static const char *error_text(int code)
{
    return code == GPU_NO_MEMORY ? "out of memory"
           : code == 700         ? "an illegal memory access was encountered"
                                 : "injected";
}

__attribute__((visibility("default"))) const struct gpu_calls crun_standin_gpu = {
    .versions = versions,
    .count = count,
    .set_device = set_device,
    .error_text = error_text,
    .thread_relaxed = thread_relaxed,
    .memory_info = memory_info,
    .alloc = alloc,
    .free = release,
    .on_device = on_device,
    .copy = copy,
    .zero = zero,
    .divide = divide,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .stream_capturing = stream_capturing,
    .event_create = event_create,
    .event_create_untimed = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_elapsed = event_elapsed,
};
