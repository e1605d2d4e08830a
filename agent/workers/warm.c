/* SPDX-License-Identifier: MIT */
#include "agent/workers/warm.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/workers/macros.h"
#include "agent/workers/worker_env.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define READY_MS 120000 /* from one import to the next */
#define ANSWER_MS 10000
#define USELESS_MAX 5 /* templates in a row */
#define DELAY_MS_MAX 60000
#define LINE_SIZE 512
#define OUTPUT_BYTES 65536 /* read in one turn of the loop: all that a pipe holds */

struct warm {
    struct loop *loop;
    const struct config *config;
    struct guard *guard; /* NULL: none */

    bool ready, has_reported, warned_cold;
    unsigned useless; /* templates since the last one from which a worker was forked */
    uint32_t delay_ms;
    struct loop_timer retry;

    int output; /* what the template writes; -1: none */
    struct event *readable;
    char line[LINE_SIZE];
    size_t used;
};

/* -- its output ----------------------------------------------------------------- */

static void print_line(struct warm *w)
{
    w->line[w->used] = '\0';
    if (w->used > 0)
        log_info("%s", strncmp(w->line, "crun: ", 6) == 0 ? w->line + 6 : w->line);
    w->has_reported |= w->used > 0;
    w->used = 0;
}

static void close_output(struct warm *w)
{
    if (w->output < 0)
        return;
    print_line(w);
    event_free(w->readable);
    close(w->output);
    w->output = -1;
}

static void read_output(struct warm *w)
{
    char text[4096];
    size_t left = OUTPUT_BYTES;
    ssize_t n = 1;

    for (; left > 0 && (n = read(w->output, text, sizeof(text))) > 0;
         left -= sizeof(text))
        for (ssize_t i = 0; i < n; i++)
            if (text[i] == '\n' || w->used == LINE_SIZE - 1)
                print_line(w);
            else
                w->line[w->used++] = text[i];
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_output(w);
}

static void on_output(evutil_socket_t fd, short what, void *arg)
{
    read_output(arg);
}

/* Returns the end that the template writes to, or -1 and errno. */
static int open_output(struct warm *w)
{
    int ends[2];

    close_output(w);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    w->output = ends[0];
    w->readable = event_new(loop_base(w->loop), w->output, EV_READ | EV_PERSIST,
                            on_output, w);
    if (!w->readable)
        abort();
    event_add(w->readable, NULL);
    return ends[1];
}

/* -- its start ------------------------------------------------------------------ */

/* A program that ends at once, with the workers' command as its arguments: the
 * bootstrap executes that command. An interpreter that does not load the bootstrap must
 * not run the workers' program. */
static const char **template_argv(const char *const *worker_argv)
{
    static const char refusal[] = "import sys; sys.exit('workers start cold: Python "
                                  "does not load the folder that "
                                  "crun has put in front of PYTHONPATH')";
    size_t n = 0;
    const char **argv;

    while (worker_argv[n])
        n++;
    argv = xcalloc(n + 4, sizeof(*argv));
    argv[0] = worker_argv[0];
    argv[1] = "-c";
    argv[2] = refusal;
    memcpy(argv + 3, worker_argv, n * sizeof(*argv));
    return argv;
}

static int request_template(struct warm *w, int null, int output, struct err *e)
{
    extern char **environ;
    const struct msg_start start = { .max_restarts = w->config->job.max_restarts };
    struct worker_env_inputs inputs = { .config = w->config,
                                        .start = &start,
                                        .launch = guard_launch_tag(w->guard),
                                        .agent_store = true };
    const char **worker_argv = macros_replace(inputs.config, inputs.start,
                                              inputs.local_rank);
    const char **argv = template_argv(worker_argv);
    const char **env = worker_env_build_template(&inputs, guard_pid(w->guard),
                                                 (const char *const *)environ);
    const struct guard_template template = { .argv = argv,
                                             .env = env,
                                             .fd = { null, output, output },
                                             .ready_ms = READY_MS,
                                             .answer_ms = ANSWER_MS };
    int rc = guard_start_template(w->guard, &template, e);

    free(argv);
    free(worker_argv);
    free(env);
    return rc;
}

