/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_events.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "rendezvous/base/limits.h"

/* started, exec failed, exited for each; the answers to a few sweeps; rounded up */
#define TELLS_MAX (4 * WORKERS_PER_NODE_MAX)

static struct {
    struct guard_tell tell[TELLS_MAX];
    uint32_t first, end;
    bool lost;
} queue;

void guard_events_add(struct guard_tell t)
{
    if (queue.end == TELLS_MAX && queue.first > 0) {
        memmove(queue.tell, queue.tell + queue.first,
                (queue.end - queue.first) * sizeof(queue.tell[0]));
        queue.end -= queue.first;
        queue.first = 0;
    }
    if (queue.end == TELLS_MAX)
        queue.lost = true; /* it has not listened for a whole epoch */
    else
        queue.tell[queue.end++] = t;
}

enum guard_events_state guard_events_flush(void)
{
    while (queue.first < queue.end && !queue.lost) {
        uint32_t n = queue.end - queue.first;

        if (n > GUARD_TELLS_PER_PACKET)
            n = GUARD_TELLS_PER_PACKET;
        if (send(GUARD_FD_SOCKET, queue.tell + queue.first, n * sizeof(queue.tell[0]),
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
