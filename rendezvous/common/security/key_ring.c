/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_ring.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/common/security/key_search.h"
#include "rendezvous/common/security/key_set.h"
#include "rendezvous/common/security/limits.h"

#define KEY_COMPLAINT_SIZE sizeof(((struct err *)0)->text)

/*
 * The thread reads without the lock, and holds it to exchange the sets. `asked` and
 * `looked` count: the thread looks while they differ. The last user frees the ring: a
 * thread that hangs in a read is left behind.
 */
struct key_ring {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    unsigned users;
    bool closing, is_slow, has_thread;
    uint64_t asked, looked, asked_ms, took_ms;
    unsigned generation, told; /* of the set */
    int64_t next_end;          /* of an identity that was accepted; 0: none */
    struct key_set *set;
    char *path;
    char complaint[KEY_COMPLAINT_SIZE], complained[KEY_COMPLAINT_SIZE];
};

static int64_t wall_seconds(void)
{
    return (int64_t)(clock_wall_ms() / 1000);
}

/* -- the thread ---------------------------------------------------------------------
 */

/* With the lock held, which is free when files are read. */
static void key_ring_read_files(struct key_ring *r)
{
    const struct key_set *old = r->set;
    struct key_set *set = NULL;
    struct err e = { .code = 0 };
    bool current;

    pthread_mutex_unlock(&r->lock);
    current = key_set_is_current(old, r->path);
    if (!current)
        set = key_set_read(r->path, old->is_folder, &e);
    pthread_mutex_lock(&r->lock);
    snprintf(r->complaint, sizeof(r->complaint), "%s", current || set ? "" : e.text);
    if (set) {
        key_set_destroy(r->set);
        r->set = set;
        r->generation++;
    }
}

/* With the lock held; gives it up. */
static void key_ring_release(struct key_ring *r)
{
    bool last = --r->users == 0;

    pthread_mutex_unlock(&r->lock);
    if (!last)
        return;
    key_set_destroy(r->set);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->done);
    pthread_mutex_destroy(&r->lock);
    free(r->path);
    free(r);
}

static void *key_ring_watch(void *arg)
{
    struct key_ring *r = arg;

    pthread_mutex_lock(&r->lock);
    while (!r->closing) {
        uint64_t asked = r->asked;

        if (asked == r->looked) {
            pthread_cond_wait(&r->wake, &r->lock);
            continue;
        }
        key_ring_read_files(r);
        r->looked = asked;
        pthread_cond_broadcast(&r->done);
    }
    r->looked = UINT64_MAX;
    pthread_cond_broadcast(&r->done);
    key_ring_release(r);
    return NULL;
}

static int key_ring_start_thread(struct key_ring *r, struct err *e)
{
    pthread_t thread;
    int errnum = thread_start(&thread, key_ring_watch, r);

    if (errnum)
        return err_set_errno(e, errnum, "cannot watch %s", r->path);
    pthread_detach(thread);
    r->users++;
    r->has_thread = true;
    return 0;
}

/* -- the users ----------------------------------------------------------------------
 */

/* set NULL: e says why there is none. */
static struct key_ring *key_ring_create(const char *path, struct key_set *set)
{
    struct key_ring *r;

    if (!set)
        return NULL;
    r = xcalloc(1, sizeof(*r));
    r->set = set;
    r->users = 1;
    r->path = xstrdup(path);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->wake, NULL);
    thread_cond_init(&r->done);
    return r;
}

struct key_ring *key_ring_open(const char *path, struct err *e)
{
    return key_ring_create(path, key_set_read(path, false, e));
}

struct key_ring *key_ring_open_folder(const char *path, struct err *e)
{
    return key_ring_create(path, key_set_read(path, true, e));
}

struct key_ring *key_ring_open_text(const char *name, const char *text, struct err *e)
{
    tls_prepare();
    return key_ring_create(name, key_set_of_text(name, text, e));
}

int key_ring_open_own(const char *named, bool is_required, struct key_ring **ring,
                      struct err *e)
{
    char path[PATH_MAX];
    int found = key_search(named, path, sizeof(path), e);

