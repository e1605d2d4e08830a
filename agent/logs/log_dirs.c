/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"

#define NAME_TRIES 16
#define RANDOM_LETTERS 8
#define ATTEMPT_DEPTH 2 /* an attempt and its ranks */
#define FOLDER (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

struct log_dirs {
    char *base, *name, *path; /* log-dir; the run's folder in it; both joined */
    int base_fd, run_fd, attempt_fd;
    mode_t mode; /* of files */
    bool mode_is_chosen;
    bool temporary, empty_removed;
    uint64_t attempt;
    uint32_t workers;
    uint32_t keep, later_count; /* 0: all are kept; attempts begun after the first */
    uint64_t *later;            /* the newest `keep` of them, in a ring */
    bool has_first, has_old;
    uint64_t old; /* the attempt that goes next, once those who follow have read it */
};

/* Those who may read the files may read their folder. */
static mode_t folder_mode(const struct log_dirs *d)
{
    return d->mode | (d->mode & 0444) >> 2;
}

/* A mode that the user chose holds whatever the umask. The set-group-ID bit stays,
 * which a folder of a group passes on. Best effort: some file systems have no modes. */
static void apply_mode(const struct log_dirs *d, int fd, mode_t mode)
{
    struct stat st;

    if (d->mode_is_chosen && fstat(fd, &st) == 0)
        (void)!fchmod(fd, mode | (st.st_mode & S_ISGID));
}

static int open_folder_at(const struct log_dirs *d, int dir, const char *name)
{
    int fd = openat(dir, name, FOLDER | O_NOFOLLOW);

    if (fd >= 0)
        apply_mode(d, fd, folder_mode(d));
    return fd;
}

/* A run id may be any text, a folder name may not. */
static char *make_folder_name(const char *run_id)
{
    char *name = xstrdup(*run_id ? run_id : "none");
    size_t n;

    for (char *c = name; *c; c += n ? n : 1) {
        n = text_printable_size(c, strlen(c));
        if (*c == '/' || n == 0)
            *c = '_';
    }
    if (*name == '.')
        *name = '_';
    return name;
}

/* As mkdir -p. Existing parts may be links: the user chose the path. */
static int make_folders(const char *path, struct err *e)
{
    char *copy = xstrdup(path);
    int rc = 0;

    for (char *slash = copy; rc == 0 && slash;) {
        int why;

        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        why = mkdir(copy, 0777) < 0 ? errno : 0;
        if (why && why != EEXIST && access(copy, F_OK) < 0)
            rc = err_set_errno(e, why, "cannot make folder %s", copy);
        if (slash)
            *slash = '/';
    }
    free(copy);
    return rc;
}

