/* SPDX-License-Identifier: MIT */
#include "agent/workers/torch_recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/xalloc.h"

struct torch_dump {
    bool asked, written;
    struct timespec before; /* when an earlier dump of the same name was written */
    off_t size;             /* as last seen */
};

struct torch_recorder {
    uint32_t workers, first_rank;
    bool own_pipes; /* they are in our folder */
    char *pipe_prefix, *dump_prefix;
    struct torch_dump dump[];
};

struct torch_recorder *torch_recorder_create(uint32_t workers)
{
    struct torch_recorder *r = xcalloc(1, sizeof(*r) + workers * sizeof(*r->dump));

    r->workers = workers;
    return r;
}

void torch_recorder_destroy(struct torch_recorder *r)
{
    torch_recorder_end(r);
    free(r);
}

static char *pipe_path(const struct torch_recorder *r, uint32_t i)
{
    return xasprintf("%s%" PRIu32 ".pipe", r->pipe_prefix, r->first_rank + i);
}

static char *dump_path(const struct torch_recorder *r, uint32_t i)
{
    return xasprintf("%s%" PRIu32, r->dump_prefix, r->first_rank + i);
}

/* A process in which torch cannot make its FIFO is aborted. */
static bool can_make_pipes(const struct torch_recorder *r)
{
    char *path = pipe_path(r, 0);
    bool can = mkfifo(path, 0600) == 0;

    if (can)
        unlink(path);
    else
        log_debug("no pipes for PyTorch's flight recorder: %s: %s", path,
                  strerror(errno));
    free(path);
    return can;
}

static char *choose_prefix(const char *set, const char *folder, const char *name)
{
    if (set && *set)
        return xstrdup(set);
    return folder ? xasprintf("%s%s", folder, name) : NULL;
}

void torch_recorder_begin(struct torch_recorder *r, const char *folder,
                          uint32_t first_rank)
{
    const char *pipe = getenv(TORCH_RECORDER_PIPE);
    const char *dump = getenv(TORCH_RECORDER_NEW_DUMP);

    if (!r)
        return;
    torch_recorder_end(r);
    memset(r->dump, 0, r->workers * sizeof(*r->dump));
    r->first_rank = first_rank;
    r->own_pipes = !pipe || !*pipe;
    r->pipe_prefix = choose_prefix(pipe, folder, "nccl_");
    r->dump_prefix = choose_prefix(dump && *dump ? dump : getenv(TORCH_RECORDER_DUMP),
                                   folder, "nccl_trace_rank_");
    if (!r->pipe_prefix || !r->dump_prefix || (r->own_pipes && !can_make_pipes(r)))
        torch_recorder_end(r);
}

void torch_recorder_end(struct torch_recorder *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; r->own_pipes && r->pipe_prefix && i < r->workers; i++) {
        char *path = pipe_path(r, i);

        unlink(path);
        free(path);
    }
    free(r->pipe_prefix);
    free(r->dump_prefix);
    r->pipe_prefix = r->dump_prefix = NULL;
}

const char *torch_recorder_pipe_prefix(const struct torch_recorder *r)
{
    return r && r->pipe_prefix ? r->pipe_prefix : "";
}

const char *torch_recorder_dump_prefix(const struct torch_recorder *r)
{
    return r && r->dump_prefix ? r->dump_prefix : "";
}

/* -- at a hang ------------------------------------------------------------------ */

/* False if no process reads it. */
static bool write_byte(const char *path)
{
    int fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct stat st;
    bool written = fd >= 0 && fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode) &&
                   write(fd, "1", 1) == 1;

    if (fd >= 0)
        close(fd);
    return written;
}

bool torch_recorder_ask(struct torch_recorder *r)
{
    bool any = false;

    for (uint32_t i = 0; r && r->pipe_prefix && i < r->workers; i++) {
        struct torch_dump *d = &r->dump[i];
        char *dump = dump_path(r, i), *pipe = pipe_path(r, i);
        struct stat st = { .st_size = 0 };

        *d = (struct torch_dump){ .size = -1 };
        if (stat(dump, &st) == 0)
            d->before = st.st_mtim;
        d->asked = write_byte(pipe);
        any |= d->asked;
        free(dump);
        free(pipe);
    }
    return any;
}

/* The file has been there, as long as it is now, when it was last looked at. */
static bool is_dump_written(const struct torch_recorder *r, uint32_t i,
                            struct torch_dump *d)
{
    char *path = dump_path(r, i);
    struct stat st;
    off_t size = d->size;

    if (stat(path, &st) == 0 && !(st.st_mtim.tv_sec == d->before.tv_sec &&
                                  st.st_mtim.tv_nsec == d->before.tv_nsec))
        d->size = st.st_size;
    free(path);
    return d->size > 0 && d->size == size;
}

uint32_t torch_recorder_awaited(struct torch_recorder *r)
{
    uint32_t awaited = 0;

    for (uint32_t i = 0; r && i < r->workers; i++) {
        struct torch_dump *d = &r->dump[i];

        d->written |= d->asked && r->dump_prefix && is_dump_written(r, i, d);
        awaited += d->asked && !d->written;
    }
    return awaited;
}

char *torch_recorder_describe(const struct torch_recorder *r, char *buf, size_t size)
{
    uint32_t written = 0;

    for (uint32_t i = 0; r && i < r->workers; i++)
        written += r->dump[i].written;
    *buf = '\0';
    if (written)
        snprintf(buf, size,
                 "PyTorch's flight recorder: %" PRIu32 " of %" PRIu32 " ranks in %s*",
                 written, r->workers, torch_recorder_dump_prefix(r));
    return buf;
}
