/* SPDX-License-Identifier: MIT */
/*
 * cgroup v2, through its files. No process is moved: the guard's children are cloned
 * into the group (spawn.c), because moving a process blocks all forks of the machine
 * for many milliseconds.
 */
#include "agent/cleanup/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/cleanup/run_tmpdir.h"
#include "rendezvous/common/base/fd.h"

#define NAME_PREFIX "crun-"
#define NAME_RANDOM 4
#define LETTERS "abcdefghijklmnopqrstuvwxyz0123456789"
#define FILE_TEXT_SIZE 65536 /* of a file in /proc; mounts beyond that are ignored */
#define CREATE_TRIES 3
#define STALE_ROUNDS 50
#define STALE_ROUND_US 2000

/* -- crun's own group ----------------------------------------------------------- */

/* Whether the list "a,b,c", which ends at a colon or with the line, has the item. */
static bool list_contains(const char *list, const char *item)
{
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ",:\n");

        if (len == strlen(item) && strncmp(at, item, len) == 0)
            return true;
        at += len;
        if (*at != ',')
            return false;
    }
}

/* The value of the line "0::/a/b", or of "4:memory:/a/b" for a controller of version 1,
 * without the part that is outside of a namespace. NULL: there is none. */
static char *find_own_group(char *cgroup, const char *controller)
{
    char *line;

    while ((line = strsep(&cgroup, "\n"))) {
        const char *number = strsep(&line, ":"), *list = strsep(&line, ":");

        if (line && list_contains(list, controller) &&
            (*controller || strcmp(number, "0") == 0))
            return *line && strncmp(line, "/..", 3) != 0 ? line : NULL;
    }
    return NULL;
}

/* "\040" and the like, in place. */
static void unescape_mount_path(char *text)
{
    char *to = text;

    for (; *text; to++) {
        if (*text == '\\' && strspn(text + 1, "01234567") >= 3) {
            *to = (char)((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'));
            text += 4;
        } else {
            *to = *text++;
        }
    }
    *to = '\0';
}

/* The path of the group below a mount of `root` at `mountpoint`. */
static bool join_path(char *root, char *mountpoint, const char *group, char *path,
                      size_t size)
{
    size_t len;
    int n;

    unescape_mount_path(root);
    unescape_mount_path(mountpoint);
    len = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (strncmp(group, root, len) != 0 || (group[len] != '/' && group[len] != '\0'))
        return false;
    n = snprintf(path, size, "%s%s", mountpoint, group + len);
    if (n > 1 && (size_t)n < size && path[n - 1] == '/')
        path[n - 1] = '\0';
    return (size_t)n < size;
}

/* Whether the part of a line of mountinfo after " - " is a mount of that hierarchy:
 * "type source options". */
static bool shows_hierarchy(char *mounted, const char *controller)
{
    const char *type = strsep(&mounted, " ");

    if (!*controller)
        return strcmp(type, "cgroup2") == 0;
    (void)strsep(&mounted, " ");
    return mounted && strcmp(type, "cgroup") == 0 && list_contains(mounted, controller);
}

bool cgroup_own_path(char *mountinfo, char *cgroup, const char *controller, char *path,
                     size_t size)
{
    const char *group = find_own_group(cgroup, controller);
    char *line;

    while (group && (line = strsep(&mountinfo, "\n"))) {
        char *mounted = strstr(line, " - "), *word[5] = { NULL };

        if (!mounted || !shows_hierarchy(mounted + 3, controller))
            continue;
        for (int i = 0; i < 5; i++)
            word[i] = strsep(&line, " ");
        if (word[4] && join_path(word[3], word[4], group, path, size))
            return true;
    }
    return false;
}

/* -- small files ---------------------------------------------------------------- */

static bool write_group_file(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, strlen(text)) > 0;

    if (fd >= 0)
        close(fd);
    return written;
}

/* The number after `key` at the start of a line. */
static bool find_keyed_value(const char *text, const char *key, uint64_t *value)
{
    size_t len = strlen(key);

    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, len) == 0 && line[len] == ' ') {
            *value = strtoull(line + len + 1, NULL, 10);
            return true;
        }
    }
    return false;
}

/* -- the group ------------------------------------------------------------------ */

