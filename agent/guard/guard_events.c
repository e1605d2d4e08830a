/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_events.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/common/base/limits.h"

/* started, warm or cold, exec failed, exited for each worker; answers to a few sweeps;
 * rounded up */
#define EVENTS_MAX (5 * WORKERS_PER_NODE_MAX)

static struct {
    struct guard_event event[EVENTS_MAX];
    uint32_t first, end;
    bool lost;
} queue;

void guard_events_add(struct guard_event t)
{
    if (queue.end == EVENTS_MAX && queue.first > 0) {
        memmove(queue.event, queue.event + queue.first,
                (queue.end - queue.first) * sizeof(queue.event[0]));
        queue.end -= queue.first;
        queue.first = 0;
    }
    if (queue.end == EVENTS_MAX)
        queue.lost = true; /* the agent has not read for a whole epoch */
    else
        queue.event[queue.end++] = t;
}

enum guard_events_state guard_events_flush(void)
{
    while (queue.first < queue.end && !queue.lost) {
        uint32_t n = queue.end - queue.first;

        if (n > GUARD_EVENTS_PER_PACKET)
            n = GUARD_EVENTS_PER_PACKET;
        if (send(GUARD_FD_SOCKET, queue.event + queue.first, n * sizeof(queue.event[0]),
                 MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            queue.first += n;
        else if (errno == EAGAIN || errno == ENOBUFS)
            return GUARD_EVENTS_WAIT;
        else if (errno != EINTR)
            queue.lost = true;
    }
    if (queue.first == queue.end)
        queue.first = queue.end = 0;
    return queue.lost ? GUARD_EVENTS_LOST : GUARD_EVENTS_SENT;
}
