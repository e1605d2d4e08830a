/* SPDX-License-Identifier: MIT */
#include "agent/trainjob/trainjob_status.h"

#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/log.h"
#include "rendezvous/base/loop.h"
#include "rendezvous/base/thread.h"
#include "rendezvous/base/xalloc.h"
#include "rendezvous/tls/https.h"

#define POST_EVERY_MS 10000
#define POST_LAST_MS 1000 /* the end of the job waits for it at most */
#define JSON_SIZE 1024
#define STEP_KNOWN_MAX 1e9 /* seconds that remain: more is not told */

/* Shared by the thread and the loop; the last of them to release it frees it. The
 * thread writes the result before it signals `ready`, and nothing after that. */
struct trainjob_post {
    atomic_int users;
    int ready; /* an eventfd */
    struct https_url url;
    char *authorities, *token_file;
    char json[JSON_SIZE];
    int status; /* of HTTP; -1: e */
    struct err e;
};

struct trainjob_status {
    struct loop *loop;
    trainjob_ask_fn *ask;
    void *arg;
    struct https_url url;
    const char *authorities, *token_file; /* of the environment */
    struct loop_timer timer;
    struct trainjob_post *post; /* under way, or NULL */
    struct event *done;
    uint64_t told_step;
    bool works, failed; /* the last post; a failure is logged */
};

/* -- one post --------------------------------------------------------------------- */

static void post_release(struct trainjob_post *p)
{
    if (atomic_fetch_sub(&p->users, 1) > 1)
        return;
    close(p->ready);
    free(p->authorities);
    free(p->token_file);
    free(p);
}

static void *post_run(void *arg)
{
    struct trainjob_post *p = arg;
    char *token = xmalloc(HTTPS_TOKEN_SIZE);
    struct https_request r = { .json = p->json,
                               .token = token,
                               .authorities = p->authorities };

    p->status = -1;
    if (https_read_token(p->token_file, token, &p->e) == 0)
        p->status = https_send(&p->url, &r, &p->e);
    explicit_bzero(token, HTTPS_TOKEN_SIZE);
    free(token);
    eventfd_write(p->ready, 1);
    post_release(p);
    return NULL;
}

static void post_start(struct trainjob_post *p)
{
    pthread_t thread;
    int errnum = thread_start(&thread, post_run, p);

    if (errnum == 0) {
        pthread_detach(thread);
        return;
    }
    p->status = err_set_errno(&p->e, errnum, "cannot start a thread");
    eventfd_write(p->ready, 1);
    post_release(p);
}

/* -- what is posted --------------------------------------------------------------- */

static int append_metric(char *buf, size_t size, int at, const char *name,
                         const char *value)
{
    if (!*value)
        return at;
    return at + snprintf(buf + at, size - (size_t)at,
                         "%s{\"name\":\"%s\",\"value\":\"%s\"}",
                         buf[at - 1] == '[' ? "" : ",", name, value);
}

char *trainjob_format(const struct trainjob_progress *p, uint64_t wall_ms, char *buf,
                      size_t size)
{
    double rate = strtod(p->steps_per_s, NULL), left;
    time_t now = (time_t)(wall_ms / 1000);
    char step[24], when[32];
    struct tm utc;
    int n;

    gmtime_r(&now, &utc);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(step, sizeof(step), "%" PRIu64, p->step);
    n = snprintf(buf, size, "{\"trainerStatus\":{\"lastUpdatedTime\":\"%s\"", when);
    if (p->steps > 0 && p->step <= p->steps) {
        n += snprintf(buf + n, size - (size_t)n, ",\"progressPercentage\":%d",
                      (int)(100.0 * (double)p->step / (double)p->steps));
        left = rate > 0 ? ceil((double)(p->steps - p->step) / rate) : NAN;
        if (left <= STEP_KNOWN_MAX)
            n += snprintf(buf + n, size - (size_t)n,
                          ",\"estimatedRemainingSeconds\":%.0f", left);
    }
    n += snprintf(buf + n, size - (size_t)n, ",\"metrics\":[");
    n = append_metric(buf, size, n, "step", step);
    n = append_metric(buf, size, n, "steps_per_second", p->steps_per_s);
    n = append_metric(buf, size, n, "loss", p->loss);
    snprintf(buf + n, size - (size_t)n, "]}}");
    return buf;
}