static int open_own(const char *controller, struct err *e)
{
    /* not on the stack, of which -fstack-clash-protection touches each page */
    static char mountinfo[FILE_TEXT_SIZE], group[PATH_MAX];
    char path[PATH_MAX];
    int dir;

    if (fd_read_file(AT_FDCWD, "/proc/self/mountinfo", mountinfo, sizeof(mountinfo)) <
            0 ||
        fd_read_file(AT_FDCWD, "/proc/self/cgroup", group, sizeof(group)) < 0)
        return err_set_errno(e, errno, "/proc/self");
    if (!cgroup_own_path(mountinfo, group, controller, path, sizeof(path)))
        return err_set(e, "our own cgroup is not in any cgroup2 mount");
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? err_set_errno(e, errno, "%s", path) : dir;
}

static int open_own_writable(struct err *e)
{
    int dir = open_own("", e);

    /* cloning into another group needs the right to move a process from ours */
    if (dir >= 0 && faccessat(dir, "cgroup.procs", W_OK, AT_EACCESS) < 0) {
        err_set_errno(e, errno, "cgroup.procs of our own cgroup");
        close(dir);
        return -1;
    }
    return dir;
}

static void remove_below(int dir);

static bool remove_group_at(int parent, const char *name)
{
    int dir;

    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return true;
    if (errno != EBUSY && errno != ENOTEMPTY)
        return false;
    dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir >= 0)
        remove_below(dir); /* closes it */
    return unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

/* Removes the groups that workers made inside their own. */
static void remove_below(int dir)
{
    DIR *list = fdopendir(dir);
    struct dirent *entry;

    while (list && (entry = readdir(list)))
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
            remove_group_at(dir, entry->d_name);
    if (list)
        closedir(list);
}

static bool lock_directory(int dir)
{
    return flock(dir, LOCK_EX | LOCK_NB) == 0;
}

/* The first needs Linux 5.7, the second root. */
static const char *const mark_names[] = { "user.crun", "trusted.crun" };

static bool is_marked(int dir, const char *name)
{
    char value[CGROUP_NAME_SIZE];

    for (size_t i = 0; i < sizeof(mark_names) / sizeof(mark_names[0]); i++) {
        ssize_t n = fgetxattr(dir, mark_names[i], value, sizeof(value));

        if (n > 0 && (size_t)n == strlen(name) && memcmp(value, name, (size_t)n) == 0)
            return true;
    }
    return false;
}

/* The tag in crun-<pid>-<tag>-<random>; false for a name of any other form. */
static bool parse_tag(const char *name, char *tag)
{
    size_t prefix = strlen(NAME_PREFIX), digits;

    if (strncmp(name, NAME_PREFIX, prefix) != 0)
        return false;
    name += prefix;
    digits = strspn(name, "0123456789");
    if (digits == 0 || name[digits] != '-')
        return false;
    name += digits + 1;
    if (strspn(name, LETTERS) != RUN_TMPDIR_TAG_LEN || name[RUN_TMPDIR_TAG_LEN] != '-')
        return false;
    memcpy(tag, name, RUN_TMPDIR_TAG_LEN);
    tag[RUN_TMPDIR_TAG_LEN] = '\0';
    name += RUN_TMPDIR_TAG_LEN + 1;
    return strspn(name, LETTERS) == NAME_RANDOM && !name[NAME_RANDOM];
}

static bool belongs_to_our_user(int dir)
{
    struct stat st;

    return fstat(dir, &st) == 0 && st.st_uid == geteuid();
}

static bool kill_and_remove(const struct cgroup *g, const char *name)
{
    for (int i = 0; i < STALE_ROUNDS; i++) {
        if (remove_group_at(g->parent, name))
            return true;
        cgroup_kill(g);
        usleep(STALE_ROUND_US);
    }
    return false;
}

/* An agent that was killed before it could mark its group has left it empty: without a
 * mark, only an empty group is removed, and nothing is killed. */
static void remove_if_stale(int parent, const char *name)
{
    struct cgroup g = { .parent = parent };
    char tag[RUN_TMPDIR_TAG_LEN + 1];

    if (!parse_tag(name, tag))
        return;
    g.dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (g.dir < 0)
        return;
    if (belongs_to_our_user(g.dir) && lock_directory(g.dir) &&
        (is_marked(g.dir, name) ? kill_and_remove(&g, name)
                                : unlinkat(parent, name, AT_REMOVEDIR) == 0))
        run_tmpdir_remove_empty(tag); /* no other process knows its folder */
    close(g.dir);
}

