/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

void *key_memory_create(size_t size, struct err *e)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);

    if (memory == MAP_FAILED) {
        (void)err_set_errno(e, errno, "no memory for keys");
        return NULL;
    }
    (void)mlock(memory, size);
    (void)madvise(memory, size, MADV_DONTDUMP);
    (void)madvise(memory, size, MADV_WIPEONFORK);
    return memory;
}

void key_memory_destroy(void *memory, size_t size)
{
    if (!memory)
        return;
    explicit_bzero(memory, size);
    munmap(memory, size);
}