static void start_template(struct warm *w)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int output = null < 0 ? -1 : open_output(w);
    struct err e;
    int rc;

    w->ready = w->has_reported = w->warned_cold = false;
    rc = output < 0 ? err_set_errno(&e, errno, "open its streams")
                    : request_template(w, null, output, &e);
    if (rc < 0)
        log_warn("workers start cold: no template: %s", e.text);
    if (null >= 0)
        close(null);
    if (output >= 0)
        close(output);
}

static void on_retry(void *arg)
{
    struct warm *w = arg;

    if (w->guard)
        start_template(w);
}

/* -- its end -------------------------------------------------------------------- */

static void report_end(const struct warm *w, int status, const char *fault)
{
    if (fault)
        log_warn("the template of the workers was ended: %s", fault);
    else if (WIFSIGNALED(status))
        log_warn("the template of the workers was killed by SIG%s",
                 text_signal(WTERMSIG(status)));
    else if (!w->has_reported)
        log_warn("the template of the workers ended with exit code %d",
                 WEXITSTATUS(status));
}

static void on_ended(void *arg, int status, const char *fault)
{
    struct warm *w = arg;

    if (w->output >= 0)
        read_output(w);
    report_end(w, status, fault);
    w->useless += !w->ready || fault;
    w->ready = false;
    if (w->useless < USELESS_MAX) {
        loop_timer_arm(&w->retry, clock_ms() + w->delay_ms);
        w->delay_ms = w->delay_ms == 0 ? 1000 : 2 * w->delay_ms;
        if (w->delay_ms > DELAY_MS_MAX)
            w->delay_ms = DELAY_MS_MAX;
    } else
        log_warn(
            "workers start cold from here on: %d templates in a row were of no use",
            USELESS_MAX);
}

static void on_exec_failed(void *arg, int errnum, const char *what)
{
    struct warm *w = arg;

    log_warn("the template of the workers cannot be started: %s: %s", what,
             strerror(errnum));
    w->has_reported = true;
}

/* -- its work ------------------------------------------------------------------- */

static void on_ready(void *arg, pid_t pid)
{
    struct warm *w = arg;

    log_debug("the template of the workers is ready pid=%d", (int)pid);
    if (w->output >= 0)
        read_output(w);
    w->has_reported = false;
    w->ready = true;
}

static void on_warm(void *arg, uint32_t local_rank)
{
    struct warm *w = arg;

    log_debug("local rank %u started warm", local_rank);
    w->useless = 0;
    w->delay_ms = 0;
}

static void on_cold(void *arg, uint32_t local_rank, const char *why)
{
    struct warm *w = arg;

    if (w->output >= 0)
        read_output(w);
    if (w->ready && !w->has_reported && !w->warned_cold)
        log_info("local rank %u starts cold, in spite of its template: %s", local_rank,
                 why);
    else
        log_debug("local rank %u starts cold: %s", local_rank, why);
    w->warned_cold = true;
}

/* -- for the agent -------------------------------------------------------------- */

struct warm *warm_create(struct loop *loop, const struct config *config)
{
    struct warm *w = xcalloc(1, sizeof(*w));

    w->loop = loop;
    w->config = config;
    w->output = -1;
    loop_timer_init(&w->retry, loop, on_retry, w);
    return w;
}

void warm_destroy(struct warm *w)
{
    if (!w)
        return;
    close_output(w);
    loop_timer_fini(&w->retry);
    free(w);
}

struct guard_template_calls warm_guard_calls(struct warm *w)
{
    return (struct guard_template_calls){ .ready = on_ready,
                                          .ended = on_ended,
                                          .exec_failed = on_exec_failed,
                                          .warm = on_warm,
                                          .cold = on_cold,
                                          .arg = w };
}

void warm_set_guard(struct warm *w, struct guard *guard)
{
    w->guard = guard;
    w->ready = false;
    loop_timer_cancel(&w->retry);
    if (guard && w->config->warm_modules && w->useless < USELESS_MAX)
        start_template(w);
}

bool warm_is_ready(const struct warm *w)
{
    return w->ready;
}
