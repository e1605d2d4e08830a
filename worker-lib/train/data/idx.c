/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data/idx.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include "rendezvous/common/base/xalloc.h"

#define MAGIC_BYTES 0x0800u /* unsigned bytes; the lowest eight bits: dimensions */
#define COUNT_MAX (1u << 24)

/* An open file, and its name for messages. */
struct idx_file {
    gzFile file;
    char path[PATH_MAX];
};

static int idx_open(struct idx_file *s, const char *folder, const char *name,
                    struct err *e)
{
    static const char *const endings[] = { "", ".gz" };

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        snprintf(s->path, sizeof(s->path), "%s/%s%s", folder, name, endings[i]);
        errno = 0;
        s->file = gzopen(s->path, "rb");
        if (s->file)
            return 0;
        if (errno != ENOENT)
            return err_set_errno(e, errno ? errno : ENOMEM, "%s", s->path);
    }
    return err_set(e, "there is no %s or %s.gz in %s", name, name, folder);
}

/* *got is less than size at the end of the file, which is no error here. */
static int idx_read_bytes(struct idx_file *s, void *to, size_t size, size_t *got,
                          struct err *e)
{
    int code = Z_OK, n = 0;

    *got = 0;
    while (*got < size) {
        size_t chunk = size - *got < (1u << 20) ? size - *got : 1u << 20;

        n = gzread(s->file, (char *)to + *got, (unsigned)chunk);
        if (n <= 0)
            break;
        *got += (size_t)n;
    }
    if (n < 0) {
        int system = errno;
        const char *why = gzerror(s->file, &code);

        if (code == Z_ERRNO)
            return err_set_errno(e, system, "%s", s->path);
        if (code != Z_BUF_ERROR)
            return err_set(e, "%s is damaged: %s", s->path, why);
    }
    return 0;
}

static int idx_read_number(struct idx_file *s, uint32_t *number, struct err *e)
{
    unsigned char b[4];
    size_t got;

    if (idx_read_bytes(s, b, sizeof(b), &got, e) < 0)
        return -1;
    if (got < sizeof(b))
        return err_set(e, "%s is cut short: it ends in its header", s->path);
    *number = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    return 0;
}

static int idx_read_header(struct idx_file *s, size_t side, uint32_t *count,
                           struct err *e)
{
    uint32_t magic = 0, expected = MAGIC_BYTES + (side ? 3 : 1), rows = 0, columns = 0;

    if (idx_read_number(s, &magic, e) < 0)
        return -1;
    if (magic != expected)
        return err_set(e, "%s is not a file of %s: it begins with %08x, not %08x",
                       s->path, side ? "images" : "labels", magic, expected);
    if (idx_read_number(s, count, e) < 0)
        return -1;
    if (*count == 0 || *count > COUNT_MAX)
        return err_set(e, "%s announces %u items, not 1 to %u", s->path, *count,
                       COUNT_MAX);
    if (side == 0)
        return 0;
    if (idx_read_number(s, &rows, e) < 0 || idx_read_number(s, &columns, e) < 0)
        return -1;
    if (rows != side || columns != side)
        return err_set(e, "%s has images of %u by %u pixels, not %zu by %zu", s->path,
                       columns, rows, side, side);
    return 0;
}

static int idx_read_items(struct idx_file *s, size_t item, struct idx *idx,
                          struct err *e)
{
    size_t size = idx->count * item, got, more;
    char beyond;

    idx->bytes = xmalloc(size);
    if (idx_read_bytes(s, idx->bytes, size, &got, e) < 0)
        return -1;
    if (got < size)
        return err_set(e,
                       "%s is cut short: its header announces %zu items and it has %zu",
                       s->path, idx->count, got / item);
    if (idx_read_bytes(s, &beyond, 1, &more, e) < 0)
        return -1;
    if (more > 0)
        return err_set(e, "%s has more than the %zu items that its header announces",
                       s->path, idx->count);
    return 0;
}

int idx_read(const char *folder, const char *name, size_t side, struct idx *idx,
             struct err *e)
{
    struct idx_file s;
    uint32_t count = 0;
    int rc;

    *idx = (struct idx){ 0 };
    if (idx_open(&s, folder, name, e) < 0)
        return -1;
    rc = idx_read_header(&s, side, &count, e);
    if (rc == 0) {
        idx->count = count;
        rc = idx_read_items(&s, side ? side * side : 1, idx, e);
    }
    if (rc < 0) {
        free(idx->bytes);
        *idx = (struct idx){ 0 };
    }
    gzclose(s.file);
    return rc;
}
