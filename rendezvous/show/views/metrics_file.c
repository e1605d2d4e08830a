/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/metrics_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/views/limits.h"

struct metrics_file {
    char *path, *beside;
    void (*view)(void *arg, struct metrics_view *view);
    void *arg;
    bool failing;
    struct loop_timer timer;
};

/* A link or a file that has the name already is removed, not written to. The mode does
 * not depend on the umask, because node_exporter runs as another user. */
static FILE *open_beside(const struct metrics_file *f)
{
    int fd;

    (void)unlink(f->beside);
    fd = open(f->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return NULL;
    (void)!fchmod(fd, 0644);
    return fdopen(fd, "w");
}

/* 0, or an errno value. */
static int write_beside(const struct metrics_file *f, FILE *out)
{
    struct metrics_view view = { .registry = NULL };
    int why = 0;

    f->view(f->arg, &view);
    errno = 0;
    metrics_write(&view, out);
    if (ferror(out))
        why = errno ? errno : EIO;
    if (fclose(out) != 0 && !why)
        why = errno;
    return why;
}

static int replace_file(const struct metrics_file *f)
{
    FILE *out = open_beside(f);
    int why = out ? write_beside(f, out) : errno;

    if (!why && rename(f->beside, f->path) < 0)
        why = errno;
    if (why && out)
        (void)unlink(f->beside);
    return why;
}

/* A device or a pipe would be gone for all who use it: root may replace /dev/null. */
static bool is_replaceable(const struct metrics_file *f)
{
    struct stat st;

    return stat(f->path, &st) < 0 || S_ISREG(st.st_mode);
}

static void metrics_file_write(struct metrics_file *f)
{
    bool may = is_replaceable(f);
    int why = may ? replace_file(f) : 0;

    if ((why || !may) && !f->failing)
        log_warn("--metrics-file %s: %s; trying again every %d s", f->path,
                 may ? strerror(why) : "it is no regular file", METRICS_FILE_MS / 1000);
    f->failing = why || !may;
}

static void on_file_timer(void *arg)
{
    struct metrics_file *f = arg;

    metrics_file_write(f);
    loop_timer_arm(&f->timer, clock_ms() + METRICS_FILE_MS);
}

struct metrics_file *
metrics_file_start(struct loop *loop, const char *path,
                   void (*view)(void *arg, struct metrics_view *view), void *arg)
{
    struct metrics_file *f = xcalloc(1, sizeof(*f));

    f->path = xstrdup(path);
    f->beside = xasprintf("%s.new", path);
    f->view = view;
    f->arg = arg;
    loop_timer_init(&f->timer, loop, on_file_timer, f);
    loop_timer_arm(&f->timer, 0);
    return f;
}

void metrics_file_end(struct metrics_file *f)
{
    if (!f)
        return;
    metrics_file_write(f);
    loop_timer_fini(&f->timer);
    free(f->path);
    free(f->beside);
    free(f);
}
