/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/xalloc.h"

#define FOLDER_MODE 0700
#define BACKLOG 128

/* -- where it is ------------------------------------------------------------------- */

static bool add_path(char paths[RUN_FOLDERS_MAX][PATH_MAX], unsigned *count,
                     const char *path)
{
    for (unsigned i = 0; i < *count; i++)
        if (strcmp(paths[i], path) == 0)
            return false;
    snprintf(paths[(*count)++], PATH_MAX, "%s", path);
    return true;
}

static const char *folder_variable(const char *name)
{
    const char *value = getenv(name);

    return value && *value == '/' && strlen(value) < PATH_MAX - 8 ? value : NULL;
}

bool run_folder_is_chosen(void)
{
    return folder_variable("CRUN_RUNTIME_DIR") != NULL;
}

unsigned run_folder_list(char paths[RUN_FOLDERS_MAX][PATH_MAX])
{
    const char *own = folder_variable("CRUN_RUNTIME_DIR"),
               *session = folder_variable("XDG_RUNTIME_DIR");
    unsigned uid = (unsigned)geteuid(), count = 0;
    char path[PATH_MAX];

    if (own) {
        add_path(paths, &count, own);
        return count;
    }
    if (session) {
        snprintf(path, sizeof(path), "%.*s/crun", PATH_MAX - 8, session);
        add_path(paths, &count, path);
    }
    snprintf(path, sizeof(path), "/run/user/%u/crun", uid);
    add_path(paths, &count, path);
    snprintf(path, sizeof(path), "/tmp/crun-%u", uid);
    add_path(paths, &count, path);
    return count;
}

/* -- opening ----------------------------------------------------------------------- */

/* Nobody but its owner and root can put something else in the place of a folder in
 * it. */
static bool parent_is_safe(const char *path)
{
    char parent[PATH_MAX];
    struct stat st;
    char *slash;

    snprintf(parent, sizeof(parent), "%s", path);
    slash = strrchr(parent, '/');
    if (!slash)
        return false;
    slash[slash == parent] = '\0';
    if (stat(parent, &st) < 0)
        return false;
    errno = EPERM;
    return (st.st_uid == geteuid() || st.st_uid == 0) &&
           (!(st.st_mode & (S_IWGRP | S_IWOTH)) || (st.st_mode & S_ISVTX));
}

static int open_folder(int at, const char *name, uid_t owner)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && st.st_uid == owner &&
        (st.st_mode & 07777) == FOLDER_MODE)
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Only what is made here gets its mode; what was there keeps its own. */
static int make_folder(int at, const char *name)
{
    bool made = mkdirat(at, name, FOLDER_MODE) == 0;

    if (!made && errno != EEXIST)
        return -1;
    if (made) /* a umask or the folder around it may have changed it */
        (void)!fchmodat(at, name, FOLDER_MODE, 0);
    return open_folder(at, name, geteuid());
}

int run_folder_open(struct run_folder *f, const char *path, uid_t owner)
{
    *f = (struct run_folder){ .fd = open_folder(AT_FDCWD, path, owner),
                              .owner = owner };
    snprintf(f->path, sizeof(f->path), "%s", path);
    return f->fd < 0 ? -1 : 0;
}

char *run_folder_state(bool make)
{
    const char *state = folder_variable("XDG_STATE_HOME"), *home = getenv("HOME");
    char *path = state
                     ? xasprintf("%s/crun", state)
                     : xasprintf("%s/.local/state/crun", home && *home ? home : "/tmp");

    for (char *slash = strchr(path + 1, '/'); make && slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, FOLDER_MODE);
        *slash = '/';
    }
    if (make)
        mkdir(path, FOLDER_MODE);
    return path;
}

int run_folder_open_detached(bool make, struct run_folder *f)
{
    const char *own = folder_variable("CRUN_RUNTIME_DIR");
    char *folder = own ? xstrdup(own) : run_folder_state(make);
    char *path = xasprintf("%s/jobs", folder);
    int rc;

    if (make)
        mkdir(path, FOLDER_MODE);
    rc = run_folder_open(f, path, geteuid());
    free(folder);
    free(path);
    return rc;
}

int run_folder_make(struct run_folder *f, struct err *e)
{
    char paths[RUN_FOLDERS_MAX][PATH_MAX];
    unsigned count = run_folder_list(paths);
    int errnum = ENOENT;

    for (unsigned i = 0; i < count; i++) {
        *f = (struct run_folder){ .fd = -1, .owner = geteuid() };
        snprintf(f->path, sizeof(f->path), "%s", paths[i]);
        if (parent_is_safe(paths[i]))
            f->fd = make_folder(AT_FDCWD, paths[i]);
        if (f->fd >= 0)
            return 0;
        errnum = errno;
    }
    return err_set(e, "%s: %s", f->path,
                   errnum == EPERM ? "not a folder of this user alone (mode 0700)"
                                   : strerror(errnum));
}

