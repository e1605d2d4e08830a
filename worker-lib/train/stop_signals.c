/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/stop_signals.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "rendezvous/base/clock.h"

/* Ticks of a second without a sign of life after which the world is given up; more
 * where batches are slow. */
#define TICKS_MIN 2
#define BATCHES 4
/* Rank 0 is the first to do it, so that one rank says why, and no more where that is
 * the one that is missing. */
#define LATER_MAX 2

static crun_world *watched;
static volatile sig_atomic_t came, gave_up;
static unsigned later; /* than rank 0 */
static atomic_uint signs, ticks_allowed = TICKS_MIN;
static unsigned signs_seen, ticks; /* the handler's own */

static void on_stop(int number)
{
    if (came && number == SIGINT)
        _exit(128 + number);
    came = number;
    alarm(1);
}

static void on_tick(int number)
{
    unsigned now = atomic_load(&signs);

    (void)number;
    ticks = now == signs_seen ? ticks + 1 : 0;
    signs_seen = now;
    if (ticks < atomic_load(&ticks_allowed) + later) {
        alarm(1);
        return;
    }
    gave_up = 1;
    crun_abort_signal(watched);
}

void stop_signals_watch(crun_world *world)
{
    struct sigaction stop = { .sa_handler = on_stop, .sa_flags = SA_RESTART };
    struct sigaction tick = { .sa_handler = on_tick, .sa_flags = SA_RESTART };

    watched = world;
    later = crun_rank(world) < LATER_MAX ? (unsigned)crun_rank(world) : LATER_MAX;
    sigfillset(&stop.sa_mask);
    sigfillset(&tick.sa_mask);
    sigaction(SIGALRM, &tick, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGINT, &stop, NULL);
}

int stop_signals_signal(void)
{
    return came;
}

bool stop_signals_gave_up(void)
{
    return gave_up;
}

void stop_signals_alive(void)
{
    static uint64_t before_ms;
    uint64_t now = clock_ms(), allowed;

    allowed = TICKS_MIN + BATCHES * (before_ms ? now - before_ms : 0) / 1000;
    if (allowed > atomic_load(&ticks_allowed))
        atomic_store(&ticks_allowed, (unsigned)allowed);
    before_ms = now;
    atomic_fetch_add(&signs, 1);
}

int stop_signals_signal_within(unsigned ms)
{
    const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

    for (uint64_t end = clock_ms() + ms; !came && clock_ms() < end;)
        nanosleep(&pause, NULL);
    return came;
}
