/* SPDX-License-Identifier: MIT */
#include "launcher/crunctl/ui/top_asker.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "launcher/crunctl/ui/top_stall.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"

#define CURVE_EVERY_MS 15000
#define CURVES_PER_LOOK 8     /* of the jobs whose turn it is */
#define STACKS_EVERY_MS 10000 /* of a job that makes no steps */

/* What is known of a job from earlier looks. */
struct known_job {
    struct top_job more;
    struct top_stall stall;
    uint64_t curve_ms, stacks_ms; /* when they were asked for; 0: never */
    bool is_here;
};

struct top_asker {
    struct top_source source;
    uint64_t every_ms;
    int fd, changed;         /* eventfds: a new look, another page */
    struct known_job *known; /* the thread's own */
    size_t count;

    pthread_mutex_t lock;  /* of what follows */
    struct top_look *look; /* not taken yet */
    char opened[TOP_NAME_BYTES];
};

/* -- jobs ------------------------------------------------------------------------- */

static struct known_job *know_job(struct top_asker *a, const struct job_view *job)
{
    char name[TOP_NAME_BYTES];

    top_job_name(job, name, sizeof(name));
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->known[i].more.name, name) == 0)
            return &a->known[i];
    a->known = xrealloc(a->known, (a->count + 1) * sizeof(*a->known));
    a->known[a->count] = (struct known_job){ .more.culprit = { 1, 0 } };
    memcpy(a->known[a->count].more.name, name, sizeof(name));
    return &a->known[a->count++];
}

static void forget_others(struct top_asker *a)
{
    size_t kept = 0;

    for (size_t i = 0; i < a->count; i++) {
        if (!a->known[i].is_here)
            continue;
        a->known[kept] = a->known[i];
        a->known[kept++].is_here = false;
    }
    a->count = kept;
}

static void read_curve(const cJSON *curve, const char *name, float *value,
                       unsigned *points)
{
    const cJSON *item;
    unsigned count = 0;

    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(curve, name))
    {
        if (count == TOP_CURVE_MAX)
            break;
        value[count++] = cJSON_IsNumber(item) ? (float)item->valuedouble : NAN;
    }
    while (count < *points)
        value[count++] = NAN;
    *points = count;
}

static void ask_curve(struct top_asker *a, struct known_job *k,
                      const struct job_view *job)
{
    cJSON *history = a->source.history(a->source.arg, job);
    const cJSON *curve = cJSON_GetObjectItemCaseSensitive(history, "curve");

    k->more.points = 0;
    read_curve(curve, "steps_per_s", k->more.rate, &k->more.points);
    read_curve(curve, "loss", k->more.loss, &k->more.points);
    k->curve_ms = clock_ms();
    cJSON_Delete(history);
}

/* Which rank the others wait for. */
static void ask_awaited(struct top_asker *a, struct known_job *k,
                        const struct job_view *job)
{
    struct stack_groups stacks = { .count = 0 };
    struct err e;
    unsigned culprit;

    k->stacks_ms = clock_ms();
    *k->more.awaited = '\0';
    k->more.culprit = (struct rank_range){ 1, 0 };
    if (a->source.stacks(a->source.arg, job, "", &stacks, &e) == 0) {
        stack_groups_sort(&stacks);
        stack_groups_describe_culprit(&stacks, k->more.awaited,
                                      sizeof(k->more.awaited));
        if (stack_groups_find_culprit(&stacks, &culprit) != STACK_CULPRIT_NONE &&
            stacks.group[culprit].ranks.count)
            k->more.culprit = stacks.group[culprit].ranks.range[0];
    }
    stack_groups_fini(&stacks);
}

static void note_stall(struct top_asker *a, struct known_job *k,
                       const struct job_view *job)
{
    k->more.still_ms = top_stall_note(&k->stall, job, clock_ms());
    if (k->more.still_ms == 0) {
        *k->more.awaited = '\0';
        k->more.culprit = (struct rank_range){ 1, 0 };
        k->stacks_ms = 0;
    } else if (!k->stacks_ms || clock_ms() - k->stacks_ms >= STACKS_EVERY_MS) {
        ask_awaited(a, k, job);
    }
}

/* What the views do not tell. */
static void look_closer(struct top_asker *a, struct top_look *look)
{
    unsigned curves = 0;

    look->more = xcalloc(look->jobs.count + 1, sizeof(*look->more));
    for (size_t i = 0; i < look->jobs.count; i++) {
        const struct job_view *job = &look->jobs.job[i];
        struct known_job *k = know_job(a, job);

        k->is_here = true;
        if (job->status.state != JOB_DONE && !job->odd_state) {
            note_stall(a, k, job);
            if (curves < CURVES_PER_LOOK &&
                (!k->curve_ms || clock_ms() - k->curve_ms >= CURVE_EVERY_MS)) {
                ask_curve(a, k, job);
                curves++;
            }
        }
        look->more[i] = k->more;
    }
    forget_others(a);
}

