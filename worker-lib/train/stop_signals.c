/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/stop_signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

/* Seconds without progress until the world is aborted; more if batches are slow. */
#define TICKS_MIN 2
#define BATCHES 4
/* Rank 0 aborts first, so that one rank prints the reason; the others wait longer, in
 * case rank 0 is the rank that is missing. */
#define LATER_MAX 2

static crun_world *watched;
static volatile sig_atomic_t received, gave_up;
static unsigned extra_ticks; /* compared with rank 0 */
static atomic_uint batches_done, ticks_allowed = TICKS_MIN;
static unsigned batches_seen, ticks; /* used by the handler only */
static const char *volatile limit_text;

static void on_sigterm_or_sigint(int number)
{
    if (received && number == SIGINT)
        _exit(128 + number);
    received = number;
    if (!limit_text)
        alarm(1);
}

static void on_alarm(int number)
{
    unsigned now = atomic_load(&batches_done);

    if (limit_text) {
        (void)!write(STDERR_FILENO, limit_text, strlen(limit_text));
        _exit(CRUN_EXIT_STUCK);
    }
    ticks = now == batches_seen ? ticks + 1 : 0;
    batches_seen = now;
    if (ticks < atomic_load(&ticks_allowed) + extra_ticks) {
        alarm(1);
        return;
    }
    gave_up = 1;
    crun_abort_signal(watched);
}

void stop_signals_watch(crun_world *world)
{
    struct sigaction stop = { .sa_handler = on_sigterm_or_sigint,
                              .sa_flags = SA_RESTART };
    struct sigaction tick = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

    watched = world;
    extra_ticks = crun_rank(world) < LATER_MAX ? (unsigned)crun_rank(world) : LATER_MAX;
    sigfillset(&stop.sa_mask);
    sigfillset(&tick.sa_mask);
    sigaction(SIGALRM, &tick, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
}

int stop_signals_received(void)
{
    return received;
}

bool stop_signals_gave_up(void)
{
    return gave_up;
}

void stop_signals_alive(void)
{
    static uint64_t last_ms;
    uint64_t now = clock_ms(), allowed;

    allowed = TICKS_MIN + BATCHES * (last_ms ? now - last_ms : 0) / 1000;
    if (allowed > atomic_load(&ticks_allowed))
        atomic_store(&ticks_allowed, (unsigned)allowed);
    last_ms = now;
    atomic_fetch_add(&batches_done, 1);
}

int stop_signals_wait(unsigned ms)
{
    const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

    for (uint64_t end = clock_ms() + ms; !received && clock_ms() < end;)
        nanosleep(&pause, NULL);
    return received;
}

void stop_signals_limit(unsigned seconds, const char *text)
{
    limit_text = text;
    alarm(seconds);
}
