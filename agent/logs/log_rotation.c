/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_rotation.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/logs/limits.h"
#include "agent/logs/log_dirs.h"
#include "rendezvous/common/base/fd.h"

#define HEADER_MAX 256

/* The first line tells people what is missing. */
static void begin_next_file(struct log_rotation *f)
{
    char line[HEADER_MAX];
    size_t size = (size_t)snprintf(line, sizeof(line), LOG_NEXT_FILE_LINE,
                                   f->at.written, f->file);
    int fd = log_dirs_renew(f->folder, f->file, f->fd, line, size);

    if (fd < 0) { /* the old one takes as much again */
        f->in_file = 0;
        return;
    }
    (void)dup3(fd, f->fd, O_CLOEXEC);
    close(fd);
    f->in_file = size;
    f->at.part[1] = f->at.part[0];
    f->at.part[0] = log_part_of(f->fd, f->at.written);
}

/* How much is to be written in one call. A file is full at the end of the line that
 * reaches its size. */
static size_t next_part(struct log_rotation *f, const char *data, size_t size)
{
    uint64_t max = f->max_size;
    size_t part = size < WRITER_PART_BYTES ? size : WRITER_PART_BYTES;
    const char *end;

    if (max && f->in_file >= max &&
        (!f->in_line || f->in_file >= max + WRITER_BLOCK_BYTES))
        begin_next_file(f);
    if (!max || f->in_file + part < max)
        return part;
    end = f->in_file < max ? data + (max - f->in_file) - 1 : data;
    end = memchr(end, '\n', (size_t)(data + part - end));
    return end ? (size_t)(end + 1 - data) : part;
}

/* The user may have truncated the file: its content now begins later in the
 * stream. */
static void note_written(struct log_rotation *f, size_t size)
{
    off_t end = f->is_file && size > 0 ? lseek(f->fd, 0, SEEK_CUR) : -1;
    struct log_part *part = &f->at.part[0];
    uint64_t shift;

    f->in_file += size;
    f->at.written += size;
    if (end < 0)
        return;
    shift = f->at.written - (uint64_t)end;
    if ((int64_t)(shift - part->shift) > 0)
        part->start = shift;
    part->shift = shift;
}

int log_rotation_mark(struct log_rotation *f, const char *mark, size_t *size)
{
    size_t whole = *size;
    int errnum = fd_write_all(f->fd, mark, size);

    note_written(f, whole - *size);
    return errnum;
}

int log_rotation_write(struct log_rotation *f, const char *data, size_t *size,
                       uint64_t *written)
{
    int errnum = 0;

    while (!errnum && *size > 0) {
        size_t part = next_part(f, data, *size), left = part;

        errnum = fd_write_all(f->fd, data, &left);
        data += part - left;
        note_written(f, part - left);
        if (left < part)
            f->in_line = data[-1] != '\n';
        *size -= part - left;
        __atomic_fetch_add(written, part - left, __ATOMIC_RELAXED);
    }
    return errnum;
}
