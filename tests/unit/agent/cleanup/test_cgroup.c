/* SPDX-License-Identifier: MIT */
/* no root: there may be no cgroup to be had */
#include "agent/cleanup/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

/* -- where our own is ------------------------------------------------------- */

#define V1 "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
#define MEMORY "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define V2 "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
#define HYBRID "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
#define SUBTREE "50 23 0:26 /a/b /mnt/sub rw - cgroup2 none rw\n"
#define SPACE "51 23 0:26 / /mnt/with\\040space rw - cgroup2 none rw\n"
#define TRICK "52 23 0:27 / /mnt/trick rw - tmpfs cgroup2 rw\n"

static const struct {
    const char *mountinfo, *cgroup, *path; /* NULL: not to be found */
} places[] = {
    { V2, "0::/\n", "/sys/fs/cgroup" },
    { V2, "0::/user.slice/a.scope\n", "/sys/fs/cgroup/user.slice/a.scope" },
    { V1 HYBRID, "9:name=systemd:/x\n1:cpu:/y\n0::/z\n", "/sys/fs/cgroup/unified/z" },
    { V1, "1:cpu:/y\n0::/z\n", NULL },
    { V2, "1:cpu:/y\n", NULL },
    { V2, "10::/y\n", NULL },
    { V2, "", NULL },
    { "", "0::/\n", NULL },
    { SUBTREE, "0::/a/b\n", "/mnt/sub" },
    { SUBTREE, "0::/a/b/c\n", "/mnt/sub/c" },
    { SUBTREE, "0::/a/bc\n", NULL },
    { SUBTREE, "0::/a\n", NULL },
    { SUBTREE V2, "0::/q\n", "/sys/fs/cgroup/q" },
    { SPACE, "0::/q\n", "/mnt/with space/q" },
    { TRICK, "0::/q\n", NULL },
    { TRICK V2, "0::/q", "/sys/fs/cgroup/q" },
    { V2, "0::/../other\n", NULL }, /* outside of our cgroup namespace */
};

static bool find_own_path(const char *mountinfo, const char *cgroup,
                          const char *controller, char *path, size_t size)
{
    char mounts[1024], groups[256];

    snprintf(mounts, sizeof(mounts), "%s", mountinfo);
    snprintf(groups, sizeof(groups), "%s", cgroup);
    return cgroup_own_path(mounts, groups, controller, path, size);
}

TEST_EACH(our_own_group_is_found_in_whatever_is_mounted, places)
{
    char path[PATH_MAX] = "";
    bool found = find_own_path(places[_i].mountinfo, places[_i].cgroup, "", path,
                               sizeof(path));

    ck_assert_int_eq(found, places[_i].path != NULL);
    if (found)
        ck_assert_str_eq(path, places[_i].path);
}

static const struct {
    const char *controller, *mountinfo, *cgroup, *path;
} places_of_v1[] = {
    { "memory", V1 MEMORY V2, "4:memory:/step_0\n0::/\n",
      "/sys/fs/cgroup/memory/step_0" },
    { "cpu", V1 MEMORY, "4:memory:/s\n2:cpu,cpuacct:/y\n", "/sys/fs/cgroup/cpu/y" },
    { "memory", V1 MEMORY, "3:memory_recursive:/s\n0::/\n", NULL },
    { "memory", V1 V2, "4:memory:/s\n0::/\n", NULL },
};

TEST_EACH(our_own_group_of_version_1_is_that_of_the_controller, places_of_v1)
{
    char path[PATH_MAX] = "";
    bool found = find_own_path(places_of_v1[_i].mountinfo, places_of_v1[_i].cgroup,
                               places_of_v1[_i].controller, path, sizeof(path));

    ck_assert_int_eq(found, places_of_v1[_i].path != NULL);
    if (found)
        ck_assert_str_eq(path, places_of_v1[_i].path);
}

TEST(a_path_that_does_not_fit_is_not_found)
{
    char path[8];

    ck_assert(!find_own_path(V2, "0::/a\n", "", path, sizeof(path)));
}

/* -- a real one: these pass by where there can be none ---------------------- */

static struct cgroup group;

static bool made(void)
{
    struct err e;

    return cgroup_create(&group, &e) == 0;
}

static bool exists(const struct cgroup *g, const char *name)
{
    struct stat st;

    return fstatat(g->parent, name, &st, 0) == 0;
}

static void put(int dir, const char *name, const char *text)
{
    int fd = openat(dir, name, O_WRONLY);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
}

