/* SPDX-License-Identifier: MIT */
/*
 * What crun --preflight starts in every worker's place: it finds out whether the nodes
 * reach each other and an all-reduce works, and becomes the worker's program. If they
 * do not, the node at fault ends with EX_UNAVAILABLE, which has crun leave the job, and
 * the others wait for the order that follows from it.
 *
 * The check is made by a child: whatever hangs or crashes in a driver, or is left by a
 * library, is the child's alone.
 */
#include <cjson/cJSON.h>
#include <errno.h>
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

#include "rendezvous/base/clock.h"
#include "rendezvous/base/preflight_verdict.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/version.h"
#include "worker-lib/preflight/connectivity.h"
#include "worker-lib/preflight/allreduce_check.h"

#define PATIENCE_S 20
#define PATIENCE_MAX_S 3600
/* Many times the patience: for all to meet, and until it is clear that it hangs. */
#define MEET_TIMES 2
#define WHOLE_TIMES 8
/* At least, for NCCL to be given up in the rank where it hangs, and that to be told. */
#define LEAVE_S 10
/* For a child to be ended by its alarm. */
#define ALARM_S 2
#define EXIT_NOT_EXECUTED 127

static unsigned patience_s(void)
{
    const char *text = getenv("CRUN_PREFLIGHT_TIMEOUT");
    long given = text ? strtol(text, NULL, 10) : 0;

    return given > 0 && given <= PATIENCE_MAX_S ? (unsigned)given : PATIENCE_S;
}

/* Writes the error file, from which crun learns why a worker ended. */
static void write_error_file(enum preflight_verdict verdict, int errnum,
                             const char *why)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    cJSON *root = cJSON_CreateObject(),
          *message = cJSON_AddObjectToObject(root, "message"),
          *preflight = cJSON_AddObjectToObject(root, PREFLIGHT_KEY);
    char line[600], shown[2 * sizeof(line)], *text;
    FILE *f;

    snprintf(line, sizeof(line), "preflight: %s", why);
    cJSON_AddStringToObject(message, "message", line);
    cJSON_AddNumberToObject(preflight, PREFLIGHT_VERDICT_KEY, verdict);
    cJSON_AddNumberToObject(preflight, PREFLIGHT_ERRNO_KEY, errnum);
    text = cJSON_PrintUnformatted(root);
    f = path && *path ? fopen(path, "we") : NULL;
    if (f && text)
        fputs(text, f);
    if (f)
        fclose(f);
    else
        fprintf(stderr, "%s\n", text_printable(line, shown, sizeof(shown)));
    cJSON_free(text);
    cJSON_Delete(root);
}

/* -- the child -----------------------------------------------------------------------
 */

struct check {
    struct environment env;
    unsigned patience;
    uint64_t begin_ms;
    char host[64];
};

static uint64_t patience_ms(const struct check *c)
{
    return 1000ull * c->patience;
}

static unsigned whole_s(unsigned patience)
{
    return patience * WHOLE_TIMES + LEAVE_S;
}

/* By then this worker is ended, if all goes as it should. */
static uint64_t others_are_gone(const struct check *c)
{
    return clock_ms() + patience_ms(c) + LEAVE_S * 1000;
}

static void sleep_until(uint64_t ms)
{
    uint64_t now;

    while ((now = clock_ms()) < ms)
        usleep((useconds_t)(ms - now) * 1000);
}

