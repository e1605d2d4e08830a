/* SPDX-License-Identifier: MIT */
#include "agent/workers/stack_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

struct stack_files {
    uint32_t count;
    int fd[]; /* -1: none */
};

struct stack_files *stack_files_create(uint32_t workers)
{
    struct stack_files *s = xmalloc(sizeof(*s) + workers * sizeof(*s->fd));

    s->count = workers;
    for (uint32_t i = 0; i < workers; i++)
        s->fd[i] = -1;
    return s;
}

static void close_stack_file(struct stack_files *s, uint32_t local_rank)
{
    if (s->fd[local_rank] >= 0)
        close(s->fd[local_rank]);
    s->fd[local_rank] = -1;
}

void stack_files_destroy(struct stack_files *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->count; i++)
        close_stack_file(s, i);
    free(s);
}

char *stack_files_renew(struct stack_files *s, uint32_t local_rank, char *buf,
                        size_t size)
{
    static const char name[] = "crun-stacks";
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) /* Linux before 6.3 */
        fd = memfd_create(name, MFD_CLOEXEC);
    if (fd < 0)
        log_debug("no file for stacks: %s", strerror(errno));
    close_stack_file(s, local_rank);
    s->fd[local_rank] = fd;
    *buf = '\0';
    if (fd >= 0)
        snprintf(buf, size, "/proc/%d/fd/%d", (int)getpid(), fd);
    return buf;
}

int stack_files_fd(const struct stack_files *s, uint32_t local_rank)
{
    return s->fd[local_rank];
}
