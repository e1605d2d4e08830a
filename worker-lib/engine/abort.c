/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/abort.h"

#include <stddef.h>

/* Appends as much of the text as fits. Safe in a signal handler. */
static void append_reason(char reason[ABORT_REASON_SIZE], size_t used, const char *text)
{
    while (*text && used < ABORT_REASON_SIZE - 1)
        reason[used++] = *text++;
    reason[used] = '\0';
}

static bool set_once(struct abort_word *a, crun_status s, int32_t rank,
                     const char *reason)
{
    uint32_t none = 0;

    if (!atomic_compare_exchange_strong(&a->set, &none, ABORT_CLAIMED))
        return false;
    a->rank = rank;
    append_reason(a->reason, 0, reason);
    atomic_store(&a->set, (uint32_t)s);
    return true;
}

bool abort_set(struct abort_word *a, crun_status s, const char *reason)
{
    return set_once(a, s, ABORT_OWN, reason);
}

bool abort_set_error(struct abort_word *a, crun_status s, const struct err *e)
{
    return set_once(a, s, e->code == ERROR_TOLD ? (int32_t)e->rank : ABORT_OWN,
                    e->text);
}

bool abort_set_notice(struct abort_word *a, const struct abort_notice *n)
{
    return set_once(a, (crun_status)n->status, n->rank, n->reason);
}

crun_status abort_get(const struct abort_word *a)
{
    uint32_t set = atomic_load_explicit(&a->set, memory_order_acquire);

    return set == ABORT_CLAIMED ? CRUN_OK : (crun_status)set;
}

crun_status abort_error(const struct abort_word *a, struct err *e)
{
    crun_status s = abort_get(a);

    err_set(e, "%s", a->reason);
    err_set_code(e, ERROR_ABORTED, 0);
    return s;
}

/* snprintf is not safe in a signal handler. */
static size_t put_rank(unsigned rank, char *text)
{
    char digits[10];
    size_t used = 0, n = 0;

    for (const char *c = "rank "; *c; c++)
        text[used++] = *c;
    do
        digits[n++] = (char)('0' + rank % 10);
    while ((rank /= 10) > 0);
    while (n > 0)
        text[used++] = digits[--n];
    text[used++] = ':';
    text[used++] = ' ';
    return used;
}

struct abort_notice abort_notice(const struct abort_word *a, unsigned rank)
{
    struct abort_notice n = { .status = abort_get(a), .rank = a->rank };
    size_t used = 0;

    if (a->rank == ABORT_OWN) {
        n.rank = (int32_t)rank;
        used = put_rank(rank, n.reason);
    }
    append_reason(n.reason, used, a->reason);
    return n;
}

struct abort_notice abort_notice_of_error(crun_status s, const struct err *e)
{
    struct abort_notice n = { .status = (uint32_t)s, .rank = ABORT_OWN };

    if (e->code == ERROR_TOLD)
        n.rank = (int32_t)e->rank;
    append_reason(n.reason, 0, e->text);
    return n;
}

bool abort_notice_is_valid(const struct abort_notice *n)
{
    return n->status > CRUN_OK && n->status < CRUN_STATUS_COUNT &&
           n->rank >= ABORT_OWN && n->reason[ABORT_REASON_SIZE - 1] == '\0';
}

crun_status abort_notice_error(const struct abort_notice *n, struct err *e)
{
    bool valid = abort_notice_is_valid(n);

    err_set(e, "%.*s", ABORT_REASON_SIZE, n->reason);
    if (valid && n->rank != ABORT_OWN)
        err_set_code(e, ERROR_TOLD, (unsigned)n->rank);
    return valid ? (crun_status)n->status : CRUN_PEER_LOST;
}