/* -- one after another ------------------------------------------------------------ */

static void note_result(struct trainjob_status *t, const struct trainjob_post *p)
{
    char answer[64];

    snprintf(answer, sizeof(answer), "it answers with status %d", p->status);
    t->works = p->status >= 200 && p->status < 300;
    if (!t->works && !t->failed)
        log_warn("the progress of this job cannot be shown in Kubernetes: %s:%u: %s; "
                 "trying again",
                 t->url.host, t->url.port, p->status < 0 ? p->e.text : answer);
    else if (t->works && t->failed)
        log_info("the progress of this job is shown in Kubernetes again");
    t->failed = !t->works;
}

static void forget_post(struct trainjob_status *t)
{
    if (!t->post)
        return;
    event_free(t->done);
    post_release(t->post);
    t->post = NULL;
}

static void on_post_done(evutil_socket_t fd, short what, void *arg)
{
    struct trainjob_status *t = arg;

    (void)fd;
    (void)what;
    note_result(t, t->post);
    forget_post(t);
}

/* Unless the last one is under way, or nothing has changed. */
static void post_progress(struct trainjob_status *t)
{
    struct trainjob_progress progress = { .steps_per_s = "", .loss = "" };
    struct trainjob_post *p;

    if (t->post || !t->ask(t->arg, &progress) || progress.step == 0 ||
        (t->works && progress.step == t->told_step))
        return;
    t->told_step = progress.step;
    p = t->post = xcalloc(1, sizeof(*p));
    atomic_init(&p->users, 2);
    p->ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    p->url = t->url;
    p->authorities = xstrdup(t->authorities);
    p->token_file = xstrdup(t->token_file);
    trainjob_format(&progress, clock_wall_ms(), p->json, sizeof(p->json));
    t->done = event_new(loop_base(t->loop), p->ready, EV_READ, on_post_done, t);
    event_add(t->done, NULL);
    post_start(p);
}

static void on_post_due(void *arg)
{
    struct trainjob_status *t = arg;

    post_progress(t);
    loop_timer_arm(&t->timer, clock_ms() + POST_EVERY_MS);
}

struct trainjob_status *trainjob_status_create(struct loop *loop, trainjob_ask_fn *ask,
                                               void *arg)
{
    const char *url = getenv("KUBEFLOW_TRAINER_SERVER_URL");
    const char *authorities = getenv("KUBEFLOW_TRAINER_SERVER_CA_CERT");
    const char *token_file = getenv("KUBEFLOW_TRAINER_SERVER_TOKEN");
    struct trainjob_status *t;
    struct err e;

    if (!url || !*url || !authorities || !*authorities || !token_file || !*token_file)
        return NULL;
    t = xcalloc(1, sizeof(*t));
    if (https_url_parse(url, &t->url, &e) < 0) {
        log_warn("KUBEFLOW_TRAINER_SERVER_URL: %s", e.text);
        free(t);
        return NULL;
    }
    t->loop = loop;
    t->ask = ask;
    t->arg = arg;
    t->authorities = authorities;
    t->token_file = token_file;
    loop_timer_init(&t->timer, loop, on_post_due, t);
    loop_timer_arm(&t->timer, clock_ms() + POST_EVERY_MS / 2);
    return t;
}

void trainjob_status_end(struct trainjob_status *t)
{
    struct pollfd done;

    if (!t || !t->works)
        return;
    loop_timer_cancel(&t->timer);
    post_progress(t);
    if (!t->post)
        return;
    done = (struct pollfd){ .fd = t->post->ready, .events = POLLIN };
    (void)poll(&done, 1, POST_LAST_MS);
}

void trainjob_status_destroy(struct trainjob_status *t)
{
    if (!t)
        return;
    forget_post(t);
    loop_timer_fini(&t->timer);
    free(t);
}
