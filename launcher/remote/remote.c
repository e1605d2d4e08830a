/* SPDX-License-Identifier: MIT */
/*
 * The controller of a job on several hosts. What occurs on the connections becomes
 * events of the hosts' table (host_events.c), whose acts follow (host_acts.c). This
 * file begins and ends it all, and has the launcher's own signals, input and output.
 */
#include "agent/interface/local_job.h"
#include "agent/interface/socket_relay.h"
#include "launcher/remote/remote_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sysexits.h>
#include <unistd.h>

#include "launcher/hosts/host_watch.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/detached_job.h"
#include "launcher/remote/own_stdin.h"
#include "launcher/remote/rsh.h"
#include "launcher/remote/tool_lines.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/wire/protocol/job_name.h"

#define WAIT_FIRST_MS 5000 /* of silence, before it says what it waits for */
#define WAIT_SEEN_MS 1000  /* the same on a terminal */
#define WAIT_AGAIN_MS 30000
#define KILLS_AT 3 /* the third Ctrl-C */
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

/* -- the end ----------------------------------------------------------------------- */

static void on_others_late(void *arg)
{
    remote_end_hosts(arg);
}

static void kill_hosts(struct remote *r)
{
    uint8_t signo = SIGKILL;

    log_error("killing the job on all hosts");
    remote_send_to_all(r, CHANNEL_SIGNAL, &signo, 1);
    r->code = 128 + SIGINT;
    for (size_t i = 0; i < r->count; i++)
        host_link_end(&r->host[i].link, REMOTE_CLOSE_MS);
}

static void on_end_signal_here(void *arg, int signo)
{
    struct remote *r = arg;
    uint8_t byte = (uint8_t)signo;

    r->interrupts += signo == SIGINT;
    if (r->interrupts >= KILLS_AT) {
        kill_hosts(r);
    } else if (r->has_started && r->first->state == HOST_RUNNING) {
        remote_host_send(r->first, CHANNEL_SIGNAL, &byte, 1);
        if (signo != SIGUSR1) /* which waits for checkpoints */
            loop_timer_arm(&r->others,
                           clock_ms() + r->job->grace_ms + REMOTE_OTHERS_END_MS);
    } else if (!r->is_ending) {
        r->code = 128 + signo;
        remote_end_hosts(r);
    }
}

static void on_suspend_here(void *arg, int signo)
{
    struct remote *r = arg;
    uint8_t byte = (uint8_t)signo;

    remote_send_to_all(r, CHANNEL_SIGNAL, &byte, 1);
    if (signo == SIGTSTP)
        loop_timer_arm(&r->suspend, clock_ms() + REMOTE_SUSPEND_MS);
    else
        loop_timer_cancel(&r->suspend);
}

/* The frames have left. */
static void on_suspend_due(void *arg)
{
    if (!loop_signal_waits(SIGCONT))
        raise(SIGSTOP);
}

static void on_child_here(void *arg, int signo)
{
    struct remote *r = arg;

    for (size_t i = 0; i < r->count; i++)
        host_link_reap(&r->host[i].link);
}

static bool is_ignored_here(int signo)
{
    struct sigaction old;

    return sigaction(signo, NULL, &old) == 0 && old.sa_handler == SIG_IGN;
}

/* A hangup comes from a terminal that is gone; another SIGHUP asks to read the list
 * again. Hosts that failed are tried again. */
static void on_hangup_here(void *arg, int signo)
{
    struct remote *r = arg;
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);

    if (terminal < 0 && r->has_terminal) {
        on_end_signal_here(r, signo);
        return;
    }
    if (terminal >= 0)
        close(terminal);
    for (size_t i = 0; i < r->count && r->has_started; i++)
        if (r->host[i].state == HOST_FAILED || r->host[i].state == HOST_LOST)
            r->host[i].is_unlisted = true;
    host_watch_reload(r->watch);
}

static void watch_hangup(struct remote *r)
{
    int terminal;

    if (is_ignored_here(SIGHUP))
        return;
    terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    r->has_terminal = terminal >= 0;
    if (terminal >= 0)
        close(terminal);
    loop_on_signal(r->loop, SIGHUP, on_hangup_here, r);
}

static void watch_own_signals(struct remote *r)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 };
    static const int suspends[] = { SIGTSTP, SIGCONT };

    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (!is_ignored_here(ends[i]) && !(ends[i] == SIGHUP && r->watch))
            loop_on_signal(r->loop, ends[i], on_end_signal_here, r);
    for (size_t i = 0; i < sizeof(suspends) / sizeof(*suspends); i++)
        if (!is_ignored_here(suspends[i]))
            loop_on_signal(r->loop, suspends[i], on_suspend_here, r);
    if (r->watch)
        watch_hangup(r);
    loop_on_signal(r->loop, SIGCHLD, on_child_here, r);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
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

/* -- tools of this machine --------------------------------------------------------- */

static void put_tool_frame(struct remote *r, enum channel_type type, uint32_t number,
                           const void *body, size_t size)
{
    struct evbuffer *out = r->first && r->first->link.is_open
                               ? host_link_output(&r->first->link)
                               : NULL;

    if (out)
        channel_put(out, type, number, body, size);
}

static void on_tool_open(void *arg, uint32_t number)
{
    put_tool_frame(arg, CHANNEL_TOOL_OPEN, number, NULL, 0);
}

static void on_tool_sent(void *arg, uint32_t number, const void *data, size_t size)
{
    put_tool_frame(arg, CHANNEL_TOOL_IN, number, data, size);
}

