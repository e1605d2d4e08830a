/* SPDX-License-Identifier: MIT */
#include "agent/guard/guard_wire.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/bytes.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"

static size_t count_strings(const char *const *list, uint32_t *count)
{
    size_t bytes = 0;

    for (*count = 0; list[*count]; (*count)++)
        bytes += strlen(list[*count]) + 1;
    return bytes;
}

/* Copies the strings to `at` and their offsets to `offsets`. Returns the next free
 * offset. */
static size_t pack_strings(char *base, uint64_t *offsets, size_t at,
                           const char *const *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t size = strlen(list[i]) + 1;

        memcpy(base + at, list[i], size);
        offsets[i] = at;
        at += size;
    }
    offsets[count] = 0;
    return at;
}

int guard_payload_pack(const char *const *argv, const char *const *env,
                       const void *cpus, struct guard_request *request, struct err *e)
{
    size_t strings = count_strings(argv, &request->argc) +
                     count_strings(env, &request->envc);
    size_t table = ((size_t)request->argc + request->envc + 2) * sizeof(uint64_t);
    size_t at = table + bytes_round_up(request->cpus_size, sizeof(uint64_t));
    size_t size = at + strings;
    uint64_t *offsets = xcalloc(1, size);
    char *base = (char *)offsets;
    int fd, errnum;

    if (request->cpus_size > 0)
        memcpy(base + table, cpus, request->cpus_size);
    at = pack_strings(base, offsets, at, argv, request->argc);
    pack_strings(base, offsets + request->argc + 1, at, env, request->envc);
    fd = memfd_create("crun-worker", MFD_CLOEXEC);
    if (fd < 0) {
        err_set_errno(e, errno, "memfd_create");
    } else if ((errnum = fd_write_all(fd, base, &size)) != 0) {
        err_set_errno(e, errnum, "write to a memfd");
        close(fd);
        fd = -1;
    }
    free(offsets);
    return fd;
}

/* Turns offsets into pointers; false if one of them is out of range. */
static bool offsets_to_pointers(char *base, size_t size, uint64_t *offsets,
                                uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (offsets[i] >= size)
            return false;
        offsets[i] = (uint64_t)(uintptr_t)(base + offsets[i]);
    }
    return offsets[count] == 0;
}

int guard_payload_open(struct guard_payload *w, int fd,
                       const struct guard_request *request, struct spawn *spawn)
{
    size_t table = ((size_t)request->argc + request->envc + 2) * sizeof(uint64_t);
    uint64_t *offsets;
    struct stat st;

    static_assert(sizeof(char *) == sizeof(uint64_t), "offsets become pointers");
    if (fstat(fd, &st) < 0)
        return -1;
    w->size = (size_t)st.st_size;
    w->map = mmap(NULL, w->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (w->map == MAP_FAILED)
        return -1;
    offsets = w->map;
    if (request->argc == 0 || w->size < table + request->cpus_size ||
        ((char *)w->map)[w->size - 1] != '\0' ||
        !offsets_to_pointers(w->map, w->size, offsets, request->argc) ||
        !offsets_to_pointers(w->map, w->size, offsets + request->argc + 1,
                             request->envc)) {
        guard_payload_close(w);
        errno = EBADMSG;
        return -1;
    }
    spawn->argv = (char **)offsets;
    spawn->env = (char **)(offsets + request->argc + 1);
    spawn->cpus = (char *)w->map + table;
    spawn->cpus_size = request->cpus_size;
    return 0;
}

void guard_payload_close(struct guard_payload *w)
{
    munmap(w->map, w->size);
}
