/* SPDX-License-Identifier: MIT */
#include "launcher/remote/remote_internal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "launcher/hosts/host_watch.h"
#include "launcher/remote/channel.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"

#define KILLS_AT 3 /* the third Ctrl-C */

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

void remote_watch_signals(struct remote *r)
{
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 };
    static const int suspends[] = { SIGTSTP, SIGCONT };

    loop_timer_init(&r->others, r->loop, on_others_late, r);
    loop_timer_init(&r->suspend, r->loop, on_suspend_due, r);
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
