/* SPDX-License-Identifier: MIT */
/*
 * The controller of a job on several hosts. What occurs on the connections becomes
 * events of the hosts' table (host_events.c), whose acts follow (host_connect.c). This
 * file begins and ends it all.
 */
#include "launcher/remote/remote_internal.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/hosts/host_watch.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/detached_job.h"
#include "launcher/remote/own_stdin.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/wire/protocol/job_name.h"

#define WAIT_FIRST_MS 5000 /* of silence, before it says what it waits for */
#define WAIT_SEEN_MS 1000  /* the same on a terminal */
#define WAIT_AGAIN_MS 30000
#define NAMES_SHOWN_MAX 5

/* -- time -------------------------------------------------------------------------- */

static void on_ping_due(void *arg)
{
    struct remote *r = arg;

    remote_send_to_all(r, CHANNEL_PING, NULL, 0);
    loop_timer_arm(&r->ping, clock_ms() + REMOTE_PING_MS);
}

static void on_waiting_due(void *arg)
{
    struct remote *r = arg;
    char names[256] = "", since[32];
    size_t n = 0, used = 0;

    for (size_t i = 0; i < r->count; i++) {
        if (host_state_has_answered(r->host[i].state))
            continue;
        if (n++ < NAMES_SHOWN_MAX && used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                                     n > 1 ? ", " : "", r->host[i].target->name);
    }
    log_info("waiting for hosts: %zu of %zu have answered (missing: %s%s) · %s",
             r->count - n, r->count, names, n > NAMES_SHOWN_MAX ? " ..." : "",
             clock_format_duration(clock_ms() - r->begun_ms, since, sizeof(since)));
    loop_timer_arm(&r->waiting, clock_ms() + WAIT_AGAIN_MS);
}

/* -- start and end ----------------------------------------------------------------- */

static void on_output_room(void *arg)
{
    struct remote *r = arg;

    for (size_t i = 0; i < r->count; i++)
        host_link_resume(&r->host[i].link);
}

static void on_own_input(void *arg, const void *data, size_t size)
{
    struct remote *r = arg;

    remote_host_send(r->first, CHANNEL_STDIN, data, size);
}

static void name_remote_job(struct remote *r)
{
    struct id128 id = id128_random();
    char hex[ID128_HEX_SIZE];

    if (r->job->run_id)
        snprintf(r->run_id, sizeof(r->run_id), "%s", r->job->run_id);
    else
        job_name_make_id(id128_format(&id, hex), r->run_id);
}

static void open_remote(struct remote *r)
{
    r->loop = loop_create();
    r->output = remote_output_create(r->loop, on_output_room, r);
    r->input = own_stdin_create(r->loop, on_own_input, r);
    r->begun_ms = clock_ms();
    r->count = r->job->count;
    r->room = r->count + REMOTE_LATE_HOSTS_MAX;
    r->host = xcalloc(r->room, sizeof(*r->host));
    for (size_t i = 0; i < r->count; i++)
        remote_host_init(r, i, &r->job->hosts->host[i]);
    loop_timer_init(&r->connect, r->loop, remote_on_connect_due, r);
    loop_timer_init(&r->ping, r->loop, on_ping_due, r);
    loop_timer_init(&r->waiting, r->loop, on_waiting_due, r);
    loop_timer_arm(&r->connect, clock_ms());
    loop_timer_arm(&r->ping, clock_ms() + REMOTE_PING_MS);
    loop_timer_arm(&r->waiting,
                   clock_ms() + (isatty(STDERR_FILENO) ? WAIT_SEEN_MS : WAIT_FIRST_MS));
    remote_follow_list(r);
    remote_watch_signals(r);
    remote_open_tools(r);
}

static void close_remote(struct remote *r)
{
    for (size_t i = 0; r->host && i < r->count; i++) {
        struct remote_host *h = &r->host[i];

        remote_host_drop(h);
        free(h->later.name);
        loop_timer_fini(&h->timer);
        remote_hello_clear(&h->hello);
        free(h->said);
        free(h->log);
        free(h->reach);
    }
    remote_close_tools(r);
    loop_timer_fini(&r->connect);
    loop_timer_fini(&r->ping);
    loop_timer_fini(&r->waiting);
    loop_timer_fini(&r->others);
    loop_timer_fini(&r->suspend);
    own_stdin_destroy(r->input);
    if (remote_output_destroy(r->output) && r->code == 0)
        r->code = EX_IOERR;
    loop_destroy(r->loop);
    host_watch_destroy(r->watch);
    free(r->endpoints);
    witness_claims_free(&r->claims);
    free(r->host);
}

int remote_run(const struct remote_job *job)
{
    struct remote r = { .job = job, .code = -1 };
    struct err e;
    struct rlimit limit;

    /* Three pipes for each host. */
    if (getrlimit(RLIMIT_NOFILE, &limit) >= 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &limit);
    }
    name_remote_job(&r);
    r.is_elastic = job->min_nodes && job->min_nodes < job->count;
    if (push_init(&r.push, &e) < 0 || remote_make_key(&r, &e) < 0) {
        log_error("%s", e.text);
        r.code = EX_OSERR;
    } else {
        open_remote(&r);
        loop_run(r.loop);
        r.code = remote_exit_code(&r);
        if (job->detach)
            r.goes_on = detached_job_leave(&r);
        close_remote(&r);
    }
    key_memory_destroy(r.key, KEY_TEXT_SIZE);
    push_fini(&r.push);
    return r.code;
}