static void on_tool_connected(void *arg, int fd, uid_t uid)
{
    const struct relay_target nowhere = { .why = "waits for its hosts to answer" };
    struct remote *r = arg;

    if (r->has_started && r->first && r->first->state == HOST_RUNNING)
        tool_lines_add(r->tools, fd);
    else
        socket_relays_add(r->refusals, fd, &nowhere);
}

void remote_fill_facts(void *arg, struct job_facts *facts)
{
    struct remote *r = arg;
    const char *program = r->job->program ? r->job->program : "";

    facts->run_id = r->run_id;
    facts->name = job_name(r->run_id, program, r->name, sizeof(r->name));
    facts->program = program;
    facts->rendezvous = r->endpoints;
    facts->is_launcher = true;
    r->place = (struct job_reach){ .host = r->first ? r->first->target->name : NULL,
                                   .rsh = r->job->rsh,
                                   .ssh_args = r->job->ssh_args };
    facts->reach = r->place.host ? &r->place : NULL;
    facts->nodes = r->has_started ? r->nodes : (uint32_t)r->count;
}

static void open_tools(struct remote *r)
{
    const struct local_job_calls local = { .connected = on_tool_connected,
                                           .facts = remote_fill_facts,
                                           .arg = r };
    const struct tool_lines_calls lines = { on_tool_open, on_tool_sent, NULL, r };

    r->tools = tool_lines_create(r->loop, &lines);
    r->refusals = socket_relays_create(r->loop);
    r->local = local_job_create(r->loop, &local);
}

static void close_tools(struct remote *r)
{
    const struct job_result result = {
        .state = r->has_started ? "done" : "not-formed",
        .reason = r->code == 0                                          ? "success"
                  : r->code == 128 + SIGTERM || r->code == 128 + SIGINT ? "user"
                                                                        : "failure",
        .text = "",
        .exit_code = r->code,
    };

    local_job_end(r->local, r->goes_on ? NULL : &result);
    local_job_destroy(r->local);
    tool_lines_destroy(r->tools);
    socket_relays_destroy(r->refusals);
}

static int make_job_key(struct remote *r, struct err *e)
{
    struct key *key = key_memory_create(sizeof(*key), e);

    r->key = key ? key_memory_create(KEY_TEXT_SIZE, e) : NULL;
    if (!r->key) {
        key_memory_destroy(key, sizeof(*key));
        return -1;
    }
    key_generate(0, key);
    key_format(key, r->key);
    key_memory_destroy(key, sizeof(*key));
    return 0;
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

/* Three pipes for each host. */
static void raise_fd_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit);
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
    loop_timer_init(&r->others, r->loop, on_others_late, r);
    loop_timer_init(&r->suspend, r->loop, on_suspend_due, r);
    loop_timer_arm(&r->connect, clock_ms());
    loop_timer_arm(&r->ping, clock_ms() + REMOTE_PING_MS);
    loop_timer_arm(&r->waiting,
                   clock_ms() + (isatty(STDERR_FILENO) ? WAIT_SEEN_MS : WAIT_FIRST_MS));
    remote_follow_list(r);
    watch_own_signals(r);
    open_tools(r);
}

/* Node rank 0's, which is the job's, unless another one has lost output; of a job that
 * has lost node rank 0, that of the others. */
static int result_code(const struct remote *r)
{
    bool lost_output = false;
    int worst = 0;

    if (r->code >= 0)
        return r->code;
    if (r->has_lost)
        return EX_UNAVAILABLE;
    for (size_t i = 0; i < r->count; i++) {
        int code = r->host[i].state == HOST_EXITED ? r->host[i].code : 0;

        worst = code > worst ? code : worst;
        lost_output |= code == EX_IOERR;
    }
    if (r->first && r->first->state == HOST_EXITED)
        return r->first->code == 0 && lost_output ? EX_IOERR : r->first->code;
    return worst;
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
    close_tools(r);
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
    claims_free(&r->claims);
    free(r->host);
}

int remote_run(const struct remote_job *job)
{
    struct remote r = { .job = job, .code = -1 };
    struct err e;

    raise_fd_limit();
    name_remote_job(&r);
    r.is_elastic = job->min_nodes && job->min_nodes < job->count;
    if (push_init(&r.push, &e) < 0 || make_job_key(&r, &e) < 0) {
        log_error("%s", e.text);
        r.code = EX_OSERR;
    } else {
        open_remote(&r);
        loop_run(r.loop);
        r.code = result_code(&r);
        if (job->detach)
            r.goes_on = detached_job_leave(&r);
        close_remote(&r);
    }
    key_memory_destroy(r.key, KEY_TEXT_SIZE);
    push_fini(&r.push);
    return r.code;
}

int remote_print(const struct remote_job *job, FILE *out, struct err *e)
{
    struct push push;

    if (push_init(&push, e) < 0)
        return -1;
    fprintf(out, "# %zu host%s, folder %s, %s\n", job->count, text_plural(job->count),
            job->folder, push.self);
    for (size_t i = 0; i < job->count; i++) {
        const struct host *t = &job->hosts->host[i];
        char **argv = rsh_command(job->rsh, job->ssh_args, t->name);

        fprintf(out, "\n# node rank %zu, %s", i, t->name);
        if (t->slots)
            fprintf(out, ", %" PRIu32 " worker%s", t->slots, text_plural(t->slots));
        fputc('\n', out);
        for (char **word = argv; *word; word++)
            fprintf(out, "%s%s", word > argv ? " " : "", *word);
        fputc('\n', out);
        rsh_free(argv);
    }
    fputs("\n# variables that travel\n", out);
    for (char *const *v = job->environment; *v; v++)
        fprintf(out, "#   %.*s\n", (int)strcspn(*v, "="), *v);
    push_fini(&push);
    return 0;
}
