/* SPDX-License-Identifier: MIT */
#include "agent/guard/spawn_retry.h"

#include <errno.h>
#include <time.h>

#include "agent/guard/guard_events.h"
#include "agent/guard/guard_wire.h"

static bool is_machine_full(int errnum)
{
    return errnum == EAGAIN || errnum == ENOMEM;
}

/* If the machine is full, only the first worker of a group waits for room; the others
 * fail at once. */
pid_t spawn_with_retries(const struct spawn *s, struct spawn_home *home, int *pidfd)
{
    static bool stays_full; /* the last retries found no room either */
    static const long delays_ms[] = { 50, 200, 800 };
    enum { RETRIES = sizeof(delays_ms) / sizeof(delays_ms[0]) };
    pid_t pid = spawn_worker(s, home, pidfd);

    for (size_t i = 0; i < RETRIES && !stays_full && pid < 0 && is_machine_full(errno);
         i++) {
        struct timespec delay = { .tv_sec = 0, .tv_nsec = delays_ms[i] * 1000000 };

        if (i == 0) {
            guard_events_add((struct guard_event){ .type = GUARD_EVENT_RETRY,
                                                   .local_rank = s->local_rank,
                                                   .status = errno });
            guard_events_flush();
        }
        nanosleep(&delay, NULL);
        pid = spawn_worker(s, home, pidfd);
    }
    stays_full = pid < 0 && is_machine_full(errno);
    return pid;
}
