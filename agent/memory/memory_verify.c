/* SPDX-License-Identifier: MIT */
/* Whether parts in memory are whole: looked at when a restart may need them. */
#include "agent/memory/keeper_internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"

/* A part, as it was looked at with the lock. */
struct verification {
    struct memory_file *of, seen;
    pthread_t thread;
    bool has_thread, is_sound;
};

static void *verify_part(void *arg)
{
    struct verification *v = arg;

    v->is_sound = memory_file_is_sound(&v->seen);
    return NULL;
}

/* The newest part of each worker, which none of them changes any more; one that is
 * damaged is dropped, and makes another the newest. An older one is read only by
 * workers, which verify it themselves. True: one was dropped. */
static bool verify_newest(struct memory_keeper *k)
{
    struct verification *part = xcalloc(k->config.workers,
                                        MEMORY_SLOTS * sizeof(*part));
    struct memory_file *f;
    bool dropped = false;
    size_t count = 0;

    pthread_mutex_lock(&k->lock);
    memory_table_look(&k->table);
    TAILQ_FOREACH(f, &k->table.files, entry)
        if (memory_table_is_newest(&k->table, f))
            part[count++] = (struct verification){ .of = f, .seen = *f };
    pthread_mutex_unlock(&k->lock);
    for (struct verification *v = part; v < part + count; v++) {
        v->has_thread = thread_start(&v->thread, verify_part, v) == 0;
        if (!v->has_thread)
            verify_part(v);
    }
    for (struct verification *v = part; v < part + count; v++) {
        if (v->has_thread)
            pthread_join(v->thread, NULL);
        pthread_mutex_lock(&k->lock);
        if (v->is_sound)
            v->of->sound = v->seen.header.header_hash;
        else
            memory_file_drop(v->of);
        pthread_mutex_unlock(&k->lock);
        if (v->is_sound)
            continue;
        memory_keeper_say(k,
                          "the checkpoint in memory of rank %" PRIu32 ", step %" PRIu64
                          ", is damaged: an older one is used",
                          v->seen.header.rank, v->seen.header.set.step);
        dropped = true;
    }
    free(part);
    return dropped;
}

void memory_verify(void *arg)
{
    while (verify_newest(arg))
        ;
    /* what follows the note finds this thread ended, and verifies again */
    pthread_mutex_lock(&((struct memory_keeper *)arg)->lock);
    memory_keeper_note(arg, (struct memory_note){ .kind = NOTE_VERIFIED });
}
