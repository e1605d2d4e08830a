/* SPDX-License-Identifier: MIT */
#include <string.h>

#include "worker-lib/engine/backend.h"

bool abort_set(struct abort_word *a, crun_status s, const char *reason)
{
    uint32_t none = 0;
    size_t i = 0;

    if (!atomic_compare_exchange_strong(&a->set, &none, ABORT_CLAIMED))
        return false;
    for (; reason[i] && i < sizeof(a->reason) - 1; i++)
        a->reason[i] = reason[i];
    a->reason[i] = '\0';
    atomic_store(&a->set, (uint32_t)s);
    return true;
}

crun_status abort_get(const struct abort_word *a)
{
    uint32_t set = atomic_load_explicit(&a->set, memory_order_acquire);

    return set == ABORT_CLAIMED ? CRUN_OK : (crun_status)set;
}

/* "rank 12: ", and not "rank 12 is gone". */
static bool names_a_rank(const char *reason)
{
    const char *c = reason;

    for (const char *w = "rank "; *w; w++)
        if (*c++ != *w)
            return false;
    if (*c < '0' || *c > '9')
        return false;
    while (*c >= '0' && *c <= '9')
        c++;
    return c[0] == ':' && c[1] == ' ';
}

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

void abort_told(const struct abort_word *a, unsigned rank, char text[ABORT_REASON_SIZE])
{
    const char *reason = a->reason;
    size_t used = names_a_rank(reason) ? 0 : put_rank(rank, text);

    while (*reason && used < ABORT_REASON_SIZE - 1)
        text[used++] = *reason++;
    text[used] = '\0';
}
