/* SPDX-License-Identifier: MIT */
/*
 * The files are memfiles. The directory is like one of them: the names that are seen,
 * the names that last, and the states between, of which a crash takes any one (file
 * systems keep the order of names, not that of data).
 */
#include "tests/fakes/disk/memdisk.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "tests/fakes/disk/memfile.h"

#define FILES_MAX 16
#define HANDLES_MAX 16
#define NAME_SIZE 32
#define NAME_CHANGES_MAX 4 /* then the oldest lasts by itself */

struct name {
    char text[NAME_SIZE]; /* empty: not in use */
    int file;
};

struct names {
    struct name name[FILES_MAX];
};

struct memdisk {
    struct disk disk; /* first: a disk is cast to its memdisk */
    struct memfile *file[FILES_MAX];
    int handle[HANDLES_MAX]; /* -1, or a file */
    struct names seen;
    struct names history[NAME_CHANGES_MAX + 1]; /* [0] lasts; [changes] is seen */
    unsigned changes;
    bool locked;
    bool power_off;
    bool fail_next_sync;
    unsigned power_left; /* operations; UINT_MAX: no end */
    unsigned operations;
    size_t room;
    size_t chunk;
};

static struct memdisk *memdisk_of(struct disk *d)
{
    return (struct memdisk *)d;
}

static int set_errno(int errnum)
{
    errno = errnum;
    return -1;
}

static struct name *name_find(struct names *names, const char *text)
{
    for (int i = 0; i < FILES_MAX; i++)
        if (strcmp(names->name[i].text, text) == 0)
            return &names->name[i];
    return NULL;
}

static bool names_hold(const struct names *names, int file)
{
    for (int i = 0; i < FILES_MAX; i++)
        if (names->name[i].text[0] && names->name[i].file == file)
            return true;
    return false;
}

static bool handles_hold(const struct memdisk *m, int file)
{
    for (int h = 0; h < HANDLES_MAX; h++)
        if (m->handle[h] == file)
            return true;
    return false;
}

/* A file without a name, now or after a crash, and without a handle is gone. */
static void collect_files(struct memdisk *m)
{
    for (int f = 0; f < FILES_MAX; f++) {
        bool held = m->file[f] == NULL || handles_hold(m, f);

        for (unsigned i = 0; i <= m->changes; i++)
            held = held || names_hold(&m->history[i], f);
        if (!held) {
            memfile_destroy(m->file[f]);
            m->file[f] = NULL;
        }
    }
}

/* The seen names have changed. Past the room for it the oldest changes last. */
static void names_changed(struct memdisk *m)
{
    if (m->changes == NAME_CHANGES_MAX)
        memmove(&m->history[0], &m->history[1], m->changes * sizeof(m->history[0]));
    else
        m->changes++;
    m->history[m->changes] = m->seen;
    collect_files(m);
}

static void names_last(struct memdisk *m, unsigned which)
{
    m->history[0] = m->history[which];
    m->changes = 0;
    m->seen = m->history[0];
    collect_files(m);
}

static int name_create(struct memdisk *m, const char *text)
{
    struct name *n = name_find(&m->seen, "");
    int slot = 0;

    while (slot < FILES_MAX && m->file[slot])
        slot++;
    if (!n || slot == FILES_MAX || strlen(text) >= NAME_SIZE)
        return set_errno(ENOSPC);
    m->file[slot] = memfile_create();
    strcpy(n->text, text);
    n->file = slot;
    names_changed(m);
    return slot;
}

/* Count a changing operation. The one that the power fails at is begun all the same. */
static bool power_fails(struct memdisk *m)
{
    m->operations++;
    if (m->power_left != UINT_MAX && m->power_left-- == 0) {
        m->power_left = 0;
        m->power_off = true;
    }
    return m->power_off;
}

static struct memfile *file_of(struct memdisk *m, int handle)
{
    if (m->power_off) {
        errno = EIO;
        return NULL;
    }
    if (handle < 0 || handle >= HANDLES_MAX || m->handle[handle] < 0) {
        errno = EBADF;
        return NULL;
    }
    return m->file[m->handle[handle]];
}

static int mem_lock(struct disk *d, struct err *e)
{
    struct memdisk *m = memdisk_of(d);

    if (m->locked)
        return err_set(e, "state directory is in use by another process");
    m->locked = true;
    return 0;
}

static void mem_unlock(struct disk *d)
{
    memdisk_of(d)->locked = false;
}

