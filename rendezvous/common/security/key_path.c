/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_path.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/security/limits.h"

/* A walk from folder to folder. The folder is open, so that nothing that is renamed
 * meanwhile changes what was checked. */
struct key_walk {
    int folder;
    char done[PATH_MAX]; /* for messages: the way so far, without the last slash */
    char rest[PATH_MAX]; /* what is still to be walked */
    unsigned links;
};

static int set_lookup_error(int errnum, const char *path, struct err *e)
{
    (void)err_set_errno(e, errnum, "%s", path);
    return err_set_code(e, errnum, 0);
}

int key_path_check_owner(const char *what, const struct stat *st, struct err *e)
{
    if (st->st_uid == 0 || st->st_uid == geteuid())
        return 0;
    return err_set(e,
                   "%s belongs to user %u: only root or user %u may own a key and the "
                   "folders above it",
                   what, (unsigned)st->st_uid, (unsigned)geteuid());
}

static int check_key_folder(const char *what, const struct stat *st, struct err *e)
{
    unsigned mode = st->st_mode & 07777;

    if (key_path_check_owner(what, st, e) < 0)
        return -1;
    if (!(mode & (S_IWGRP | S_IWOTH)) || (mode & S_ISVTX))
        return 0;
    return err_set(e,
                   "%s can be written by other users, who could replace the key: "
                   "chmod go-w %s",
                   what, what);
}

/* Continues in `fd`, which it takes over. */
static int enter_folder(struct key_walk *w, int fd, const struct stat *st,
                        struct err *e)
{
    close(w->folder);
    w->folder = fd;
    return check_key_folder(*w->done ? w->done : "/", st, e);
}

static int enter_root(struct key_walk *w, struct err *e)
{
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0) {
        if (fd >= 0)
            close(fd);
        return set_lookup_error(errno, "/", e);
    }
    *w->done = '\0';
    return enter_folder(w, fd, &st, e);
}

/* Takes the next name of the way into name; false at its end. */
static bool walk_take_name(struct key_walk *w, char name[PATH_MAX])
{
    size_t skip, length;

    do {
        skip = strspn(w->rest, "/");
        length = strcspn(w->rest + skip, "/");
        snprintf(name, PATH_MAX, "%.*s", (int)length, w->rest + skip);
        memmove(w->rest, w->rest + skip + length, strlen(w->rest + skip + length) + 1);
    } while (strcmp(name, ".") == 0);
    return *name != '\0';
}

static void walk_note_name(struct key_walk *w, const char *name)
{
    size_t used = strlen(w->done);
    char *slash;

    if (strcmp(name, "..") != 0)
        snprintf(w->done + used, sizeof(w->done) - used, "/%s", name);
    else if ((slash = strrchr(w->done, '/')))
        *slash = '\0';
}

/* Puts the link's target in front of what is still to be walked. */
static int follow_link(struct key_walk *w, int link, const struct stat *st,
                       struct err *e)
{
    char target[PATH_MAX], rest[PATH_MAX];
    ssize_t n = readlinkat(link, "", target, sizeof(target) - 1);
    char *slash;

    if (n < 0)
        return set_lookup_error(errno, w->done, e);
    target[n] = '\0';
    if (++w->links > KEY_PATH_LINKS_MAX)
        return set_lookup_error(ELOOP, w->done, e);
    if (key_path_check_owner(w->done, st, e) < 0)
        return -1;
    if ((size_t)snprintf(rest, sizeof(rest), "%s/%s", target, w->rest) >= sizeof(rest))
        return set_lookup_error(ENAMETOOLONG, w->done, e);
    memcpy(w->rest, rest, sizeof(rest));
    if (*target == '/')
        return enter_root(w, e);
    if ((slash = strrchr(w->done, '/')))
        *slash = '\0';
    return 0;
}

/* The file itself. A FIFO must not block, and a terminal must not become ours. */
static int open_key_file(struct key_walk *w, const char *name, struct stat *st,
                         struct err *e)
{
    struct stat opened;
    int fd;

    if (!S_ISREG(st->st_mode))
        return err_set(e, "%s is %s, not a file", w->done,
                       S_ISDIR(st->st_mode)    ? "a folder"
                       : S_ISFIFO(st->st_mode) ? "a FIFO"
                                               : "a device or a socket");
    fd = openat(w->folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return set_lookup_error(errno, w->done, e);
    if (fstat(fd, &opened) < 0 || opened.st_dev != st->st_dev ||
        opened.st_ino != st->st_ino) {
        close(fd);
        return err_set(e, "%s was replaced while it was opened", w->done);
    }
    *st = opened;
    return fd;
}

static bool walk_is_over(const struct key_walk *w)
{
    return w->rest[strspn(w->rest, "/")] == '\0';
}

static int walk_path(struct key_walk *w, struct stat *st, struct err *e)
{
    char name[PATH_MAX]; /* the kernel refuses one that is too long */

    while (walk_take_name(w, name)) {
        int rc, fd = openat(w->folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

        walk_note_name(w, name);
        if (fd < 0)
            return set_lookup_error(errno, w->done, e);
        if (fstat(fd, st) < 0) {
            close(fd);
            return set_lookup_error(errno, w->done, e);
        }
        if (S_ISDIR(st->st_mode) && !walk_is_over(w)) {
            rc = enter_folder(w, fd, st, e);
        } else if (S_ISLNK(st->st_mode)) {
            rc = follow_link(w, fd, st, e);
            close(fd);
        } else {
            close(fd);
            return walk_is_over(w) ? open_key_file(w, name, st, e)
                                   : set_lookup_error(ENOTDIR, w->done, e);
        }
        if (rc < 0)
            return -1;
    }
    return err_set(e, "%s is a folder, not a file", *w->done ? w->done : "/");
}

int key_path_open(const char *path, struct stat *st, struct err *e)
{
    struct key_walk w = { .folder = -1 };
    char here[PATH_MAX] = "";
    int fd = -1;

    if (*path != '/' && !getcwd(here, sizeof(here)))
        return set_lookup_error(errno, path, e);
    if ((size_t)snprintf(w.rest, sizeof(w.rest), "%s/%s", here, path) >= sizeof(w.rest))
        return set_lookup_error(ENAMETOOLONG, path, e);
    if (enter_root(&w, e) == 0)
        fd = walk_path(&w, st, e);
    if (w.folder >= 0)
        close(w.folder);
    return fd;
}
