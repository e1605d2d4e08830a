/* SPDX-License-Identifier: MIT */
/*
 * What a worker does wrong when it is told to: order/NODE.L holds a word and a number.
 */
#include "tests/chaos/chain.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/chaos/chain-store.h"

static const char *my_node;

static void do_exit(unsigned n)
{
    exit((int)n);
}

static void do_signal(unsigned n)
{
    signal((int)n, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){ 0 });
    raise((int)n);
}

static void wait_for_ever(void)
{
    for (;;)
        pause();
}

static void do_hang(unsigned n)
{
    chain_note("hangs", "%s %d", my_node, getpid());
    wait_for_ever();
}

static void do_deaf(unsigned n)
{
    signal(SIGTERM, SIG_IGN);
}

/* Grandchildren with sessions of their own, deaf to all, that hold what we have
 * open. */
static void leave_children(unsigned n)
{
    while (n-- > 0) {
        pid_t pid = fork();

        if (pid == 0) {
            setsid();
            if (fork() != 0)
                _exit(0);
            for (int signo = 1; signo < NSIG; signo++)
                signal(signo, SIG_IGN);
            wait_for_ever();
        }
        waitpid(pid, NULL, 0);
    }
}

static void do_orphans(unsigned n)
{
    leave_children(n);
}

static void do_orphans_and_die(unsigned n)
{
    leave_children(n);
    exit(1);
}

static void do_zombies(unsigned n)
{
    while (n-- > 0) {
        pid_t pid = fork();

        if (pid == 0) {
            fork();
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
}

static void do_close(unsigned n)
{
    close(STDOUT_FILENO);
    close(STDERR_FILENO);
}

static void say(char filler, unsigned bytes, unsigned line)
{
    char text[4096];

    for (unsigned said = 0; said < bytes; said += sizeof(text)) {
        memset(text, filler, sizeof(text));
        for (unsigned i = line; line && i < sizeof(text); i += line)
            text[i] = '\n';
        if (write(STDOUT_FILENO, text, sizeof(text)) < 0)
            return;
    }
}

static void do_spam(unsigned n)
{
    say('x', n, 80);
}

static void do_nul(unsigned n)
{
    say('\0', n, 0);
}

static void do_long_line(unsigned n)
{
    say('y', n, 0);
    exit(1); /* without ever ending it */
}

static void do_memory(unsigned n)
{
    setrlimit(RLIMIT_AS, &(struct rlimit){ n, n });
    while (malloc(1 << 20))
        ;
    raise(SIGKILL); /* as the kernel would */
}

static void do_drop(unsigned n)
{
    chain_store_close();
}

static const struct {
    const char *name;
    void (*run)(unsigned n);
} orders[] = {
    { "exit", do_exit },       { "signal", do_signal },
    { "hang", do_hang },       { "deaf", do_deaf },
    { "orphans", do_orphans }, { "orphans-and-die", do_orphans_and_die },
    { "zombies", do_zombies }, { "close", do_close },
    { "spam", do_spam },       { "nul", do_nul },
    { "memory", do_memory },   { "long-line", do_long_line },
    { "drop", do_drop },
};

void chain_obey(const char *node, unsigned local_rank)
{
    char path[300], word[32] = "";
    unsigned argument = 0;
    FILE *f;

    my_node = node;
    snprintf(path, sizeof(path), "order/%s.%u", node, local_rank);
    f = fopen(path, "re");
    if (!f)
        return;
    if (fscanf(f, "%31s %u", word, &argument) < 1)
        word[0] = '\0';
    fclose(f);
    unlink(path);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        if (strcmp(orders[i].name, word) == 0)
            orders[i].run(argument);
}
