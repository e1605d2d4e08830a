/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/failure_notice.h"

#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/keyed_hash.h"

#define STORE_MS 500  /* for the store to answer */
#define READ_TRIES 20 /* of what decides whether a result is believed */
#define WRITE_TRIES 4 /* the others wait for the abort that comes after it */
#define LOOK_MS 250   /* between checks for a notice while a key is awaited */
#define FAR_MS (24u * 3600 * 1000)
#define KEY_SIZE 420

/* What is in the store. */
struct tagged_notice {
    struct abort_notice notice;
    struct id128 tag;
};

static struct id128 notice_tag(const struct notice_board *b,
                               const struct abort_notice *n)
{
    struct {
        char label[16];
        struct abort_notice notice;
    } signed_text = { .label = "failure notice", .notice = *n };

    return keyed_hash_tag(&b->token, &signed_text, sizeof(signed_text));
}

static bool open_notice(const struct notice_board *b, const struct tagged_notice *value,
                        size_t size, struct abort_notice *n)
{
    struct id128 tag;

    if (size != sizeof(*value))
        return false;
    tag = notice_tag(b, &value->notice);
    *n = value->notice;
    return keyed_hash_tag_equal(&tag, &value->tag) && abort_notice_is_valid(n);
}

static const char *notice_key(const struct notice_board *b, char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "%sfailure", b->prefix);
    return key;
}

int failure_notice_find(const struct notice_board *b, struct abort_notice *n)
{
    uint64_t until = clock_ms() + STORE_MS;
    struct tagged_notice value;
    size_t size = sizeof(value);
    char key[KEY_SIZE];
    struct err e;
    int there = store_client_has(b->store, notice_key(b, key), until);
    crun_status s;

    if (there != 1)
        return there;
    s = store_client_get(b->store, key, &value, &size, until, &e);
    if (s != CRUN_OK && s != CRUN_BAD_ARGUMENT)
        return -1;
    return s == CRUN_OK && open_notice(b, &value, size, n);
}

void failure_notice_write(const struct notice_board *b, const struct abort_notice *n)
{
    struct tagged_notice value = { .notice = *n, .tag = notice_tag(b, n) };
    struct abort_notice first;
    char key[KEY_SIZE];
    struct err e;

    for (unsigned i = 0; i < WRITE_TRIES; i++) {
        int found = failure_notice_find(b, &first);

        if (found > 0 ||
            (found == 0 &&
             store_client_set(b->store, notice_key(b, key), &value, sizeof(value),
                              clock_ms() + STORE_MS, &e) == CRUN_OK))
            return;
    }
}

crun_status failure_notice_check(const struct notice_board *b, struct abort_word *word,
                                 struct err *e)
{
    bool asks = b->store && !abort_get(word);
    struct abort_notice n;
    int found = asks ? -1 : 0;

    for (unsigned i = 0; i < READ_TRIES && found < 0; i++)
        found = failure_notice_find(b, &n);
    if (found > 0)
        abort_set_notice(word, &n);
    if (abort_get(word))
        return abort_error(word, e);
    if (found == 0)
        return CRUN_OK;
    err_set(e, "the store does not tell whether all ranks live");
    return CRUN_PEER_LOST;
}

bool failure_notice_read(const struct notice_board *b, struct abort_notice *n)
{
    return failure_notice_find(b, n) == 1;
}

bool failure_notice_await(const struct notice_board *b, struct abort_notice *n)
{
    struct tagged_notice value;
    char key[KEY_SIZE];
    struct err e;

    notice_key(b, key);
    for (;;) {
        size_t size = sizeof(value);
        crun_status s = store_client_get(b->store, key, &value, &size,
                                         clock_ms() + FAR_MS, &e);

        if (s == CRUN_OK && open_notice(b, &value, size, n))
            return true;
        if (s != CRUN_OK && s != CRUN_TIMEOUT && s != CRUN_BAD_ARGUMENT)
            return false;
        if (s != CRUN_TIMEOUT) /* not a notice: one may replace it */
            usleep(LOOK_MS * 1000);
    }
}

bool failure_notice_abort(const struct notice_board *b, struct abort_word *into)
{
    struct abort_notice n;

    if (!failure_notice_read(b, &n))
        return false;
    abort_set_notice(into, &n);
    return true;
}

crun_status failure_notice_await_key(const struct notice_board *b, const char *key,
                                     void *value, size_t *size, uint64_t deadline_ms,
                                     struct err *e)
{
    for (;;) {
        uint64_t now = clock_ms(), until = now + LOOK_MS;
        struct abort_notice n;
        size_t room = *size;
        crun_status s = store_client_get(b->store, key, value, &room,
                                         until < deadline_ms ? until : deadline_ms, e);

        if (s != CRUN_TIMEOUT) {
            *size = room;
            /* a value that is too long is not the caller's mistake */
            return s == CRUN_BAD_ARGUMENT ? CRUN_MISMATCH : s;
        }
        if (failure_notice_read(b, &n))
            return abort_notice_error(&n, e);
        if (now >= deadline_ms)
            return s;
    }
}
