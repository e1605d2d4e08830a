/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/security/key_memory.h"
#include "rendezvous/common/security/key_path.h"
#include "rendezvous/common/security/limits.h"

/* Not of a Secret's volume, whose files are root's. A group with its user's number is
 * that user's own on most systems; which users others have is not asked: a locked-in
 * crund cannot. */
static void warn_of_group(const char *path, const struct stat *st)
{
    static bool was_warned;

    if (was_warned || !(st->st_mode & S_IRGRP) || st->st_uid != geteuid() ||
        st->st_gid == st->st_uid)
        return;
    was_warned = true;
    log_warn("%s can be read by all users of the group %u (mode %04o): chmod 600 %s",
             path, (unsigned)st->st_gid, (unsigned)(st->st_mode & 07777), path);
}

static int check_key_file(const char *path, const struct stat *st, struct err *e)
{
    unsigned mode = st->st_mode & 07777;

    if (key_path_check_owner(path, st, e) < 0)
        return -1;
    if (mode & (S_IROTH | S_IWOTH | S_IWGRP))
        return err_set(e, "%s can be %s by other users (mode %04o): chmod 600 %s", path,
                       mode & S_IROTH ? "read" : "written", mode, path);
    warn_of_group(path, st);
    if (st->st_size == 0)
        return err_set(e, "%s is empty: crunctl keygen makes a key", path);
    if (st->st_size > KEY_FILE_BYTES_MAX)
        return err_set(e, "%s is not a key file: it has more than %d KiB", path,
                       KEY_FILE_BYTES_MAX / 1024);
    return 0;
}

static int check_repetition(const char *path, int line, const struct key *keys, int n,
                            struct err *e)
{
    for (int i = 0; i < n; i++)
        if (strcmp(keys[i].id, keys[n].id) == 0)
            return err_set(e, "%s:%d: key %s stands there twice", path, line,
                           keys[n].id);
    return 0;
}

/* One line without its end; a CR before the end and blanks around it are skipped. */
static int read_key_line(const char *path, int number, const char *line, size_t size,
                         struct key *keys, int *count, int max, struct err *e)
{
    while (size > 0 && strchr(" \t\r", line[size - 1]) && line[size - 1])
        size--;
    while (size > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        size--;
    }
    if (size == 0 || *line == '#')
        return 0;
    if (*count == max)
        return err_set(e, "%s has more than %d keys", path, max);
    if (key_parse(line, size, &keys[*count], e) < 0)
        return err_wrap(e, "%s:%d", path, number);
    if (check_repetition(path, number, keys, *count, e) < 0)
        return -1;
    (*count)++;
    return 0;
}

int key_file_parse(const char *path, const char *text, size_t size, struct key *keys,
                   int max, struct err *e)
{
    const char *at = text, *end = text + size;
    int count = 0;

    for (int number = 1; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *stop = newline ? newline : end;

        if (read_key_line(path, number, at, (size_t)(stop - at), keys, &count, max, e) <
            0)
            return -1;
        at = stop + 1;
    }
    return count ? count : err_set(e, "%s has no key: crunctl keygen makes one", path);
}

int key_file_read(const char *path, struct key *keys, int max, struct stat *seen,
                  struct err *e)
{
    const size_t room = KEY_FILE_BYTES_MAX + 2;
    int rc, fd;
    char *text;
    ssize_t n;

    memset(seen, 0, sizeof(*seen));
    explicit_bzero(keys, (size_t)max * sizeof(*keys));
    fd = key_path_open(path, seen, e);
    if (fd < 0)
        return -1;
    if (check_key_file(path, seen, e) < 0 || !(text = key_memory_create(room, e))) {
        close(fd);
        return -1;
    }
    n = fd_read_all(fd, text, room);
    if (n < 0)
        rc = err_set_errno(e, errno, "%s", path);
    else
        rc = key_file_parse(path, text, (size_t)n, keys, max, e);
    if (rc < 0)
        explicit_bzero(keys, (size_t)max * sizeof(*keys));
    key_memory_destroy(text, room);
    close(fd);
    return rc;
}

/* The folders of `path` that are missing. */
static int make_key_folders(const char *path, struct err *e)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0700) < 0 && errno != EEXIST)
            return err_set_errno(e, errno, "%s", folder);
        *slash = '/';
    }
    return 0;
}

int key_file_create(const char *path, const struct key *k, struct err *e)
{
    char text[KEY_TEXT_SIZE];
    struct stat st;
    size_t left;
    int fd, errnum, checked;

    if (make_key_folders(path, e) < 0)
        return -1;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return err_set(e,
                       "%s exists, and crunctl keygen replaces no key: add a new "
                       "key to it with \"crunctl keygen - >>\"",
                       path);
    if (fd < 0)
        return err_set_errno(e, errno, "%s", path);
    left = strlen(key_format(k, text));
    errnum = fd_write_all(fd, text, &left);
    explicit_bzero(text, sizeof(text));
    if (errnum == 0 && fsync(fd) < 0 && errno != EINVAL)
        errnum = errno;
    close(fd);
    if (errnum) {
        unlink(path);
        return err_set_errno(e, errnum, "%s", path);
    }
    checked = key_path_open(path, &st, e);
    if (checked < 0) {
        unlink(path);
        return -1;
    }
    close(checked);
    return 0;
}