int run_folder_open_ended(const struct run_folder *f, bool make,
                          struct run_folder *ended)
{
    *ended = (struct run_folder){ .owner = f->owner };
    if ((size_t)snprintf(ended->path, sizeof(ended->path), "%s/" RUN_FOLDER_ENDED,
                         f->path) >= sizeof(ended->path))
        *ended->path = '\0';
    ended->fd = make ? make_folder(f->fd, RUN_FOLDER_ENDED)
                     : open_folder(f->fd, RUN_FOLDER_ENDED, f->owner);
    return ended->fd < 0 ? -1 : 0;
}

bool run_folder_is_there(const struct run_folder *f)
{
    struct stat own, now;

    return fstat(f->fd, &own) == 0 && lstat(f->path, &now) == 0 &&
           own.st_ino == now.st_ino && own.st_dev == now.st_dev;
}

void run_folder_close(struct run_folder *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}

/* -- sockets ----------------------------------------------------------------------- */

/* The address of a socket has room for 107 bytes only: a longer path begins at the open
 * folder. */
static int fill_address(const struct run_folder *f, const char *name,
                        struct sockaddr_un *a)
{
    size_t n;

    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    n = (size_t)snprintf(a->sun_path, sizeof(a->sun_path), "%s/%s", f->path, name);
    if (n >= sizeof(a->sun_path))
        n = (size_t)snprintf(a->sun_path, sizeof(a->sun_path), "/proc/self/fd/%d/%s",
                             f->fd, name);
    if (n < sizeof(a->sun_path))
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

static bool is_own_socket(const struct run_folder *f, const char *name)
{
    struct stat st;

    return fstatat(f->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(st.st_mode) && st.st_uid == f->owner;
}

static int close_with_errno(int fd, int errnum)
{
    close(fd);
    errno = errnum;
    return -1;
}

int run_folder_connect(const struct run_folder *f, const char *name)
{
    struct sockaddr_un a;
    struct ucred peer;
    socklen_t len = sizeof(peer);
    int fd;

    if (fill_address(f, name, &a) < 0)
        return -1;
    if (!is_own_socket(f, name)) {
        errno = ENOENT;
        return -1;
    }
    fd = open_socket();
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return close_with_errno(fd, errno);
    /* the owner may have put a link to a socket of another user there meanwhile */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0 ||
        peer.uid != f->owner)
        return close_with_errno(fd, EPERM);
    return fd;
}

/* What a process that was killed has left. */
static bool remove_dead_socket(const struct run_folder *f, const char *name)
{
    int fd = run_folder_connect(f, name);

    if (fd < 0 && errno == ECONNREFUSED && unlinkat(f->fd, name, 0) == 0)
        return true;
    if (fd >= 0)
        close(fd);
    return false;
}

int run_folder_listen(const struct run_folder *f, const char *name)
{
    struct sockaddr_un a;
    int fd, rc;

    if (fill_address(f, name, &a) < 0)
        return -1;
    fd = open_socket();
    if (fd < 0)
        return -1;
    rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
    if (rc < 0 && errno == EADDRINUSE) {
        if (remove_dead_socket(f, name))
            rc = bind(fd, (struct sockaddr *)&a, sizeof(a));
        else
            errno = EADDRINUSE;
    }
    if (rc < 0 || listen(fd, BACKLOG) < 0)
        return close_with_errno(fd, errno);
    return fd;
}

/* -- files ------------------------------------------------------------------------- */

int run_folder_write(const struct run_folder *f, const char *name, const char *text,
                     size_t size)
{
    char draft[NAME_MAX + 1];
    int fd, errnum;

    snprintf(draft, sizeof(draft), "%s.new", name);
    (void)!unlinkat(f->fd, draft, 0);
    fd = openat(f->fd, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                0600);
    if (fd < 0)
        return -1;
    errnum = fd_write_all(fd, text, &size);
    close(fd);
    if (!errnum && renameat(f->fd, draft, f->fd, name) == 0)
        return 0;
    errnum = errnum ? errnum : errno;
    unlinkat(f->fd, draft, 0);
    errno = errnum;
    return -1;
}

int run_folder_open_file(const struct run_folder *f, const char *name)
{
    int fd = openat(f->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == f->owner)
        return fd;
    return close_with_errno(fd, EPERM);
}

char *run_folder_read(const struct run_folder *f, const char *name, size_t max)
{
    int fd = run_folder_open_file(f, name), errnum;
    char *text;
    ssize_t n;

    if (fd < 0)
        return NULL;
    text = xmalloc(max + 1);
    n = fd_read_all(fd, text, max + 1);
    errnum = errno;
    close(fd);
    if (n >= 0)
        return text;
    free(text);
    errno = errnum;
    return NULL;
}

void run_folder_remove(const struct run_folder *f, const char *name)
{
    (void)!unlinkat(f->fd, name, 0);
}