    *ring = NULL;
    if (found == 0 && is_required)
        return err_set(e, "--require-key: there is no key; crunctl keygen makes one "
                          "in ~/.config/crun/key, and every node needs it");
    if (found <= 0)
        return found;
    *ring = key_ring_open(path, e);
    if (!*ring)
        return err_wrap(e, "the key");
    tls_prepare();
    return 0;
}

/* With the lock held: waits for the thread to have looked. False: it was too slow. */
static bool key_ring_wait(struct key_ring *r, uint64_t asked, unsigned wait_ms)
{
    uint64_t until_ms = clock_ms() + wait_ms;

    while (r->looked < asked && thread_wait_until(&r->done, &r->lock, until_ms))
        ;
    return r->looked >= asked;
}

void key_ring_close(struct key_ring *r)
{
    if (!r)
        return;
    pthread_mutex_lock(&r->lock);
    r->closing = true;
    pthread_cond_signal(&r->wake);
    if (r->has_thread) /* so that it does not outlive the program */
        (void)key_ring_wait(r, UINT64_MAX, KEY_REFRESH_WAIT_MS);
    key_ring_release(r);
}

/* With the lock held. The first time starts the thread: so it is confined as far as the
 * program is by then. A thread that was slow is not waited for until it has looked. */
static void key_ring_ask_thread(struct key_ring *r, uint64_t every_ms, unsigned wait_ms)
{
    uint64_t now = clock_ms();
    struct err e;

    if (every_ms && every_ms < KEY_REFRESH_SHARE * r->took_ms)
        every_ms = KEY_REFRESH_SHARE * r->took_ms;
    if (r->asked && now - r->asked_ms < every_ms)
        return;
    if (r->is_slow && r->looked < r->asked)
        return;
    if (!r->has_thread && key_ring_start_thread(r, &e) < 0) {
        snprintf(r->complaint, sizeof(r->complaint), "%s", e.text);
        return;
    }
    r->asked++;
    r->asked_ms = now;
    pthread_cond_signal(&r->wake);
    r->is_slow = !key_ring_wait(r, r->asked, wait_ms);
    r->took_ms = clock_ms() - now;
}

static void key_ring_look(struct key_ring *r, uint64_t every_ms, unsigned wait_ms)
{
    char complaint[KEY_COMPLAINT_SIZE] = "";

    pthread_mutex_lock(&r->lock);
    key_ring_ask_thread(r, every_ms, wait_ms);
    if (strcmp(r->complaint, r->complained) != 0) {
        memcpy(complaint, r->complaint, sizeof(complaint));
        memcpy(r->complained, r->complaint, sizeof(complaint));
    }
    pthread_mutex_unlock(&r->lock);
    if (*complaint)
        log_warn("the keys stay as they were: %s", complaint);
}

bool key_ring_refresh(struct key_ring *r)
{
    bool changed;

    key_ring_look(r, KEY_REFRESH_EVERY_MS, KEY_REFRESH_WAIT_MS);
    pthread_mutex_lock(&r->lock);
    changed = r->told != r->generation || key_has_ended(r->next_end, wall_seconds());
    r->told = r->generation;
    if (changed)
        r->next_end = 0; /* key_ring_has finds it again */
    pthread_mutex_unlock(&r->lock);
    return changed;
}

void key_ring_reread(struct key_ring *r)
{
    key_ring_look(r, 0, KEY_USE_WAIT_MS);
}

/* -- the connecting side --------------------------------------------------------------
 */

/* The first in the file that may do what is wanted; *ended, or NULL: the first that has
 * ended, *lesser: that allows less. */
static const struct key_set_entry *choose_entry(const struct key_set *s,
                                                enum access wanted,
                                                const struct key_set_entry **ended,
                                                const struct key_set_entry **lesser)
{
    const struct key_set_entry *best = NULL;
    int64_t now = wall_seconds();

    *ended = *lesser = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const struct key_set_entry *entry = &s->entries[i], **slot = &best;

        if (entry->key.access < wanted)
            slot = lesser;
        else if (key_has_ended(entry->key.expires, now))
            slot = ended;
        if (!*slot || entry->order < (*slot)->order)
            *slot = entry;
    }
    return best;
}

