/* SPDX-License-Identifier: MIT */
/*
 * crun --preflight starts this program in place of each worker. It checks that the
 * nodes reach each other and that an all-reduce works, and then executes the worker's
 * program. If a check fails, the workers of the unfit node exit with EX_UNAVAILABLE,
 * and their crun then leaves the job; the other workers wait until their agent ends
 * them.
 *
 * A child process makes the checks, so that a hang or a crash in a driver, or leftovers
 * of a library, do not affect the worker.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/preflight_verdict.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/version.h"
#include "worker-lib/checkpoint/checkpoint_flush.h"
#include "worker-lib/preflight/allreduce_check.h"
#include "worker-lib/preflight/connectivity.h"

#define TIME_LIMIT_S 20
#define TIME_LIMIT_MAX_S 3600
/* Multiples of the limit: for all ranks to meet, and for all checks. */
#define MEET_TIMES 2
#define WHOLE_TIMES 8
/* Added, so that a rank in which NCCL hangs can give up and report it. */
#define LEAVE_S 10
/* For the child's alarm to end it. */
#define ALARM_S 2
#define EXIT_NOT_EXECUTED 127

static unsigned limit_s(void)
{
    const char *text = getenv("CRUN_PREFLIGHT_TIMEOUT");
    int64_t given = text ? clock_parse_duration(text) / 1000 : 0;

    return given > 0 && given <= TIME_LIMIT_MAX_S ? (unsigned)given : TIME_LIMIT_S;
}

/* Writes the error file, from which crun reads the reason. */
static void write_error_file(enum preflight_verdict verdict, int errnum,
                             const char *why)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    cJSON *root = cJSON_CreateObject(),
          *message = cJSON_AddObjectToObject(root, "message"),
          *preflight = cJSON_AddObjectToObject(root, PREFLIGHT_KEY);
    char line[600], shown[2 * sizeof(line)], *text;
    int fd;

    snprintf(line, sizeof(line), "preflight: %s", why);
    cJSON_AddStringToObject(message, "message", line);
    cJSON_AddNumberToObject(preflight, PREFLIGHT_VERDICT_KEY, verdict);
    cJSON_AddNumberToObject(preflight, PREFLIGHT_ERRNO_KEY, errnum);
    text = cJSON_PrintUnformatted(root);
    fd = path && *path ? fd_create_file(path, O_TRUNC, 0666) : -1;
    if (fd >= 0 && text) {
        size_t size = strlen(text);

        (void)fd_write_all(fd, text, &size);
    }
    if (fd >= 0)
        close(fd);
    else
        fprintf(stderr, "%s\n", text_printable(line, shown, sizeof(shown)));
    cJSON_free(text);
    cJSON_Delete(root);
}

/* -- the child --------------------------------------------------------------------- */

struct preflight_run {
    struct environment env;
    unsigned limit;
    uint64_t begin_ms;
    char host[64];
};

static uint64_t limit_ms(const struct preflight_run *c)
{
    return 1000ull * c->limit;
}

static unsigned whole_s(unsigned limit)
{
    return limit * WHOLE_TIMES + LEAVE_S;
}

/* The agent normally ends this worker before this time. */
static uint64_t time_to_wait_for_agent(const struct preflight_run *c)
{
    return clock_ms() + limit_ms(c) + LEAVE_S * 1000;
}

static void sleep_until(uint64_t ms)
{
    uint64_t now;

    while ((now = clock_ms()) < ms)
        usleep((useconds_t)(ms - now) * 1000);
}

