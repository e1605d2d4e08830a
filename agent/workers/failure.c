/* SPDX-License-Identifier: MIT */
#include "agent/workers/failure.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

/* -- descriptions --------------------------------------------------------------- */

char *failure_format_end(const struct failure *f, char *buf, size_t size)
{
    const char *name = text_signal(f->code);

    if (f->kind == FAILURE_EXIT)
        snprintf(buf, size, "exit code %" PRId32, f->code);
    else
        snprintf(buf, size, "killed by %s%s%s%s", name ? "SIG" : "signal ",
                 name ? name : "?", f->out_of_memory ? ", out of memory" : "",
                 f->core_dumped ? ", core dumped" : "");
    return buf;
}

char *failure_what(const struct failure *f, char *buf, size_t size)
{
    switch (f->kind) {
    case FAILURE_EXIT:
    case FAILURE_SIGNAL:
        if (*f->what)
            snprintf(buf, size, "%s", f->what);
        else
            failure_format_end(f, buf, size);
        break;
    case FAILURE_EXEC:
        snprintf(buf, size, "could not be started: %s",
                 *f->what ? f->what : strerror(f->code));
        break;
    case FAILURE_LOST:
        snprintf(buf, size, "the node was lost");
        break;
    case FAILURE_HANG:
        snprintf(buf, size, "%s", *f->what ? f->what : "no progress");
        break;
    default:
        snprintf(buf, size, "%s", *f->what ? f->what : "the agent failed");
    }
    return buf;
}

/* Hints for errors whose name does not suggest a remedy. */
static const struct {
    int errnum;
    const char *text;
} exec_hints[] = {
    { ENOENT, " (the interpreter or loader that it asks for is missing)" },
    { ENOEXEC, " (neither a program for this machine nor a script with a #! line)" },
    { EACCES, " (its interpreter is not executable, or is mounted noexec)" },
    { EAGAIN, " (no more processes: ulimit -u, or the cgroup's pids.max)" },
    { E2BIG, " (arguments and environment are too long)" },
};

void failure_set_not_executed(struct failure *f, const char *what, int errnum)
{
    const char *hint = "";

    for (size_t i = 0; i < sizeof(exec_hints) / sizeof(*exec_hints); i++)
        if (exec_hints[i].errnum == errnum)
            hint = exec_hints[i].text;
    f->kind = FAILURE_EXEC;
    f->code = errnum;
    f->final = true;
    snprintf(f->what, sizeof(f->what), "%s: %s%s", what, strerror(errnum), hint);
}

void failure_describe_end(struct failure *f, const char *message)
{
    char end[64];

    if (*f->what)
        return;
    snprintf(f->what, sizeof(f->what), "%s%s%s",
             failure_format_end(f, end, sizeof(end)), *message ? ": " : "", message);
}

void failure_set_of_agent(struct failure *f, uint32_t rank, const char *why, bool final)
{
    f->kind = FAILURE_AGENT;
    f->final = final;
    f->rank = rank;
    f->at_ms = clock_ms();
    f->wall_ms = clock_wall_ms();
    snprintf(f->what, sizeof(f->what), "%s", why);
}

/* -- the list ------------------------------------------------------------------- */

void failure_list_add(struct failure_list *l, const struct failure *f)
{
    l->item = xrealloc(l->item, (l->count + 1) * sizeof(*l->item));
    l->item[l->count++] = *f;
}

void failure_list_clear(struct failure_list *l)
{
    free(l->item);
    *l = (struct failure_list){ NULL, 0 };
}