/* A process in the group of the directory `dir`, deaf to TERM. */
static pid_t inhabitant(int dir)
{
    int ready[2];
    char c;
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        signal(SIGTERM, SIG_IGN);
        put(dir, "cgroup.procs", "0");
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void expect_killed(pid_t pid)
{
    int status;

    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Where there are no attributes, nothing is known for certain to be left behind. */
static bool made_and_marked(void)
{
    char mark[CGROUP_NAME_SIZE];

    return made() && (fgetxattr(group.dir, "user.crun", mark, sizeof(mark)) > 0 ||
                      fgetxattr(group.dir, "trusted.crun", mark, sizeof(mark)) > 0);
}

TEST(a_group_knows_what_lives_in_it_and_ends_it)
{
    struct pollfd events = { .events = POLLPRI };
    pid_t pid;

    SKIP_UNLESS(made(), "no cgroup can be made here");
    ck_assert(!cgroup_populated(&group));
    pid = inhabitant(group.dir);
    ck_assert(cgroup_populated(&group));
    ck_assert(!cgroup_remove(&group));
    events.fd = cgroup_watch(&group);
    ck_assert(cgroup_populated(&group));
    cgroup_kill(&group);
    expect_killed(pid);
    ck_assert_int_eq(poll(&events, 1, 5000), 1);
    while (cgroup_populated(&group))
        usleep(1000);
    close(events.fd);
    ck_assert(cgroup_remove(&group));
    ck_assert_int_eq(group.dir, -1);
}

TEST(groups_below_go_with_it)
{
    char name[CGROUP_NAME_SIZE];
    pid_t pid;
    int below;

    SKIP_UNLESS(made(), "no cgroup can be made here");
    strcpy(name, group.name);
    ck_assert_int_eq(mkdirat(group.dir, "a", 0755), 0);
    ck_assert_int_eq(mkdirat(group.dir, "a/b", 0755), 0);
    below = openat(group.dir, "a/b", O_RDONLY | O_DIRECTORY);
    pid = inhabitant(below);
    ck_assert(cgroup_populated(&group));
    cgroup_kill(&group);
    expect_killed(pid);
    while (!cgroup_remove(&group))
        usleep(1000);
    close(below);
}

TEST(what_a_dead_agent_left_is_ended_and_removed)
{
    struct cgroup dead, locked;
    struct err e;
    pid_t pid;

    SKIP_UNLESS(made_and_marked(), "no cgroup can be made here");
    dead = group;
    pid = inhabitant(dead.dir);
    ck_assert_int_eq(cgroup_create(&locked, &e), 0);
    ck_assert(exists(&locked, dead.name)); /* its agent lives: the lock is held */
    ck_assert_int_eq(kill(pid, 0), 0);
    close(dead.dir); /* the inhabitant holds the lock too, through its fork */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ck_assert(cgroup_remove(&locked));
    ck_assert_int_eq(cgroup_create(&locked, &e), 0);
    ck_assert(!exists(&locked, dead.name));
    ck_assert(cgroup_remove(&locked));
    close(dead.parent);
}

TEST(a_stale_group_with_processes_in_it_is_emptied)
{
    struct cgroup stale, next;
    struct err e;
    pid_t pid;
    int procs;

    SKIP_UNLESS(made_and_marked(), "no cgroup can be made here");
    stale = group;
    pid = fork();
    if (pid == 0) {
        procs = openat(stale.dir, "cgroup.procs", O_WRONLY);
        close(
            stale.dir); /* and the lock with it, before it is seen that we are there */
        if (write(procs, "0", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    while (!cgroup_populated(&stale))
        usleep(1000);
    close(stale.dir);
    ck_assert_int_eq(cgroup_create(&next, &e), 0);
    expect_killed(pid);
    ck_assert(!exists(&next, stale.name));
    ck_assert(cgroup_remove(&next));
    close(stale.parent);
}

/* Locks a group as another user, and keeps the lock until it is killed. */
static pid_t start_foreign_locker(const struct cgroup *g)
{
    int begun[2], dir;
    pid_t pid;
    char byte;

    ck_assert_int_eq(pipe(begun), 0);
    pid = fork();
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        close(g->dir);
        dir = openat(g->parent, g->name, O_RDONLY | O_DIRECTORY);
        flock(dir, LOCK_SH | LOCK_NB);
        (void)!write(begun[1], "", 1);
        for (;;)
            pause();
    }
    close(begun[1]);
    ck_assert_int_eq(read(begun[0], &byte, 1), 1);
    close(begun[0]);
    return pid;
}

TEST(another_user_cannot_keep_a_stale_group_by_locking_it)
{
    struct cgroup stale, next;
    struct err e;
    pid_t pid;

    SKIP_UNLESS_ROOT();
    SKIP_UNLESS(made_and_marked(), "no cgroup can be made here");
    stale = group;
    flock(stale.dir, LOCK_UN);
    pid = start_foreign_locker(&stale);
    close(stale.dir);
    ck_assert_int_eq(cgroup_create(&next, &e), 0);
    ck_assert(!exists(&next, stale.name));
    ck_assert(cgroup_remove(&next));
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(stale.parent);
}

/* Groups whose names begin as ours, one of them to the letter, one with a copied
 * mark. */
static const struct {
    const char *name, *mark;
} foreign[] = {
    { "crun-bob", NULL },
    { "crun-0123456789abcdef.scope", NULL },
    { "crun-1-abcdefgh-wxyz", NULL },
    { "crun-1-abcdefgh-wxyz", "crun-2-abcdefgh-wxyz" },
    { "crun-1-abcdefgh-wxyz.scope", "crun-1-abcdefgh-wxyz.scope" },
    { "crun--1-abcdefgh-wxyz", "crun--1-abcdefgh-wxyz" },
    { "crun-bob", "crun-bob" },
};

/* In a group of the test's own: agents of other versions may sweep those around it. */
TEST_EACH(a_group_that_is_not_ours_is_left_alone, foreign)
{
    char alone[64];
    int parent, own, dir;
    struct err e;
    pid_t pid;

    SKIP_UNLESS(made(), "no cgroup can be made here");
    parent = dup(group.parent);
    ck_assert(cgroup_remove(&group));
    snprintf(alone, sizeof(alone), "test-cgroup-%d", (int)getpid());
    ck_assert_int_eq(mkdirat(parent, alone, 0755), 0);
    own = openat(parent, alone, O_RDONLY | O_DIRECTORY);
    put(own, "cgroup.procs", "0");
    ck_assert_int_eq(mkdirat(own, foreign[_i].name, 0755), 0);
    dir = openat(own, foreign[_i].name, O_RDONLY | O_DIRECTORY);
    if (foreign[_i].mark)
        (void)!fsetxattr(dir, "user.crun", foreign[_i].mark, strlen(foreign[_i].mark),
                         0);
    pid = inhabitant(dir);
    ck_assert_int_eq(cgroup_create(&group, &e), 0);
    ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
    ck_assert(exists(&group, foreign[_i].name));
    ck_assert(cgroup_remove(&group));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    put(parent, "cgroup.procs", "0");
    while (unlinkat(own, foreign[_i].name, AT_REMOVEDIR) < 0)
        usleep(1000);
    while (unlinkat(parent, alone, AT_REMOVEDIR) < 0)
        usleep(1000);
    close(dir), close(own), close(parent);
}

/* Such as an agent leaves that is killed before it has marked its group. */
TEST(an_empty_group_without_a_mark_is_removed)
{
    static const char name[] = "crun-1-abcdefgh-wxyz";
    struct err e;

    SKIP_UNLESS(made(), "no cgroup can be made here");
    ck_assert_int_eq(mkdirat(group.parent, name, 0755), 0);
    ck_assert(cgroup_remove(&group));
    ck_assert_int_eq(cgroup_create(&group, &e), 0);
    ck_assert(!exists(&group, name));
    ck_assert(cgroup_remove(&group));
}

TEST(none_is_harmless)
{
    group = CGROUP_NONE;
    cgroup_kill(&group);
    ck_assert(!cgroup_populated(&group));
    ck_assert_int_eq(cgroup_watch(&group), -1);
    ck_assert_uint_eq(cgroup_read_oom_kills(-1), 0);
    ck_assert(cgroup_remove(&group));
    cgroup_close(&group);
}

TEST_LOOP(kills_for_lack_of_memory_are_read_in_both_versions, 0, 2)
{
    static const char *const texts[] = {
        "low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 1\n", /* v2 */
        "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n",               /* v1 */
    };
    int fd = memfd_create("oom", MFD_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(write(fd, texts[_i], strlen(texts[_i])), 0);
    ck_assert_uint_eq(cgroup_read_oom_kills(fd), 3);
    close(fd);
}