/* One worker of the node reports it; the agent then ends the others. */
static _Noreturn void exit_unfit(const struct preflight_run *c, const char *why)
{
    if (c->env.local_rank != 0)
        sleep_until(time_to_wait_for_agent(c));
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

static _Noreturn void exit_others_unfit(const struct preflight_run *c, const char *why)
{
    sleep_until(time_to_wait_for_agent(c));
    write_error_file(PREFLIGHT_NO_VERDICT, 0, why);
    _exit(EXIT_FAILURE);
}

static void check_connectivity(const struct preflight_run *c)
{
    struct connectivity r = { .env = &c->env,
                              .begin_ms = c->begin_ms,
                              .limit_ms = limit_ms(c) };
    enum connectivity_result result;
    char why[600];
    struct err e;

    if (store_client_open_job(&r.store, &c->env, r.begin_ms + r.limit_ms, &e) !=
        CRUN_OK) {
        snprintf(why, sizeof(why), "%s does not reach the node of rank 0: %s", c->host,
                 e.text);
        /* if that node is at fault, it leaves the job earlier */
        sleep_until(r.begin_ms + r.limit_ms * 3 / 2);
        exit_unfit(c, why);
    }
    result = connectivity_check(&r, why, sizeof(why));
    store_client_close(r.store);
    if (result == CONNECTIVITY_UNFIT)
        exit_unfit(c, why);
    if (result == CONNECTIVITY_OTHERS_UNFIT)
        exit_others_unfit(c, why);
}

/* Whether an error is this node's fault, not that of another rank. */
static bool is_own_fault(crun_status s)
{
    if (crun_exit_code()) /* this rank hangs */
        return true;
    return s != CRUN_TIMEOUT && s != CRUN_PEER_LOST && s != CRUN_ABORTED &&
           s != CRUN_MISMATCH && s != CRUN_CORRUPT;
}

static void check_allreduce(const struct preflight_run *c, struct allreduce_result *sum)
{
    char why[600];
    struct err e;
    crun_status s;

    setenv("TORCHELASTIC_RUN_ID", "crun-preflight", 1); /* separate keys in the store */
    s = allreduce_check_run(c->limit, (double)c->limit * MEET_TIMES, sum, &e);
    if (s == CRUN_OK)
        return;
    snprintf(why, sizeof(why), "%s: an all-reduce over the job: %s", c->host, e.text);
    if (!is_own_fault(s))
        exit_others_unfit(c, why);
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

static void print_success(const struct preflight_run *c,
                          const struct allreduce_result *sum)
{
    char reach[64] = "";

    if (c->env.nodes > 1)
        snprintf(reach, sizeof(reach), "%u nodes reach each other; ", c->env.nodes);
    fprintf(
        stderr,
        "preflight: %sall-reduce of 1 MiB over %u rank%s (%s): %.2f ms, %.2f GB/s\n",
        reach, c->env.size, text_plural(c->env.size), sum->backend, sum->ms,
        sum->ms > 0 ? ALLREDUCE_CHECK_BYTES / sum->ms / 1e6 : 0);
}

/* For a connection to each node; the limit of the worker's program does not change. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static _Noreturn void run_checks(unsigned limit)
{
    struct preflight_run c = { .limit = limit, .begin_ms = clock_ms() };
    struct allreduce_result sum = { 0 };
    struct err e;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    gethostname(c.host, sizeof(c.host) - 1);
    alarm(whole_s(limit));
    raise_descriptor_limit();
    if (environment_read(&c.env, &e) != CRUN_OK) {
        write_error_file(PREFLIGHT_NO_VERDICT, 0, e.text);
        _exit(EXIT_FAILURE);
    }
    if (c.env.nodes > 1)
        check_connectivity(&c);
    check_allreduce(&c, &sum);
    if (c.env.rank == 0)
        print_success(&c, &sum);
    _exit(EXIT_SUCCESS);
}

/* -- the worker -------------------------------------------------------------------- */

/* The child's alarm ends it, unless a driver holds it in the kernel. */
static bool checks_end_in_time(pid_t child, unsigned limit)
{
    uint64_t until = clock_ms() + 1000ull * (whole_s(limit) + ALARM_S), now;
    struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, child, 0u),
                          .events = POLLIN };
    bool over = end.fd < 0; /* an old kernel: rely on the alarm */

    while (!over && (now = clock_ms()) < until)
        over = poll(&end, 1, (int)(until - now)) > 0;
    if (end.fd >= 0)
        close(end.fd);
    return over;
}

/* Exits if the child does not succeed. */
static void await_checks(pid_t child, unsigned limit)
{
    bool over = checks_end_in_time(child, limit);
    char why[128];
    int status = 0;

    while (over && waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            _exit(EX_OSERR);
    if (over && WIFEXITED(status)) {
        if (WEXITSTATUS(status) == EXIT_SUCCESS)
            return;
        _exit(WEXITSTATUS(status));
    }
    if (!over || WTERMSIG(status) == SIGALRM)
        snprintf(why, sizeof(why), "does not end within %u s", whole_s(limit));
    else
        snprintf(why, sizeof(why), "killed by SIG%s", text_signal(WTERMSIG(status)));
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

/* The signals that ask a program for a checkpoint: there is nothing to save yet. */
static const int checkpoint_signals[] = { SIGUSR1, SIGUSR2 };
#define CHECKPOINT_SIGNALS (sizeof(checkpoint_signals) / sizeof(checkpoint_signals[0]))

static void ignore_checkpoint_signals(struct sigaction old[CHECKPOINT_SIGNALS])
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };

    for (size_t i = 0; i < CHECKPOINT_SIGNALS; i++)
        sigaction(checkpoint_signals[i], &ignore, &old[i]);
}

/* crun reports it in the same words as without a preflight. */
static int fail_exec(int errnum)
{
    char why[128];

    snprintf(why, sizeof(why), "execve: %s", strerror(errnum));
    write_error_file(PREFLIGHT_NOT_EXECUTED, errnum, why);
    return EXIT_NOT_EXECUTED;
}

/* For users who run it by hand; flag may be NULL. */
static int print_preflight_usage(const char *flag)
{
    bool asked = flag && (strcmp(flag, "--help") == 0 || strcmp(flag, "-h") == 0);

    if (flag && strcmp(flag, "--version") == 0)
        return puts("crun-preflight " CRUN_VERSION) < 0;
    if (flag && !asked)
        fprintf(stderr, "crun-preflight: unknown flag %s\n", flag);
    fputs("usage: crun-preflight PROGRAM [ARGUMENTS]    (crun --preflight starts it)\n",
          asked ? stdout : stderr);
    return asked ? EXIT_SUCCESS : EX_USAGE;
}

int main(int argc, char **argv)
{
    unsigned limit = limit_s();
    struct sigaction old[CHECKPOINT_SIGNALS];
    pid_t child;

    if (argc > 2 && strcmp(argv[1], "--write-checkpoint") == 0)
        return checkpoint_flush(argv + 2);
    if (argc < 2 || argv[1][0] == '-')
        return print_preflight_usage(argv[1]);
    ignore_checkpoint_signals(old);
    child = fork();
    if (child < 0) {
        write_error_file(PREFLIGHT_NO_VERDICT, errno, strerror(errno));
        return EX_OSERR;
    }
    if (child == 0)
        run_checks(limit);
    await_checks(child, limit);
    for (size_t i = 0; i < CHECKPOINT_SIGNALS; i++)
        sigaction(checkpoint_signals[i], &old[i], NULL);
    execv(argv[1], argv + 1);
    return fail_exec(errno);
}
