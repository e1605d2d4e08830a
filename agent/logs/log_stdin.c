/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_stdin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/log.h"

static bool worker_reads(const struct config *c, uint32_t local_rank)
{
    return c->stdin_mode == CONFIG_STDIN_ALL ||
           (c->stdin_mode == CONFIG_STDIN_FIRST && local_rank == 0 &&
            (c->job.max_nodes == 1 || c->rendezvous_fd));
}

static bool stdin_is_stream(void)
{
    struct stat st;

    return fstat(STDIN_FILENO, &st) == 0 &&
           (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

void log_stdin_begin(struct log_stdin *s, const struct config *c)
{
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };

    if (!worker_reads(c, 0))
        return;
    if (!s->begun) {
        s->begun = true;
        s->start = lseek(STDIN_FILENO, 0, SEEK_CUR);
        s->is_over = poll(&p, 1, 0) == 1 && !(p.revents & POLLIN);
    } else if (s->start >= 0) {
        (void)!lseek(STDIN_FILENO, s->start, SEEK_SET);
    } else if (stdin_is_stream() && !s->is_over) {
        log_warn("%s reading standard input where the last attempt stopped: a pipe "
                 "cannot be read again",
                 c->stdin_mode == CONFIG_STDIN_ALL ? "the workers go on"
                                                   : "rank 0 goes on");
    }
}

int log_stdin_open(const struct config *c, uint32_t local_rank, struct err *e)
{
    int fd;

    if (worker_reads(c, local_rank))
        return STDIN_FILENO;
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        err_set_errno(e, errno, "/dev/null");
    return fd;
}
