/* SPDX-License-Identifier: MIT */
/*
 * A worker that does what its words say, one after the other, for the tests of guard,
 * agent and launcher:
 *
 *   test-worker exit 3        test-worker orphan 2 sleep
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static void sleep_for_ever(void)
{
    for (;;)
        pause();
}

static void do_exit(const char *arg)
{
    exit(atoi(arg));
}

static void do_signal(const char *arg)
{
    raise(atoi(arg));
}

static void do_sleep(const char *arg)
{
    sleep_for_ever();
}

static void do_nap(const char *arg)
{
    usleep((useconds_t)atoi(arg) * 1000);
}

static void do_ignore(const char *arg)
{
    signal(atoi(arg), SIG_IGN);
}

static void do_say(const char *arg)
{
    printf("%s\n", arg);
    fflush(stdout);
}

/* A child in its own group of processes. */
static void do_child(const char *arg)
{
    if (fork() == 0)
        sleep_for_ever();
}

/* Daemons, each the child of the one before; all would end on TERM. */
static void do_chain(const char *arg)
{
    int left = atoi(arg);

    if (fork() != 0)
        return;
    setsid();
    while (--left > 0 && fork() == 0)
        ;
    sleep_for_ever();
}

/* What a daemon does: fork, setsid, fork, no descriptors, deaf to every signal. */
static void do_orphan(const char *arg)
{
    for (int i = 0; i < atoi(arg); i++) {
        pid_t pid = fork();

        if (pid == 0) {
            setsid();
            if (fork() != 0)
                _exit(0);
            for (int signo = 1; signo < NSIG; signo++)
                signal(signo, SIG_IGN);
            syscall(SYS_close_range, 0u, ~0u, 0u);
            sleep_for_ever();
        }
        waitpid(pid, NULL, 0);
    }
}

/*
 * Processes that fork and exit faster than they can be looked at. They end by
 * themselves after some seconds: where a test fails, they could not be ended by hand.
 */
#define STORM_LIVES 4000

static void do_storm(const char *arg)
{
    for (int i = 0; i < atoi(arg); i++) {
        if (fork() != 0)
            continue;
        for (int life = 0; life < STORM_LIVES; life++) {
            if (life % 16 == 0)
                setsid();
            if (fork() > 0)
                _exit(0);
            usleep(100);
        }
        _exit(0);
    }
}

/* Double forks whose grandchildren end at once: zombies for the subreaper. */
static void do_zombies(const char *arg)
{
    for (int i = 0; i < atoi(arg); i++) {
        pid_t pid = fork();

        if (pid == 0) {
            fork();
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

static void do_stop(const char *arg)
{
    raise(SIGSTOP);
}

static void print_signals(void)
{
    char line[256];
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "SigBlk", 6) == 0 || strncmp(line, "SigIgn", 6) == 0)
            printf("%s", line);
    if (f)
        fclose(f);
}

static void print_descriptors(void)
{
    printf("fds:");
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            printf(" %d", fd);
    printf("\n");
}

/* What a worker can see of its world, one fact a line. */
static void do_report(const char *arg)
{
    struct rlimit files;
    cpu_set_t cpus;
    mode_t mask = umask(0);
    int death = 0;

    umask(mask);
    getrlimit(RLIMIT_NOFILE, &files);
    sched_getaffinity(0, sizeof(cpus), &cpus);
    prctl(PR_GET_PDEATHSIG, &death);
    print_signals();
    print_descriptors();
    printf("leads: session %d group %d\n", getsid(0) == getpid(),
           getpgrp() == getpid());
    printf("pdeathsig: %d\n", death);
    printf("umask: %03o\n", (unsigned)mask);
    printf("nofile: %lu\n", (unsigned long)files.rlim_cur);
    printf("cpus: %d\n", CPU_COUNT(&cpus));
    printf("tty: %d %d %d\n", isatty(0), isatty(1), tcgetsid(1) == getpid());
    printf("env: %s\n", getenv("TEST_WORKER") ? getenv("TEST_WORKER") : "");
    fflush(stdout);
}

static const struct word {
    const char *name;
    int has_arg;
    void (*run)(const char *arg);
} words[] = {
    { "exit", 1, do_exit },     { "signal", 1, do_signal },
    { "sleep", 0, do_sleep },   { "nap", 1, do_nap },
    { "ignore", 1, do_ignore }, { "say", 1, do_say },
    { "child", 0, do_child },   { "orphan", 1, do_orphan },
    { "storm", 1, do_storm },   { "zombies", 1, do_zombies },
    { "stop", 0, do_stop },     { "report", 0, do_report },
    { "chain", 1, do_chain },
};

static const struct word *find_word(const char *name)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i].name, name) == 0)
            return &words[i];
    fprintf(stderr, "test-worker: what is \"%s\"?\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct word *w = find_word(argv[i]);

        if (i + w->has_arg >= argc)
            return 2;
        w->run(argv[i + w->has_arg]);
        i += w->has_arg;
    }
    return 0;
}
