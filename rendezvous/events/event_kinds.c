/* SPDX-License-Identifier: MIT */
#include "rendezvous/events/event_kinds.h"

#include <stdio.h>
#include <string.h>

#define NEVER EVENT_CALL_NEVER
#define RESTART EVENT_CALL_RESTART
#define ALWAYS EVENT_CALL_ALWAYS

const struct event_kind event_kinds[] = {
    /* the course of a job */
    { "waiting", ACCESS_VIEW, NEVER, "a restart waits for its time" },
    { "formed", ACCESS_VIEW, RESTART, "an epoch has its nodes and ranks" },
    { "resumed", ACCESS_VIEW, ALWAYS,
      "the first step after a restart, and what the restart has cost" },
    { "failed", ACCESS_VIEW, ALWAYS, "a worker has failed: the root cause" },
    { "afterwards", ACCESS_VIEW, NEVER, "a failure that followed from another one" },
    { "hang", ACCESS_VIEW, ALWAYS, "the workers make no progress" },
    { "stopping", ACCESS_VIEW, NEVER, "an epoch stops: why, and what follows" },
    { "ending", ACCESS_OPERATE, NEVER, "somebody ends the job" },
    { "time", ACCESS_VIEW, NEVER, "where the time of the job went" },
    { "done", ACCESS_VIEW, ALWAYS, "the job has ended: how, and its exit code" },
    { "restored", ACCESS_VIEW, NEVER,
      "the rendezvous was restarted: it has no earlier events" },
    /* nodes */
    { "joined", ACCESS_OPERATE, NEVER, "a node has joined the job" },
    { "refused", ACCESS_AGENT, NEVER, "a node may not join" }, /* tells settings */
    { "preflight", ACCESS_OPERATE, ALWAYS, "a node is unfit and leaves" },
    { "leaving", ACCESS_OPERATE, NEVER, "a node wants to leave" },
    { "left", ACCESS_VIEW, NEVER, "a node has left in good order (drained)" },
    { "lost", ACCESS_VIEW, ALWAYS, "a node was lost" },
    { "quarantined", ACCESS_VIEW, ALWAYS, "a node that fails often is a spare now" },
    /* remarks */
    { "rank", ACCESS_OPERATE, NEVER, "what a rank did when its epoch hung" },
    { "stacks", ACCESS_VIEW, NEVER, "where the ranks stood when an epoch hung" },
    { "silence", ACCESS_VIEW, ALWAYS, "nothing moves on any rank; nothing is stopped" },
    { "straggler", ACCESS_OPERATE, NEVER, "the other ranks wait for one" },
    { "xid", ACCESS_OPERATE, NEVER, "the driver reports an error of a GPU" },
    { "ecc", ACCESS_OPERATE, NEVER, "a GPU has bad memory" },
    { "gpu", ACCESS_OPERATE, NEVER, "another fault of a GPU" },
    { "notice", ACCESS_OPERATE, NEVER, "another line from the rendezvous" },
    { NULL, ACCESS_NONE, NEVER, NULL }
};

const struct event_kind *event_kind_find(const char *name)
{
    const struct event_kind *k = event_kinds;

    while (k->name && strcmp(k->name, name) != 0)
        k++;
    return k->name ? k : NULL;
}

enum access event_kind_access(const char *name)
{
    const struct event_kind *k = event_kind_find(name);

    return k ? k->least : ACCESS_OPERATE;
}

void event_hide_text(struct msg_event *event)
{
    snprintf(event->text, sizeof(event->text), "%s%s%s", event->host,
             *event->host ? " " : "", event->kind);
}

bool event_kind_calls(const struct msg_event *event)
{
    const struct event_kind *k = event_kind_find(event->kind);

    return k && (k->call == EVENT_CALL_ALWAYS ||
                 (k->call == EVENT_CALL_RESTART && event->epoch > 1));
}
