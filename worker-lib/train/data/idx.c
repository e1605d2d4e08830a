/* SPDX-License-Identifier: MIT */
#include "worker-lib/train/data/idx.h"

#include <endian.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#include "rendezvous/common/base/xalloc.h"

#define MAGIC_BYTES 0x0800u /* unsigned bytes; the lowest eight bits: dimensions */
#define COUNT_MAX (1u << 21)

/* An open file, and its name for messages. */
struct idx_file {
    gzFile file;
    char path[PATH_MAX];
};

static int idx_open(struct idx_file *f, const char *folder, const char *name,
                    struct err *e)
{
    static const char *const endings[] = { "", ".gz" };

    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        snprintf(f->path, sizeof(f->path), "%s/%s%s", folder, name, endings[i]);
        errno = 0;
        f->file = gzopen(f->path, "rb");
        if (f->file)
            return 0;
        if (errno != ENOENT)
            return err_set_errno(e, errno ? errno : ENOMEM, "%s", f->path);
    }
    return err_set(e, "there is no %s or %s.gz in %s", name, name, folder);
}

static int idx_read_bytes(struct idx_file *f, void *to, size_t size, struct err *e)
{
    int got = gzread(f->file, to, (unsigned)size), code;

    if (got >= 0 && (size_t)got == size)
        return 0;
    if (got >= 0)
        return err_set(e, "%s is cut short", f->path);
    return err_set(e, "%s is damaged: %s", f->path, gzerror(f->file, &code));
}

static int idx_read_header(struct idx_file *f, size_t side, uint32_t *count,
                           struct err *e)
{
    unsigned numbers = side ? 4 : 2;
    uint32_t head[4], expected = MAGIC_BYTES + numbers - 1;

    if (idx_read_bytes(f, head, numbers * sizeof(*head), e) < 0)
        return -1;
    for (unsigned i = 0; i < numbers; i++)
        head[i] = be32toh(head[i]);
    if (head[0] != expected)
        return err_set(e, "%s is not a file of %s: it begins with %08x, not %08x",
                       f->path, side ? "images" : "labels", head[0], expected);
    if (head[1] == 0 || head[1] > COUNT_MAX)
        return err_set(e, "%s announces %u items, not 1 to %u", f->path, head[1],
                       COUNT_MAX);
    if (side && (head[2] != side || head[3] != side))
        return err_set(e, "%s has images of %u by %u pixels, not %zu by %zu", f->path,
                       head[3], head[2], side, side);
    *count = head[1];
    return 0;
}

int idx_read(const char *folder, const char *name, size_t side, struct idx *idx,
             struct err *e)
{
    size_t size = side ? side * side : 1;
    struct idx_file f;
    uint32_t count = 0;
    int rc;

    *idx = (struct idx){ 0 };
    if (idx_open(&f, folder, name, e) < 0)
        return -1;
    rc = idx_read_header(&f, side, &count, e);
    if (rc == 0) {
        *idx = (struct idx){ xmalloc(count * size), count };
        rc = idx_read_bytes(&f, idx->bytes, count * size, e);
    }
    gzclose(f.file);
    return rc;
}
