/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/failure_notice.h"

#include <stdio.h>

#include "rendezvous/base/clock.h"

#define STORE_MS 500 /* for the store to answer */
#define LOOK_MS 250  /* between checks for a notice while a key is awaited */
#define FAR_MS (24u * 3600 * 1000)
#define KEY_SIZE 420

static const char *notice_key(const char *prefix, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "%sfailure", prefix);
    return key;
}

void failure_notice_write(struct store_client *store, const char *prefix,
                          const struct abort_notice *n)
{
    uint64_t until = clock_ms() + STORE_MS;
    char key[KEY_SIZE];
    struct err e;

    notice_key(prefix, key);
    if (store_client_has(store, key, until) == 0)
        (void)!store_client_set(store, key, n, sizeof(*n), until, &e);
}

bool failure_notice_read(struct store_client *store, const char *prefix,
                         struct abort_notice *n)
{
    uint64_t until = clock_ms() + STORE_MS;
    size_t size = sizeof(*n);
    char key[KEY_SIZE];
    struct err e;

    notice_key(prefix, key);
    return store_client_has(store, key, until) == 1 &&
           store_client_get(store, key, n, &size, until, &e) == CRUN_OK &&
           size == sizeof(*n) && abort_notice_is_valid(n);
}

bool failure_notice_await(struct store_client *store, const char *prefix,
                          struct abort_notice *n)
{
    size_t size = sizeof(*n);
    char key[KEY_SIZE];
    struct err e;
    crun_status s;

    notice_key(prefix, key);
    do
        s = store_client_get(store, key, n, &size, clock_ms() + FAR_MS, &e);
    while (s == CRUN_TIMEOUT);
    return s == CRUN_OK && size == sizeof(*n) && abort_notice_is_valid(n);
}

bool failure_notice_abort(struct store_client *store, const char *prefix,
                          struct abort_word *into)
{
    struct abort_notice n;

    if (!failure_notice_read(store, prefix, &n))
        return false;
    abort_set_notice(into, &n);
    return true;
}

crun_status failure_notice_await_key(struct store_client *store, const char *prefix,
                                     const char *key, void *value, size_t *size,
                                     uint64_t deadline_ms, struct err *e)
{
    for (;;) {
        uint64_t now = clock_ms(), until = now + LOOK_MS;
        struct abort_notice n;
        size_t room = *size;
        crun_status s = store_client_get(store, key, value, &room,
                                         until < deadline_ms ? until : deadline_ms, e);

        if (s != CRUN_TIMEOUT) {
            *size = room;
            /* a value that is too long is not the caller's mistake */
            return s == CRUN_BAD_ARGUMENT ? CRUN_MISMATCH : s;
        }
        if (failure_notice_read(store, prefix, &n))
            return abort_notice_error(&n, e);
        if (now >= deadline_ms)
            return s;
    }
}
