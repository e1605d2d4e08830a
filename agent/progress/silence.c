/* SPDX-License-Identifier: MIT */
#include "agent/progress/silence.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/progress/limits.h"
#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/proc.h"
#include "rendezvous/common/base/xalloc.h"

#define CHILDREN_DEPTH 4

struct silence {
    uint32_t workers, after_ms;
    const struct group *group; /* NULL between epochs */
    uint64_t since_ms;
    uint64_t looked_ms, *ticks; /* of each worker at the last look */
    struct loop_timer timer;
};

/* Of a process and those that it started. */
static uint64_t count_ticks(pid_t pid, int depth)
{
    char path[64], text[4096], *at = text, *end;
    struct proc_stat stat;
    uint64_t ticks = 0;

    if (proc_read_stat(pid, &stat))
        ticks = stat.cpu_ticks;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    if (depth == 0 || fd_read_file(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return ticks;
    for (long child; (child = strtol(at, &end, 10)) > 0; at = end)
        ticks += count_ticks((pid_t)child, depth - 1);
    return ticks;
}

static bool any_worker_computes(struct silence *s, uint64_t passed_ms)
{
    uint64_t least = passed_ms * (uint64_t)sysconf(_SC_CLK_TCK) / 1000 *
                     SILENCE_CPU_PERCENT / 100;
    bool computes = false;

    for (uint32_t i = 0; i < s->workers; i++) {
        pid_t pid = group_pid(s->group, i);
        uint64_t ticks = pid ? count_ticks(pid, CHILDREN_DEPTH) : 0;

        computes |= ticks > s->ticks[i] + least;
        s->ticks[i] = ticks;
    }
    return computes;
}

/* Not while a template imports what --warm names. */
static bool any_worker_runs(const struct silence *s)
{
    for (uint32_t i = 0; i < s->workers; i++)
        if (group_pid(s->group, i))
            return true;
    return false;
}

static uint64_t look_interval_ms(const struct silence *s)
{
    uint64_t ms = s->after_ms / SILENCE_LOOKS;

    return ms < SILENCE_LOOK_MS_MIN ? SILENCE_LOOK_MS_MIN : ms;
}

/* The machine or crun was suspended, and the workers with it. */
static bool look_is_overdue(const struct silence *s, uint64_t now)
{
    return now - s->looked_ms > 2 * look_interval_ms(s);
}

static void on_look(void *arg)
{
    struct silence *s = arg;
    uint64_t now = clock_ms();

    if (any_worker_computes(s, now - s->looked_ms) || look_is_overdue(s, now) ||
        !any_worker_runs(s))
        s->since_ms = now;
    s->looked_ms = now;
    loop_timer_arm(&s->timer, now + look_interval_ms(s));
}

struct silence *silence_create(struct loop *loop, uint32_t workers, uint32_t after_ms)
{
    struct silence *s = xcalloc(1, sizeof(*s));

    s->workers = workers;
    s->after_ms = after_ms;
    s->ticks = xcalloc(workers, sizeof(*s->ticks));
    loop_timer_init(&s->timer, loop, on_look, s);
    return s;
}

void silence_destroy(struct silence *s)
{
    if (!s)
        return;
    loop_timer_fini(&s->timer);
    free(s->ticks);
    free(s);
}

void silence_begin(struct silence *s, const struct group *group)
{
    s->since_ms = s->looked_ms = clock_ms();
    s->group = s->after_ms ? group : NULL;
    for (uint32_t i = 0; i < s->workers; i++)
        s->ticks[i] = 0;
    if (s->group)
        loop_timer_arm(&s->timer, s->looked_ms + look_interval_ms(s));
}

void silence_end(struct silence *s)
{
    s->group = NULL;
    loop_timer_cancel(&s->timer);
}

void silence_break(struct silence *s)
{
    s->since_ms = clock_ms();
}

uint32_t silence_lasts_ms(const struct silence *s)
{
    uint64_t now = clock_ms(), ms = now - s->since_ms;

    return s->group && ms >= s->after_ms && !look_is_overdue(s, now) ? (uint32_t)ms : 0;
}