int log_dirs_prepare(const char *log_dir, struct err *e)
{
    int fd, rc;

    if (make_folders(log_dir, e) < 0)
        return -1;
    fd = open(log_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 ? -1 : faccessat(fd, ".", W_OK | X_OK, AT_EACCESS);
    if (rc < 0)
        err_set_errno(e, errno, "%s", log_dir);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int open_log_dir(struct log_dirs *d, const char *log_dir, struct err *e)
{
    if (make_folders(log_dir, e) < 0)
        return -1;
    d->base = realpath(log_dir, NULL);
    d->base_fd = d->base ? open(d->base, FOLDER) : -1;
    return d->base_fd < 0 ? err_set_errno(e, errno, "log folder %s", log_dir) : 0;
}

/* It may exist because an earlier try failed; then it is ours. */
static int open_tmpdir(struct log_dirs *d, struct err *e)
{
    struct stat st;

    d->base = run_tmpdir_path(run_tmpdir_tag());
    if (mkdir(d->base, 0700) < 0 && errno != EEXIST)
        return err_set_errno(e, errno, "cannot make folder %s", d->base);
    d->base_fd = open_folder_at(d, AT_FDCWD, d->base);
    if (d->base_fd < 0 || fstat(d->base_fd, &st) < 0)
        return err_set_errno(e, errno, "log folder %s", d->base);
    if (st.st_uid != geteuid())
        return err_set(e, "log folder %s belongs to another user", d->base);
    return 0;
}

/* Makes a new folder, so that no other user can have put anything in it. */
static int make_run_folder(struct log_dirs *d, const char *run_id, struct err *e)
{
    char *stem = make_folder_name(run_id), random[RANDOM_LETTERS + 1];
    int rc = -1;

    for (int i = 0; i < NAME_TRIES && rc < 0; i++) {
        run_tmpdir_random(random, RANDOM_LETTERS);
        free(d->name);
        d->name = xasprintf("%s_%s", stem, random);
        rc = mkdirat(d->base_fd, d->name, folder_mode(d));
        if (rc < 0 && errno != EEXIST)
            break;
    }
    free(stem);
    if (rc == 0)
        d->run_fd = open_folder_at(d, d->base_fd, d->name);
    if (d->run_fd < 0)
        return err_set_errno(e, errno, "cannot make folder %s/%s", d->base, d->name);
    d->path = xasprintf("%s/%s", d->base, d->name);
    return 0;
}

/* Replaces `latest-<host>` in one step, so that it always points to a run. */
static void update_latest_link(const struct log_dirs *d)
{
    char host[HOST_NAME_MAX_BYTES + 1] = "", random[RANDOM_LETTERS + 1];
    char *link, *fresh;

    if (gethostname(host, sizeof(host) - 1) < 0)
        snprintf(host, sizeof(host), "localhost");
    run_tmpdir_random(random, RANDOM_LETTERS);
    link = xasprintf("latest-%s", host);
    fresh = xasprintf(".%s-%s", link, random);
    if (symlinkat(d->name, d->base_fd, fresh) == 0 &&
        renameat(d->base_fd, fresh, d->base_fd, link) < 0) {
        log_debug("%s/%s: %s", d->base, link, strerror(errno));
        unlinkat(d->base_fd, fresh, 0);
    }
    free(link);
    free(fresh);
}

struct log_dirs *log_dirs_create(const char *log_dir, const char *run_id, mode_t mode,
                                 struct err *e)
{
    struct log_dirs *d = xcalloc(1, sizeof(*d));

    d->temporary = !log_dir;
    d->mode = mode ? mode : 0600;
    d->mode_is_chosen = mode != 0;
    d->base_fd = d->run_fd = d->attempt_fd = -1;
    if ((log_dir ? open_log_dir(d, log_dir, e) : open_tmpdir(d, e)) < 0 ||
        make_run_folder(d, run_id, e) < 0) {
        log_dirs_destroy(d);
        return NULL;
    }
    if (!d->temporary)
        update_latest_link(d);
    return d;
}

const char *log_dirs_path(const struct log_dirs *d)
{
    return d->path;
}

static char *attempt_name(uint64_t attempt, char *buf, size_t size)
{
    snprintf(buf, size, "attempt_%" PRIu64, attempt);
    return buf;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* In a temporary tree, removes the empty folders of the current attempt. */
static void remove_empty_attempt(const struct log_dirs *d)
{
    char name[32];

    if (d->attempt_fd < 0 || !d->temporary)
        return;
    for (uint32_t i = 0; i < d->workers; i++) {
        snprintf(name, sizeof(name), "%" PRIu32, i);
        unlinkat(d->attempt_fd, name, AT_REMOVEDIR);
    }
    unlinkat(d->run_fd, attempt_name(d->attempt, name, sizeof(name)), AT_REMOVEDIR);
}

void log_dirs_remove_empty(struct log_dirs *d)
{
    if (!d || !d->temporary || d->empty_removed)
        return;
    d->empty_removed = true;
    remove_empty_attempt(d);
    if (d->name)
        unlinkat(d->base_fd, d->name, AT_REMOVEDIR);
    if (d->base)
        rmdir(d->base);
}

void log_dirs_destroy(struct log_dirs *d)
{
    int saved_errno = errno;

    if (!d)
        return;
    log_dirs_drop_old(d);
    log_dirs_remove_empty(d);
    close_fd(&d->attempt_fd);
    close_fd(&d->run_fd);
    close_fd(&d->base_fd);
    free(d->later);
    free(d->base);
    free(d->name);
    free(d->path);
    free(d);
    errno = saved_errno;
}

/* Returns the folder's descriptor, or -1. */
static int make_folder_at(const struct log_dirs *d, int dir, const char *name)
{
    if (mkdirat(dir, name, folder_mode(d)) < 0 && errno != EEXIST)
        return -1;
    return open_folder_at(d, dir, name);
}

char *log_dirs_file_path(const struct log_dirs *d, uint32_t local_rank,
                         const char *name)
{
    if (local_rank == LOG_DIRS_NODE)
        return xasprintf("%s/attempt_%" PRIu64 "/%s", d->path, d->attempt, name);
    return xasprintf("%s/attempt_%" PRIu64 "/%" PRIu32 "/%s", d->path, d->attempt,
                     local_rank, name);
}

static int set_path_error(const struct log_dirs *d, uint32_t local_rank,
                          const char *name, struct err *e)
{
    int errnum = errno;
    char *path = log_dirs_file_path(d, local_rank, name);

    err_set_errno(e, errnum, "cannot make %s", path);
    free(path);
    return -1;
}

void log_dirs_keep(struct log_dirs *d, uint32_t count)
{
    d->keep = count;
    d->later = xrealloc(d->later, (count + 1) * sizeof(*d->later));
}

/* The first attempt stays: it shows how it all began. */
static void note_attempt(struct log_dirs *d)
{
    if (!d->keep)
        return;
    if (!d->has_first) {
        d->has_first = true;
        return;
    }
    log_dirs_drop_old(d);
    if (d->later_count++ >= d->keep) {
        d->has_old = true;
        d->old = d->later[(d->later_count - 1) % d->keep];
    }
    d->later[(d->later_count - 1) % d->keep] = d->attempt;
}

void log_dirs_drop_old(struct log_dirs *d)
{
    char name[32];

    if (d && d->has_old)
        run_tmpdir_remove_at(d->run_fd, attempt_name(d->old, name, sizeof(name)),
                             ATTEMPT_DEPTH, true);
    if (d)
        d->has_old = false;
}

int log_dirs_begin(struct log_dirs *d, uint64_t attempt, uint32_t workers,
                   struct err *e)
{
    char name[32];

    remove_empty_attempt(d);
    close_fd(&d->attempt_fd);
    d->attempt = attempt;
    d->workers = workers;
    attempt_name(attempt, name, sizeof(name));
    d->attempt_fd = make_folder_at(d, d->run_fd, name);
    if (d->attempt_fd < 0)
        return set_path_error(d, LOG_DIRS_NODE, "", e);
    note_attempt(d);
    for (uint32_t i = 0; i < workers; i++) {
        int fd;

        snprintf(name, sizeof(name), "%" PRIu32, i);
        fd = make_folder_at(d, d->attempt_fd, name);
        if (fd < 0)
            return set_path_error(d, i, "", e);
        close(fd);
    }
    return 0;
}

#define LOG_FILE (O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY)

int log_dirs_folder(const struct log_dirs *d, uint32_t local_rank)
{
    char folder[32] = ".";

    if (local_rank != LOG_DIRS_NODE)
        snprintf(folder, sizeof(folder), "%" PRIu32, local_rank);
    return openat(d->attempt_fd, folder, FOLDER | O_NOFOLLOW);
}

int log_dirs_renew(int folder, const char *name, int old, const char *line, size_t size)
{
    char newer[64], older[64];
    struct stat st;
    int fd;

    snprintf(newer, sizeof(newer), "%s.0", name);
    snprintf(older, sizeof(older), "%s.1", name);
    unlinkat(folder, newer, 0);
    fd = fstat(old, &st) < 0
             ? -1
             : openat(folder, newer, LOG_FILE | O_EXCL, st.st_mode & 0777);
    if (fd < 0)
        return -1;
    if (fchmod(fd, st.st_mode & 0777) == 0 && fd_write_all(fd, line, &size) == 0 &&
        (renameat(folder, name, folder, older) == 0 || errno == ENOENT) &&
        renameat(folder, newer, folder, name) == 0)
        return fd;
    unlinkat(folder, newer, 0);
    close(fd);
    return -1;
}

int log_dirs_open(const struct log_dirs *d, uint32_t local_rank, const char *name,
                  struct err *e)
{
    int dir = log_dirs_folder(d, local_rank), fd;

    fd = dir < 0 ? -1 : openat(dir, name, LOG_FILE, d->mode);
    if (fd < 0)
        set_path_error(d, local_rank, name, e);
    else
        apply_mode(d, fd, d->mode);
    if (dir >= 0)
        close(dir);
    return fd;
}