/* -- the node or job that is open ------------------------------------------------- */

static void ask_node(struct top_asker *a, struct top_node *node,
                     const struct job_view *job, const struct msg_node_status *n)
{
    struct err e = { .code = 0 };
    char ranks[32];

    snprintf(ranks, sizeof(ranks), "%" PRIu32 "-%" PRIu32, n->first_rank,
             n->first_rank + n->workers - 1);
    if (n->group_rank < 0 || n->workers == 0)
        err_set(&e, "it has no ranks now");
    else if (a->source.output(a->source.arg, job, ranks, node, &e) == 0 &&
             a->source.stacks(a->source.arg, job, ranks, &node->stacks, &e) == 0)
        return;
    snprintf(node->error, sizeof(node->error), "%s", e.text);
}

static void look_at_opened(struct top_asker *a, struct top_look *look,
                           const char *opened)
{
    const struct msg_node_status *n;
    const struct top_job *more;
    const struct job_view *job;
    struct err e;

    job = top_look_find(look, opened, &n, &more);
    if (!job)
        return;
    look->node = xcalloc(1, sizeof(*look->node));
    snprintf(look->node->name, sizeof(look->node->name), "%s", opened);
    if (n)
        ask_node(a, look->node, job, n);
    else if (job->status.state == JOB_RUNNING && !job->odd_state)
        (void)!a->source.stacks(a->source.arg, job, "", &look->node->stacks, &e);
}

/* -- the thread ------------------------------------------------------------------- */

static void give_look(struct top_asker *a, struct top_look *look)
{
    uint64_t one = 1;

    pthread_mutex_lock(&a->lock);
    top_look_free(a->look);
    a->look = look;
    pthread_mutex_unlock(&a->lock);
    (void)!write(a->fd, &one, sizeof(one));
}

/* Until the next look is due, or another page is opened. */
static void await_turn(struct top_asker *a, uint64_t until_ms, char *opened)
{
    struct pollfd p = { .fd = a->changed, .events = POLLIN };
    uint64_t now = clock_ms(), count;

    (void)!poll(&p, 1, until_ms > now ? (int)(until_ms - now) : 0);
    (void)!read(a->changed, &count, sizeof(count));
    pthread_mutex_lock(&a->lock);
    memcpy(opened, a->opened, sizeof(a->opened));
    pthread_mutex_unlock(&a->lock);
}

static void *ask_again_and_again(void *arg)
{
    struct top_asker *a = arg;
    char opened[TOP_NAME_BYTES] = "";

    for (;;) {
        struct top_look *look = xcalloc(1, sizeof(*look));
        uint64_t next_ms = clock_ms() + a->every_ms;
        struct err e;

        if (a->source.jobs(a->source.arg, &look->jobs, &e) < 0)
            snprintf(look->error, sizeof(look->error), "%s", e.text);
        job_views_sort(&look->jobs);
        look_closer(a, look);
        look_at_opened(a, look, opened);
        give_look(a, look);
        await_turn(a, next_ms, opened);
    }
    return NULL;
}

struct top_asker *top_asker_start(const struct top_source *source, uint64_t every_ms)
{
    struct top_asker *a = xcalloc(1, sizeof(*a));
    pthread_t thread;

    a->source = *source;
    a->every_ms = every_ms;
    a->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    a->changed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&a->lock, NULL);
    if (pthread_create(&thread, NULL, ask_again_and_again, a) == 0)
        pthread_detach(thread);
    return a;
}

int top_asker_fd(const struct top_asker *a)
{
    return a->fd;
}

struct top_look *top_asker_take(struct top_asker *a)
{
    struct top_look *look;
    uint64_t count;

    (void)!read(a->fd, &count, sizeof(count));
    pthread_mutex_lock(&a->lock);
    look = a->look;
    a->look = NULL;
    pthread_mutex_unlock(&a->lock);
    return look;
}

void top_asker_open(struct top_asker *a, const char *name)
{
    uint64_t one = 1;
    bool is_other;

    pthread_mutex_lock(&a->lock);
    is_other = strcmp(a->opened, name) != 0;
    snprintf(a->opened, sizeof(a->opened), "%s", name);
    pthread_mutex_unlock(&a->lock);
    if (is_other && *name)
        (void)!write(a->changed, &one, sizeof(one));
}