static void remove_stale(int own)
{
    int dir = openat(own, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = dir < 0 ? NULL : fdopendir(dir);
    struct dirent *entry;

    while (list && (entry = readdir(list)))
        remove_if_stale(own, entry->d_name);
    if (list)
        closedir(list);
}

/* The mark is written under the lock: a marked group that is not locked is stale. Other
 * users cannot open the group, so none of them can hold its lock. */
static bool create_marked(struct cgroup *g)
{
    char random[NAME_RANDOM + 1];
    struct stat st;

    run_tmpdir_random(random, NAME_RANDOM);
    snprintf(g->name, sizeof(g->name), NAME_PREFIX "%d-%s-%s", (int)getpid(),
             run_tmpdir_tag(), random);
    if (mkdirat(g->parent, g->name, 0700) < 0)
        return false;
    g->dir = openat(g->parent, g->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (g->dir >= 0 && lock_directory(g->dir) &&
        fstatat(g->parent, g->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        for (size_t i = 0; i < sizeof(mark_names) / sizeof(mark_names[0]); i++)
            if (fsetxattr(g->dir, mark_names[i], g->name, strlen(g->name), 0) == 0)
                break;
        return true;
    }
    if (g->dir >= 0)
        close(g->dir);
    errno = EAGAIN;
    return false;
}

int cgroup_create(struct cgroup *g, struct err *e)
{
    *g = CGROUP_NONE;
    g->parent = open_own_writable(e);
    if (g->parent < 0)
        return -1;
    remove_stale(g->parent);
    for (int i = 0; i < CREATE_TRIES; i++) {
        if (create_marked(g))
            return 0;
        if (errno != EAGAIN)
            break;
    }
    err_set_errno(e, errno, "make a cgroup");
    g->dir = -1;
    cgroup_close(g);
    return -1;
}

bool cgroup_remove(struct cgroup *g)
{
    if (g->dir >= 0 && !remove_group_at(g->parent, g->name))
        return false;
    cgroup_close(g);
    return true;
}

void cgroup_close(struct cgroup *g)
{
    if (g->dir >= 0)
        close(g->dir);
    if (g->parent >= 0)
        close(g->parent);
    *g = CGROUP_NONE;
}

/* For kernels before 5.14: one by one, without the groups below. */
static void kill_each(int dir)
{
    static char text[FILE_TEXT_SIZE];

    if (fd_read_file(dir, "cgroup.procs", text, sizeof(text)) < 0)
        return;
    for (char *at = text, *end; *at; at = end) {
        long pid = strtol(at, &end, 10);

        if (end == at || *end != '\n')
            break;
        end++;
        if (pid > 0)
            kill((pid_t)pid, SIGKILL);
    }
}

void cgroup_kill(const struct cgroup *g)
{
    if (g->dir >= 0 && !write_group_file(g->dir, "cgroup.kill", "1"))
        kill_each(g->dir);
}

int cgroup_make_below(const struct cgroup *g, int old)
{
    static unsigned count;
    char name[32];

    if (old >= 0) {
        snprintf(name, sizeof(name), "after-kill-%u", count);
        unlinkat(g->dir, name, AT_REMOVEDIR);
        close(old);
    }
    snprintf(name, sizeof(name), "after-kill-%u", ++count);
    if (mkdirat(g->dir, name, 0755) < 0)
        return -1;
    return openat(g->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool cgroup_populated(const struct cgroup *g)
{
    uint64_t populated = 0;
    char text[256];

    if (g->dir < 0 || fd_read_file(g->dir, "cgroup.events", text, sizeof(text)) < 0)
        return false;
    return find_keyed_value(text, "populated", &populated) && populated != 0;
}

int cgroup_watch(const struct cgroup *g)
{
    return g->dir < 0 ? -1 : openat(g->dir, "cgroup.events", O_RDONLY | O_CLOEXEC);
}

/* -- lack of memory ------------------------------------------------------------- */

static int open_oom_kills_of_own(const char *controller, const char *name)
{
    struct err e;
    int dir = open_own(controller, &e);
    int fd = dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC);

    if (dir >= 0)
        close(dir);
    return fd;
}

int cgroup_open_oom_kills(const struct cgroup *g)
{
    int fd = g->dir < 0 ? -1 : openat(g->dir, "memory.events", O_RDONLY | O_CLOEXEC);

    /* a group without a memory controller is counted by its parent */
    if (fd < 0)
        fd = g->parent < 0 ? open_oom_kills_of_own("", "memory.events")
                           : openat(g->parent, "memory.events", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        fd = open_oom_kills_of_own("memory", "memory.oom_control");
    return fd;
}

uint64_t cgroup_read_oom_kills(int fd)
{
    uint64_t kills = 0;
    char text[512];
    ssize_t n = fd < 0 ? 0 : pread(fd, text, sizeof(text) - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    find_keyed_value(text, "oom_kill", &kills);
    return kills;
}