static int refuse_use(const struct key_ring *r, enum access wanted,
                      const struct key_set_entry *ended,
                      const struct key_set_entry *lesser, struct err *e)
{
    char end[KEY_DATE_SIZE], now[KEY_DATE_SIZE];

    if (ended)
        return err_set(e,
                       "key %s of %s ended on %s (now: %s): get a new one, or make one "
                       "with crunctl keygen",
                       ended->key.id, r->path, key_format_date(ended->key.expires, end),
                       key_format_date(wall_seconds(), now));
    if (lesser)
        return err_set(
            e,
            "key %s of %s has the role \"%s\", and this needs \"%s\": use the "
            "key that it was made from",
            lesser->key.id, r->path, access_names[lesser->key.access],
            access_names[wanted]);
    return err_set(e, "%s has no key", r->path);
}

/* A key of less access gives none, so it is used as it is. */
static int psk_of_entry(const struct key_set_entry *entry, enum access wanted,
                        struct tls_psk *out, struct err *e)
{
    struct key key = entry->key;
    int rc = 0;

    if (entry->key.access == ACCESS_AGENT && wanted != ACCESS_AGENT)
        rc = key_derive(&entry->key, wanted, entry->key.expires, &key, e);
    if (rc == 0)
        key_psk(&key, out);
    key_wipe(&key);
    return rc;
}

int key_ring_use(struct key_ring *r, enum access wanted, struct tls_psk *out,
                 struct err *e)
{
    const struct key_set_entry *entry, *ended, *lesser;
    int rc;

    key_ring_look(r, KEY_REFRESH_UNKNOWN_MS, KEY_USE_WAIT_MS);
    pthread_mutex_lock(&r->lock);
    entry = choose_entry(r->set, wanted, &ended, &lesser);
    rc = entry ? psk_of_entry(entry, wanted, out, e)
               : refuse_use(r, wanted, ended, lesser, e);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* -- the accepting side ---------------------------------------------------------------
 */

enum key_match { KEY_MATCHES, KEY_UNKNOWN, KEY_ENDED, KEY_DENIED };

static void note_end(struct key_ring *r, int64_t expires)
{
    if (expires && (!r->next_end || expires < r->next_end))
        r->next_end = expires;
}

/* With the lock held. KEY_MATCHES: *entry has the key that the identity is made from.
 */
static enum key_match match_identity(const struct key_ring *r,
                                     const struct key_identity *identity,
                                     const struct key_set_entry **entry)
{
    int64_t now = wall_seconds();
    const struct key *k;

    *entry = key_set_find(r->set, identity->id);
    if (!*entry)
        return KEY_UNKNOWN;
    k = &(*entry)->key;
    if (key_has_ended(k->expires, now) || key_has_ended(identity->expires, now))
        return KEY_ENDED;
    if (k->access == identity->access && k->expires == identity->expires)
        return KEY_MATCHES;
    if (k->access != ACCESS_AGENT ||
        (k->expires && (!identity->expires || identity->expires > k->expires)))
        return KEY_DENIED;
    return KEY_MATCHES;
}

/* With the lock held. */
static bool psk_of_identity(struct key_ring *r, const struct key_identity *wanted,
                            struct tls_psk *psk)
{
    const struct key_set_entry *entry;
    struct key key;
    struct err e;

