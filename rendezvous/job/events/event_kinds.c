/* SPDX-License-Identifier: MIT */
#include "rendezvous/job/events/event_kinds.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/common/base/opt.h"

#define NEVER EVENT_CALL_NEVER
#define RESTART EVENT_CALL_RESTART
#define ALWAYS EVENT_CALL_ALWAYS

const struct event_kind event_kinds[] = {
    /* the course of a job */
    { "waiting", ACCESS_VIEW, NEVER, "a restart waits for its time" },
    { "formed", ACCESS_VIEW, RESTART, "an epoch has its nodes and ranks" },
    { "resumed", ACCESS_VIEW, ALWAYS,
      "the first step after a restart, what the restart has cost, and from whose "
      "memory it goes on" },
    { "failed", ACCESS_VIEW, ALWAYS, "a worker has failed: the root cause" },
    { "afterwards", ACCESS_VIEW, NEVER, "a failure that followed from another one" },
    { "hang", ACCESS_VIEW, ALWAYS, "the workers make no progress" },
    { "stopping", ACCESS_VIEW, NEVER, "an epoch stops: why, and what follows" },
    { "checkpoint", ACCESS_VIEW, NEVER,
      "what was in memory was written to files while the job goes on, or why not" },
    { "ending", ACCESS_OPERATE, NEVER, "a user, a scheduler or a node ends the job" },
    { "time", ACCESS_VIEW, NEVER, "where the time of the job went" },
    { "done", ACCESS_VIEW, ALWAYS, "the job has ended: how, and its exit code" },
    { "restored", ACCESS_VIEW, NEVER,
      "the rendezvous was restarted or has moved: it has no earlier events" },
    { "moved", ACCESS_VIEW, ALWAYS,
      "the node of the rendezvous was lost, and another one hosts it" },
    { "regressed", ACCESS_OPERATE, ALWAYS,
      "the rendezvous has forgotten epochs that its nodes know" },
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
    { "nan", ACCESS_VIEW, ALWAYS, "the loss is not a number any more" },
    { "straggler", ACCESS_OPERATE, NEVER, "the other ranks wait for one" },
    { "leftover", ACCESS_OPERATE, NEVER,
      "processes that ran on after their workers were ended" },
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

#define KINDS (sizeof(event_kinds) / sizeof(event_kinds[0]) - 1)
_Static_assert(KINDS <= 64, "a bit for each kind");

static int set_unknown_kind(const char *word, size_t length, struct err *e)
{
    struct opt words[KINDS + 1] = { 0 };
    const struct opt *nearest;

    for (size_t i = 0; i < KINDS; i++)
        words[i] = (struct opt){ .name = event_kinds[i].name, .help = "" };
    nearest = opt_find_nearest(words, word, length, false);
    return err_set(e, "\"%.*s\" is no kind of event%s%s%s", (int)length, word,
                   nearest ? "; did you mean " : " (crunctl(1) lists them)",
                   nearest ? nearest->name : "", nearest ? "?" : "");
}

int event_kinds_select(const char *list, uint64_t *chosen, struct err *e)
{
    *chosen = 0;
    for (const char *at = list;; at++) {
        size_t length = strcspn(at, ","), i = 0;

        while (i < KINDS && (strlen(event_kinds[i].name) != length ||
                             strncmp(event_kinds[i].name, at, length) != 0))
            i++;
        if (i < KINDS)
            *chosen |= UINT64_C(1) << i;
        else if (length == 3 && strncmp(at, "all", 3) == 0)
            *chosen = UINT64_MAX;
        else
            return set_unknown_kind(at, length, e);
        at += length;
        if (!*at)
            return 0;
    }
}
