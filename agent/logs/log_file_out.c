/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_file_out.h"

#include <unistd.h>

#include "agent/logs/limits.h"
#include "rendezvous/common/base/fd.h"

/* The user may have truncated the file: its content now begins later in the
 * stream. */
static void note_written(struct log_file_out *f, size_t size)
{
    off_t end = f->is_file && size > 0 ? lseek(f->fd, 0, SEEK_CUR) : -1;
    uint64_t shift;

    f->at.written += size;
    if (end < 0)
        return;
    shift = f->at.written - (uint64_t)end;
    if ((int64_t)(shift - f->at.shift) > 0)
        f->at.start = shift;
    f->at.shift = shift;
}

int log_file_out_mark(struct log_file_out *f, const char *mark, size_t *size)
{
    size_t whole = *size;
    int errnum = fd_write_all(f->fd, mark, size);

    note_written(f, whole - *size);
    return errnum;
}

int log_file_out_write(struct log_file_out *f, const char *data, size_t *size,
                       uint64_t *written)
{
    int errnum = 0;

    while (!errnum && *size > 0) {
        size_t part = *size < WRITER_PART_BYTES ? *size : WRITER_PART_BYTES;
        size_t left = part;

        errnum = fd_write_all(f->fd, data, &left);
        data += part - left;
        note_written(f, part - left);
        *size -= part - left;
        __atomic_fetch_add(written, part - left, __ATOMIC_RELAXED);
    }
    return errnum;
}