    if (match_identity(r, wanted, &entry) != KEY_MATCHES ||
        key_derive(&entry->key, wanted->access, wanted->expires, &key, &e) < 0)
        return false;
    key_psk(&key, psk);
    key_wipe(&key);
    note_end(r, wanted->expires);
    note_end(r, entry->key.expires);
    return true;
}

bool key_ring_find(void *ring, const char *identity, uint8_t secret[TLS_SECRET_BYTES])
{
    struct key_identity wanted;
    struct key_ring *r = ring;
    struct tls_psk psk;
    bool found = false;

    if (!key_identity_parse(identity, &wanted))
        return false;
    for (int i = 0; i < 2 && !found; i++) {
        key_ring_look(r, i ? KEY_REFRESH_UNKNOWN_MS : KEY_REFRESH_EVERY_MS,
                      KEY_REFRESH_WAIT_MS);
        pthread_mutex_lock(&r->lock);
        found = psk_of_identity(r, &wanted, &psk);
        pthread_mutex_unlock(&r->lock);
    }
    if (found)
        memcpy(secret, psk.secret, TLS_SECRET_BYTES);
    explicit_bzero(&psk, sizeof(psk));
    return found;
}

bool key_ring_has(struct key_ring *r, const char *identity)
{
    const struct key_set_entry *entry;
    struct key_identity wanted;
    bool has;

    if (!key_identity_parse(identity, &wanted))
        return false;
    pthread_mutex_lock(&r->lock);
    has = match_identity(r, &wanted, &entry) == KEY_MATCHES;
    if (has) {
        note_end(r, wanted.expires);
        note_end(r, entry->key.expires);
    }
    pthread_mutex_unlock(&r->lock);
    return has;
}

char *key_ring_explain(struct key_ring *r, const char *identity, char *buf, size_t size)
{
    char end[KEY_DATE_SIZE], now[KEY_DATE_SIZE];
    const struct key_set_entry *entry;
    struct key_identity wanted;
    int64_t expires;

    if (!key_identity_parse(identity, &wanted)) {
        snprintf(buf, size, "it named no key of crun");
        return buf;
    }
    pthread_mutex_lock(&r->lock);
    switch (match_identity(r, &wanted, &entry)) {
    case KEY_UNKNOWN:
        snprintf(buf, size, "key %s is not in %s (retired, or of another job)",
                 wanted.id, r->path);
        break;
    case KEY_ENDED:
        expires = wanted.expires ? wanted.expires : entry->key.expires;
        snprintf(buf, size, "key %s (%s) ended on %s (now: %s)", wanted.id,
                 access_names[wanted.access], key_format_date(expires, end),
                 key_format_date(wall_seconds(), now));
        break;
    case KEY_DENIED:
        snprintf(buf, size, "key %s does not allow \"%s\", or not for so long",
                 wanted.id, access_names[wanted.access]);
        break;
    case KEY_MATCHES:
        snprintf(buf, size, "key %s (%s) has another secret here", wanted.id,
                 access_names[wanted.access]);
        break;
    }
    pthread_mutex_unlock(&r->lock);
    return buf;
}

char *key_ring_owner(struct key_ring *r, const char *identity, char *buf, size_t size)
{
    const struct key_set_entry *entry;
    struct key_identity wanted;

    snprintf(buf, size, "%s", "");
    if (!key_identity_parse(identity, &wanted))
        return buf;
    pthread_mutex_lock(&r->lock);
    entry = key_set_find(r->set, wanted.id);
    if (entry)
        snprintf(buf, size, "%s", key_set_file(r->set, entry));
    pthread_mutex_unlock(&r->lock);
    return buf;
}

int key_ring_derive(struct key_ring *r, char key_id[KEY_ID_SIZE], const char *label,
                    const void *context, size_t size, uint8_t out[TLS_SECRET_BYTES],
                    struct err *e)
{
    const struct key_set_entry *entry, *ended = NULL, *lesser = NULL;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    entry = *key_id ? key_set_find(r->set, key_id)
                    : choose_entry(r->set, ACCESS_AGENT, &ended, &lesser);
    if (*key_id && entry && key_has_ended(entry->key.expires, wall_seconds())) {
        ended = entry;
        entry = NULL;
    }
    if (entry && entry->key.access == ACCESS_AGENT) {
        memcpy(key_id, entry->key.id, KEY_ID_SIZE);
        tls_hkdf(entry->key.secret, label, context, size, out);
    } else if (*key_id && !ended) {
        rc = err_set(e, "key %s is not in %s", key_id, r->path);
    } else {
        rc = refuse_use(r, ACCESS_AGENT, ended, lesser, e);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

const char *key_ring_path(const struct key_ring *r)
{
    return r->path;
}

enum access key_ring_access(struct key_ring *r)
{
    enum access highest = ACCESS_NONE;

    pthread_mutex_lock(&r->lock);
    for (size_t i = 0; i < r->set->count; i++)
        if (r->set->entries[i].key.access > highest)
            highest = r->set->entries[i].key.access;
    pthread_mutex_unlock(&r->lock);
    return highest;
}