static int mem_open(struct disk *d, const char *name, bool create)
{
    struct memdisk *m = memdisk_of(d);
    struct name *n = name_find(&m->seen, name);
    int file, handle = 0;

    if (m->power_off)
        return set_errno(EIO);
    if (!n && !create)
        return set_errno(ENOENT);
    while (handle < HANDLES_MAX && m->handle[handle] >= 0)
        handle++;
    if (handle == HANDLES_MAX)
        return set_errno(EMFILE);
    file = n ? n->file : name_create(m, name);
    if (file < 0 || (!n && power_fails(m)))
        return file < 0 ? -1 : set_errno(EIO);
    m->handle[handle] = file;
    return handle;
}

static int mem_close(struct disk *d, int handle)
{
    struct memdisk *m = memdisk_of(d);

    if (handle < 0 || handle >= HANDLES_MAX || m->handle[handle] < 0)
        return set_errno(EBADF);
    m->handle[handle] = -1;
    collect_files(m);
    return 0;
}

static int64_t mem_size(struct disk *d, int handle)
{
    struct memfile *f = file_of(memdisk_of(d), handle);

    return f ? (int64_t)f->seen.size : -1;
}

static int64_t mem_read(struct disk *d, int handle, void *data, size_t size,
                        uint64_t at)
{
    struct memdisk *m = memdisk_of(d);
    struct memfile *f = file_of(m, handle);

    if (!f)
        return -1;
    if (at >= f->seen.size)
        return 0;
    if (size > f->seen.size - at)
        size = f->seen.size - at;
    if (size > m->chunk)
        size = m->chunk;
    memcpy(data, f->seen.data + at, size);
    return (int64_t)size;
}

/* Allocate up to `end`, or as far as there is room. Returns how far the file may go. */
static size_t allocate_room(struct memdisk *m, struct memfile *f, size_t end)
{
    size_t others = memdisk_used(m) - f->blocks_end;
    size_t bound = m->room > others ? (m->room - others) / MEMFILE_BLOCK * MEMFILE_BLOCK
                                    : 0;
    size_t want = memfile_blocks(end);

    if (want > f->blocks_end)
        f->blocks_end = want <= bound           ? want
                        : bound > f->blocks_end ? bound
                                                : f->blocks_end;
    return end < f->blocks_end ? end : f->blocks_end;
}

static int64_t mem_write(struct disk *d, int handle, const void *data, size_t size,
                         uint64_t at)
{
    struct memdisk *m = memdisk_of(d);
    struct memfile *f = file_of(m, handle);
    size_t end;

    if (!f)
        return -1;
    if (size > m->chunk)
        size = m->chunk;
    end = allocate_room(m, f, at + size);
    if (end <= at)
        return set_errno(ENOSPC);
    size = end - at;
    memfile_write(f, data, size, at);
    return power_fails(m) ? set_errno(EIO) : (int64_t)size;
}

static int mem_reserve(struct disk *d, int handle, uint64_t at, uint64_t size)
{
    struct memdisk *m = memdisk_of(d);
    struct memfile *f = file_of(m, handle);
    size_t old;

    if (!f)
        return -1;
    old = f->blocks_end;
    if (allocate_room(m, f, at + size) == at + size)
        return 0;
    f->blocks_end = old;
    return set_errno(ENOSPC);
}

static int mem_truncate(struct disk *d, int handle, uint64_t size)
{
    struct memdisk *m = memdisk_of(d);
    struct memfile *f = file_of(m, handle);

    if (!f)
        return -1;
    memfile_truncate(f, size);
    return power_fails(m) ? set_errno(EIO) : 0;
}

static int mem_sync(struct disk *d, int handle)
{
    struct memdisk *m = memdisk_of(d);
    struct memfile *f = file_of(m, handle);

    if (!f || power_fails(m))
        return set_errno(f ? EIO : errno);
    if (m->fail_next_sync) {
        m->fail_next_sync = false;
        memfile_sync_failed(f);
        return set_errno(EIO);
    }
    memfile_sync(f);
    return 0;
}

static int mem_replace(struct disk *d, const char *from, const char *to)
{
    struct memdisk *m = memdisk_of(d);
    struct name *n = name_find(&m->seen, from);
    struct name *old = name_find(&m->seen, to);

    if (m->power_off)
        return set_errno(EIO);
    if (!n)
        return set_errno(ENOENT);
    if (old)
        old->text[0] = '\0';
    strcpy(n->text, to);
    names_changed(m);
    if (power_fails(m))
        return set_errno(EIO);
    names_last(m, m->changes);
    return 0;
}

