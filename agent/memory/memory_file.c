/* SPDX-License-Identifier: MIT */
#include "agent/memory/memory_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/memory/limits.h"
#include "rendezvous/common/base/xalloc.h"

struct memory_file *memory_file_open(enum memory_origin origin, uint32_t owner,
                                     uint32_t slot, struct err *e)
{
    struct memory_file *f = xcalloc(1, sizeof(*f));

    f->origin = origin;
    f->owner = owner;
    f->slot = slot;
    f->fd = memfd_create("crun-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* A worker that shortens it would end whoever reads it by a mapping. A descriptor
     * with which it can only be read opens none for writing, by /proc. */
    if (f->fd >= 0 && fchmod(f->fd, 0400) == 0 &&
        fcntl(f->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) == 0 &&
        memory_file_grow(f, MEMORY_HEADER_BYTES, e) == 0)
        return f;
    (void)err_set_errno(e, errno, "memory for a checkpoint");
    memory_file_close(f);
    return NULL;
}

void memory_file_close(struct memory_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f);
}

int memory_file_grow(struct memory_file *f, uint64_t bytes, struct err *e)
{
    struct stat st;

    if (fstat(f->fd, &st) < 0)
        return err_set_errno(e, errno, "memory for a checkpoint");
    f->bytes = (uint64_t)st.st_size;
    if (bytes <= f->bytes)
        return 0;
    if (ftruncate(f->fd, (off_t)bytes) < 0)
        return err_set_errno(e, errno, "memory for a checkpoint");
    f->bytes = bytes;
    return 0;
}

uint64_t memory_file_resident(const struct memory_file *f)
{
    struct stat st;

    return fstat(f->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * 512;
}

bool memory_file_look(struct memory_file *f)
{
    struct memory_header h;
    struct stat st;

    if (fstat(f->fd, &st) == 0 && memory_file_read(f, 0, &h, sizeof(h)) == 0 &&
        memory_header_is_whole(&h, (uint64_t)st.st_size))
        f->header = h;
    else
        f->header = (struct memory_header){ .magic = 0 };
    return f->header.set.world > 0;
}

bool memory_file_is_sound(const struct memory_file *f)
{
    size_t size = memory_slot_bytes(f->header.own_bytes, f->header.shared_bytes);
    void *map = mmap(NULL, size, PROT_READ, MAP_SHARED, f->fd, 0);
    bool is_sound = map != MAP_FAILED;

    if (!is_sound)
        return false;
    (void)madvise(map, size, MADV_DONTDUMP);
    is_sound = memory_sections_are_sound(&f->header, map);
    munmap(map, size);
    return is_sound;
}

void memory_file_set_kept(struct memory_file *f)
{
    uint64_t hash = f->header.header_hash;
    uint32_t kept = 1;

    if (memory_file_look(f) && f->header.header_hash == hash)
        (void)memory_file_write(f, offsetof(struct memory_header, kept), &kept,
                                sizeof(kept));
}

void memory_file_set_held(struct memory_file *f, bool held)
{
    uint32_t word = held;

    (void)memory_file_write(f, MEMORY_HOLD_AT, &word, sizeof(word));
}

void memory_file_drop(struct memory_file *f)
{
    uint32_t state = MEMORY_EMPTY;

    (void)memory_file_write(f, offsetof(struct memory_header, state), &state,
                            sizeof(state));
    f->header = (struct memory_header){ .magic = 0 };
}

bool memory_file_has(const struct memory_file *f, const struct memory_set *set,
                     uint32_t rank, bool shared)
{
    const struct memory_header *h = &f->header;

    if (h->set.world == 0 || !memory_set_equal(&h->set, set))
        return false;
    return shared ? h->shared_bytes > 0
                  : h->rank == rank && !(f->origin != MEMORY_OWN && h->shared_bytes);
}

struct memory_header memory_file_section(const struct memory_file *f, bool shared,
                                         uint64_t *at)
{
    struct memory_header h = f->header;

    if (shared) {
        *at = memory_shared_at(h.own_bytes);
        h.own_bytes = 0;
        h.own_hash = memory_hash("", 0);
    } else {
        *at = MEMORY_HEADER_BYTES;
        h.shared_bytes = h.shared_hash = 0;
    }
    h.kept = 0;
    h.header_hash = memory_header_hash(&h);
    return h;
}

/* -- bytes ------------------------------------------------------------------------- */

int memory_file_read(const struct memory_file *f, uint64_t at, void *data, size_t size)
{
    ssize_t n = pread(f->fd, data, size, (off_t)at);

    if (n >= 0 && n != (ssize_t)size)
        errno = ENODATA;
    return n == (ssize_t)size ? 0 : -1;
}

int memory_file_write(const struct memory_file *f, uint64_t at, const void *data,
                      size_t size)
{
    ssize_t n = pwrite(f->fd, data, size, (off_t)at);

    if (n >= 0 && n != (ssize_t)size)
        errno = ENOSPC;
    return n == (ssize_t)size ? 0 : -1;
}

int memory_file_reader(const struct memory_file *f)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", f->fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}
