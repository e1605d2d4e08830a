/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/timeout_culprit.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/text.h"

#define OTHERS_MS_MIN 1000 /* for the other ranks to write that they have timed out */
#define OTHERS_MS_MAX 5000
#define MOMENT_MS 200 /* for an entry to be written to the store and read */
#define LOOK_UP_MS 20
#define STORE_MS 1000
#define HOPS_MAX 16
#define KEY_SIZE 430

struct late {
    uint32_t accused;
    char text[256];
};

static const char *late_key(const char *prefix, unsigned rank, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "%slate/%u", prefix, rank);
    return key;
}

/* The wait of each rank began when it made the call: the longer a wait may last, the
 * further apart these times may be. */
static uint64_t others_ms(uint64_t timeout_ms)
{
    uint64_t ms = timeout_ms / 4;

    return ms < OTHERS_MS_MIN ? OTHERS_MS_MIN : ms > OTHERS_MS_MAX ? OTHERS_MS_MAX : ms;
}

uint64_t timeout_culprit_early_ms(uint64_t timeout_ms)
{
    uint64_t ms = others_ms(timeout_ms);

    return ms < timeout_ms / 2 ? ms : timeout_ms / 2;
}

/* How long to wait for the others after the deadline: with the time before it, as long
 * as others_ms(). */
static uint64_t rest_ms(uint64_t timeout_ms, bool early)
{
    uint64_t ms = others_ms(timeout_ms) -
                  (early ? timeout_culprit_early_ms(timeout_ms) : 0);

    return ms < MOMENT_MS ? MOMENT_MS : ms;
}

static bool wait_for_others(const struct abort_word *aborted, uint64_t ms)
{
    const struct timespec pause = { 0, LOOK_UP_MS * 1000000L };
    uint64_t until = clock_ms() + ms;

    while (clock_ms() < until) {
        if (abort_get(aborted))
            return false;
        (void)nanosleep(&pause, NULL);
    }
    return true;
}

static void write_late(struct timeout_culprit *b, unsigned accused, const char *text,
                       uint64_t ms)
{
    struct late late = { .accused = accused };
    char key[KEY_SIZE];
    struct err ignored;

    snprintf(late.text, sizeof(late.text), "%s", text);
    (void)!store_client_set(b->store, late_key(b->prefix, b->rank, key), &late,
                            sizeof(late), clock_ms() + ms, &ignored);
    b->written = true;
    b->accused = accused;
}

/* The operation makes no progress during this, so it must be short. */
void timeout_culprit_report(struct timeout_culprit *b, unsigned accused,
                            const char *text)
{
    if (!b->written || b->accused != accused)
        write_late(b, accused, text, MOMENT_MS);
}

void timeout_culprit_withdraw(struct timeout_culprit *b)
{
    char key[KEY_SIZE];
    struct err ignored;

    if (b->written)
        (void)!store_client_delete(b->store, late_key(b->prefix, b->rank, key),
                                   clock_ms() + STORE_MS, &ignored);
    b->written = false;
}

static bool find_late(struct store_client *store, const char *prefix, unsigned rank,
                      struct late *late)
{
    uint64_t until = clock_ms() + STORE_MS;
    size_t size = sizeof(*late);
    char key[KEY_SIZE], text[sizeof(late->text)] = "";
    struct err e;

    late_key(prefix, rank, key);
    if (store_client_has(store, key, until) != 1 ||
        store_client_get(store, key, late, &size, until, &e) != CRUN_OK)
        return false;
    memcpy(text, late->text, sizeof(text) - 1);
    text_printable(text, late->text, sizeof(late->text));
    return size == sizeof(*late);
}

crun_status timeout_culprit_settle(struct timeout_culprit *b, unsigned accused,
                                   uint64_t timeout_ms, bool early,
                                   const struct abort_word *aborted, struct err *e)
{
    struct late late = { .accused = accused }, last = late;

    snprintf(late.text, sizeof(late.text), "%s", e->text);
    write_late(b, accused, e->text, STORE_MS);
    if (!wait_for_others(aborted, rest_ms(timeout_ms, early))) {
        return abort_error(aborted, e);
    }
    for (unsigned hop = 0; hop < HOPS_MAX; hop++) {
        if (!find_late(b->store, b->prefix, late.accused, &last)) {
            err_set(e, "%s", late.text);
            return CRUN_TIMEOUT;
        }
        late = last;
    }
    return CRUN_TIMEOUT; /* a cycle: the network between two ranks is broken */
}