static int mem_remove(struct disk *d, const char *name)
{
    struct memdisk *m = memdisk_of(d);
    struct name *n = name_find(&m->seen, name);

    if (m->power_off)
        return set_errno(EIO);
    if (!n)
        return set_errno(ENOENT);
    n->text[0] = '\0';
    names_changed(m);
    return power_fails(m) ? set_errno(EIO) : 0;
}

static int mem_sync_names(struct disk *d)
{
    struct memdisk *m = memdisk_of(d);

    if (m->power_off || power_fails(m))
        return set_errno(EIO);
    names_last(m, m->changes);
    return 0;
}

static void mem_destroy(struct disk *d)
{
    memdisk_destroy(memdisk_of(d));
}

static const struct disk_ops memdisk_ops = {
    .lock = mem_lock,
    .unlock = mem_unlock,
    .open = mem_open,
    .close = mem_close,
    .size = mem_size,
    .read = mem_read,
    .write = mem_write,
    .reserve = mem_reserve,
    .truncate = mem_truncate,
    .sync = mem_sync,
    .replace = mem_replace,
    .remove = mem_remove,
    .sync_names = mem_sync_names,
    .destroy = mem_destroy,
};

static void reset_handles(struct memdisk *m)
{
    for (int i = 0; i < HANDLES_MAX; i++)
        m->handle[i] = -1;
    m->locked = false;
    m->power_off = false;
    m->fail_next_sync = false;
    m->power_left = UINT_MAX;
    m->chunk = SIZE_MAX;
    collect_files(m);
}

struct memdisk *memdisk_create(void)
{
    struct memdisk *m = xcalloc(1, sizeof(*m));

    m->disk.ops = &memdisk_ops;
    m->room = SIZE_MAX;
    reset_handles(m);
    return m;
}

void memdisk_destroy(struct memdisk *m)
{
    if (!m)
        return;
    for (int i = 0; i < FILES_MAX; i++)
        if (m->file[i])
            memfile_destroy(m->file[i]);
    free(m);
}

struct disk *memdisk_disk(struct memdisk *m)
{
    return &m->disk;
}

void memdisk_kill(struct memdisk *m)
{
    reset_handles(m);
    for (int i = 0; i < FILES_MAX; i++)
        if (m->file[i])
            memfile_forget_lost(m->file[i]);
}

void memdisk_crash(struct memdisk *m, uint64_t seed)
{
    reset_handles(m);
    names_last(m, memfile_random(&seed, m->changes + 1));
    for (int i = 0; i < FILES_MAX; i++)
        if (m->file[i])
            memfile_crash(m->file[i], &seed);
}

void memdisk_cut_power_after(struct memdisk *m, unsigned operations)
{
    m->power_left = operations;
}

unsigned memdisk_operations(const struct memdisk *m)
{
    return m->operations;
}

void memdisk_fail_next_sync(struct memdisk *m)
{
    m->fail_next_sync = true;
}

void memdisk_set_room(struct memdisk *m, size_t bytes)
{
    m->room = bytes;
}

/* A file without a name gives its room back when its last handle is closed. */
size_t memdisk_used(const struct memdisk *m)
{
    size_t used = 0;

    for (int f = 0; f < FILES_MAX; f++)
        if (names_hold(&m->seen, f) || handles_hold(m, f))
            used += m->file[f]->blocks_end;
    return used;
}

void memdisk_set_chunk(struct memdisk *m, size_t bytes)
{
    m->chunk = bytes;
}

const uint8_t *memdisk_get(const struct memdisk *m, const char *name, size_t *size)
{
    for (int i = 0; i < FILES_MAX; i++) {
        if (strcmp(m->seen.name[i].text, name) == 0) {
            const struct memfile_bytes *b = &m->file[m->seen.name[i].file]->seen;

            *size = b->size;
            return b->data ? b->data : (const uint8_t *)"";
        }
    }
    return NULL;
}

void memdisk_put(struct memdisk *m, const char *name, const void *data, size_t size)
{
    struct name *n = name_find(&m->seen, name);
    struct memfile *f = m->file[n ? n->file : name_create(m, name)];

    names_last(m, m->changes);
    memfile_put(f, data, size);
}