/* One of the node says it; the others of it are ended with that one. */
static _Noreturn void is_unfit(const struct check *c, const char *why)
{
    if (c->env.local_rank != 0)
        sleep_until(others_are_gone(c));
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

static _Noreturn void others_are_unfit(const struct check *c, const char *why)
{
    sleep_until(others_are_gone(c));
    write_error_file(PREFLIGHT_NO_VERDICT, 0, why);
    _exit(EXIT_FAILURE);
}

static void check_reach(const struct check *c)
{
    struct reach r = { .env = &c->env,
                       .begin_ms = c->begin_ms,
                       .patience_ms = patience_ms(c) };
    enum reach_result result;
    char why[600];
    struct err e;

    if (store_client_open(&r.store, c->env.host, c->env.port,
                          r.begin_ms + r.patience_ms, &e) != CRUN_OK) {
        snprintf(why, sizeof(why), "%s does not reach the node of rank 0: %s", c->host,
                 e.text);
        /* if that is at fault, it is gone by then */
        sleep_until(r.begin_ms + r.patience_ms * 3 / 2);
        is_unfit(c, why);
    }
    result = reach_find(&r, why, sizeof(why));
    store_client_close(r.store);
    if (result == REACH_UNFIT)
        is_unfit(c, why);
    if (result == REACH_OTHERS)
        others_are_unfit(c, why);
}

/* What a rank says of itself is its node's trouble; of the others, theirs. */
static bool is_own_trouble(crun_status s)
{
    if (crun_exit_code()) /* it hangs here */
        return true;
    return s != CRUN_TIMEOUT && s != CRUN_PEER_LOST && s != CRUN_ABORTED &&
           s != CRUN_MISMATCH && s != CRUN_CORRUPT;
}

static void check_sum(const struct check *c, struct sum_result *sum)
{
    char why[600];
    struct err e;
    crun_status s;

    setenv("TORCHELASTIC_RUN_ID", "crun-preflight", 1); /* keys of its own */
    s = sum_find(c->patience, (double)c->patience * MEET_TIMES, sum, &e);
    if (s == CRUN_OK)
        return;
    snprintf(why, sizeof(why), "%s: an all-reduce over the job: %s", c->host, e.text);
    if (!is_own_trouble(s))
        others_are_unfit(c, why);
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

static void say_well(const struct check *c, const struct sum_result *sum)
{
    char reach[64] = "";

    if (c->env.nodes > 1)
        snprintf(reach, sizeof(reach), "%u nodes reach each other; ", c->env.nodes);
    fprintf(
        stderr,
        "preflight: %sall-reduce of 1 MiB over %u rank%s (%s): %.2f ms, %.2f GB/s\n",
        reach, c->env.size, text_plural(c->env.size), sum->backend, sum->ms,
        sum->ms > 0 ? SUM_BYTES / sum->ms / 1e6 : 0);
}

/* For a connection with each node at once; the program's limit stays as it is. */
static void raise_nofile(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

static _Noreturn void check_all(unsigned patience)
{
    struct check c = { .patience = patience, .begin_ms = clock_ms() };
    struct sum_result sum = { 0 };
    struct err e;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    gethostname(c.host, sizeof(c.host) - 1);
    alarm(whole_s(patience));
    raise_nofile();
    if (environment_read(&c.env, &e) != CRUN_OK) {
        write_error_file(PREFLIGHT_NO_VERDICT, 0, e.text);
        _exit(EXIT_FAILURE);
    }
    if (c.env.nodes > 1)
        check_reach(&c);
    check_sum(&c, &sum);
    if (c.env.rank == 0)
        say_well(&c, &sum);
    _exit(EXIT_SUCCESS);
}

/* -- the worker ----------------------------------------------------------------------
 */

/* Its alarm sees to that; but what is held by a driver takes no notice of it. */
static bool ends_in_time(pid_t child, unsigned patience)
{
    uint64_t until = clock_ms() + 1000ull * (whole_s(patience) + ALARM_S), now;
    struct pollfd end = { .fd = (int)syscall(SYS_pidfd_open, child, 0u),
                          .events = POLLIN };
    bool over = end.fd < 0; /* an old kernel: the alarm has to do */

    while (!over && (now = clock_ms()) < until)
        over = poll(&end, 1, (int)(until - now)) > 0;
    if (end.fd >= 0)
        close(end.fd);
    return over;
}

/* Ends this process if the child does not end well. */
static void await(pid_t child, unsigned patience)
{
    bool over = ends_in_time(child, patience);
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
        snprintf(why, sizeof(why), "does not end within %u s", whole_s(patience));
    else
        snprintf(why, sizeof(why), "killed by SIG%s", sigabbrev_np(WTERMSIG(status)));
    write_error_file(PREFLIGHT_UNFIT, 0, why);
    _exit(EX_UNAVAILABLE);
}

/* By which a program is asked for a checkpoint: it has nothing to save yet. */
static const int asks[] = { SIGUSR1, SIGUSR2 };
#define ASKS (sizeof(asks) / sizeof(asks[0]))

static void heed_no_asks(struct sigaction old[ASKS])
{
    const struct sigaction ignore = { .sa_handler = SIG_IGN };

    for (size_t i = 0; i < ASKS; i++)
        sigaction(asks[i], &ignore, &old[i]);
}

static void heed_asks(const struct sigaction old[ASKS])
{
    for (size_t i = 0; i < ASKS; i++)
        sigaction(asks[i], &old[i], NULL);
}

/* crun reports it as it does where there is no preflight. */
static int not_executed(int errnum)
{
    char why[128];

    snprintf(why, sizeof(why), "execve: %s", strerror(errnum));
    write_error_file(PREFLIGHT_NOT_EXECUTED, errnum, why);
    return EXIT_NOT_EXECUTED;
}

/* By hand: which flag it was, if any. */
static int usage(const char *flag)
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
    unsigned patience = patience_s();
    struct sigaction old[ASKS];
    pid_t child;

    if (argc < 2 || argv[1][0] == '-')
        return usage(argv[1]);
    heed_no_asks(old);
    child = fork();
    if (child < 0) {
        write_error_file(PREFLIGHT_NO_VERDICT, errno, strerror(errno));
        return EX_OSERR;
    }
    if (child == 0)
        check_all(patience);
    await(child, patience);
    heed_asks(old);
    execv(argv[1], argv + 1);
    return not_executed(errno);
}
