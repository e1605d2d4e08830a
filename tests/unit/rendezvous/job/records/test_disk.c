/* SPDX-License-Identifier: MIT */
/* The journal's disk on a real file system, and a journal on it. */
#include "rendezvous/job/records/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rendezvous/job/records/journal.h"
#include "tests/worlds/check_main.h"

#define RESERVE (300u * 1024)

static char top[64];
static char path[128];
static struct disk *d;
static struct err e;

/* These two stand before the C library's: a file system without fallocate, and one with
 * little room. */
static bool no_fallocate;
static int64_t room = INT64_MAX;

int fallocate(int fd, int mode, off_t at, off_t size)
{
    if (no_fallocate) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    ssize_t n;

    if ((int64_t)size > room)
        size = (size_t)room;
    if (size == 0) {
        errno = ENOSPC;
        return -1;
    }
    n = syscall(SYS_pwrite64, fd, data, size, at);
    if (n > 0 && room != INT64_MAX)
        room -= n;
    return n;
}

static void setup(void)
{
    snprintf(top, sizeof(top), "/tmp/test-disk-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(top));
    snprintf(path, sizeof(path), "%s/state", top);
    d = disk_open_directory(path, &e);
    ck_assert_msg(d != NULL, "%s", e.text);
}

static int remove_one(const char *name, const struct stat *st, int type,
                      struct FTW *ftw)
{
    return remove(name);
}

static void teardown(void)
{
    disk_destroy(d);
    nftw(top, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static const char *in_state(const char *name)
{
    static char full[256];

    snprintf(full, sizeof(full), "%s/%s", path, name);
    return full;
}

static struct stat stat_of(const char *name)
{
    struct stat st;

    ck_assert_int_eq(lstat(name, &st), 0);
    return st;
}

static int must_open(const char *name)
{
    int file = d->ops->open(d, name, true);

    ck_assert_int_ge(file, 0);
    return file;
}

static void must_write(int file, const char *text, uint64_t at)
{
    ck_assert_int_eq(d->ops->write(d, file, text, strlen(text), at),
                     (int64_t)strlen(text));
}

static void expect_content(const char *name, const char *want)
{
    int file = d->ops->open(d, name, false);
    char text[64] = "";

    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(d->ops->size(d, file), (int64_t)strlen(want));
    ck_assert_int_eq(d->ops->read(d, file, text, sizeof(text) - 1, 0),
                     (int64_t)strlen(want));
    ck_assert_str_eq(text, want);
    ck_assert_int_eq(d->ops->close(d, file), 0);
}

FIXTURE(setup, teardown);

TEST(directory_and_files_are_the_users_alone)
{
    d->ops->close(d, must_open("a"));
    ck_assert_uint_eq(stat_of(path).st_mode & 0777, 0700);
    ck_assert_uint_eq(stat_of(in_state("a")).st_mode & 0777, 0600);
}

TEST(what_was_written_is_read)
{
    int file = must_open("a");

    must_write(file, "hello world", 0);
    must_write(file, "there", 6);
    ck_assert_int_eq(d->ops->truncate(d, file, 9), 0);
    ck_assert_int_eq(d->ops->sync(d, file), 0);
    ck_assert_int_eq(d->ops->close(d, file), 0);
    expect_content("a", "hello the");
}

TEST(a_file_takes_the_place_of_another)
{
    int old = must_open("old"), new = must_open("new");

    must_write(old, "old", 0);
    must_write(new, "new", 0);
    ck_assert_int_eq(d->ops->replace(d, "new", "old"), 0);
    d->ops->close(d, old);
    d->ops->close(d, new);
    expect_content("old", "new");
    ck_assert_int_eq(d->ops->open(d, "new", false), -1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(d->ops->remove(d, "old"), 0);
    ck_assert_int_eq(d->ops->remove(d, "old"), -1);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(d->ops->sync_names(d), 0);
}

TEST(a_symbolic_link_is_not_followed)
{
    ck_assert_int_eq(symlink("/dev/null", in_state("a")), 0);
    ck_assert_int_eq(d->ops->open(d, "a", true), -1);
    ck_assert_int_eq(errno, ELOOP);
}

TEST(a_reserve_takes_blocks_and_leaves_the_file_as_it_was)
{
    int file = must_open("a");

    must_write(file, "hello", 0);
    ck_assert_int_eq(d->ops->reserve(d, file, 5, RESERVE), 0);
    ck_assert_int_ge(stat_of(in_state("a")).st_blocks * 512, RESERVE);
    d->ops->close(d, file);
    expect_content("a", "hello");
}

TEST(without_fallocate_the_reserve_is_zeros)
{
    int file = must_open("a");
    char text[8] = "";

    no_fallocate = true;
    must_write(file, "hello", 0);
    ck_assert_int_eq(d->ops->reserve(d, file, 5, RESERVE), 0);
    ck_assert_int_eq(d->ops->size(d, file), 5 + RESERVE);
    ck_assert_int_eq(d->ops->read(d, file, text, sizeof(text), 0), sizeof(text));
    ck_assert_mem_eq(text, "hello\0\0", sizeof(text));
    /* and again, nearer to the end */
    ck_assert_int_eq(d->ops->reserve(d, file, 1000, RESERVE), 0);
    ck_assert_int_eq(d->ops->size(d, file), 1000 + RESERVE);
    room = 70000;
    ck_assert_int_eq(d->ops->reserve(d, file, 1000, 2 * RESERVE), -1);
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_int_eq(d->ops->size(d, file), 1000 + RESERVE);
    d->ops->close(d, file);
}

TEST(a_lock_that_is_held_names_its_holder)
{
    struct disk *second = disk_open_directory(path, &e);
    char want[32];

    ck_assert_ptr_nonnull(second);
    ck_assert_int_eq(d->ops->lock(d, &e), 0);
    ck_assert_int_eq(second->ops->lock(second, &e), -1);
    snprintf(want, sizeof(want), "in use by pid %d", (int)getpid());
    ck_assert_str_eq(e.text, want);
    d->ops->unlock(d);
    ck_assert_int_eq(second->ops->lock(second, &e), 0);
    ck_assert_int_eq(d->ops->lock(d, &e), -1);
    disk_destroy(second);
    ck_assert_int_eq(d->ops->lock(d, &e), 0);
}

static void hold_lock_until_killed(int ready)
{
    struct disk *own = disk_open_directory(path, &e);

    if (own && own->ops->lock(own, &e) == 0 && write(ready, "x", 1) == 1)
        pause();
    _exit(1);
}

TEST(a_lock_ends_with_the_process_that_held_it)
{
    int ready[2];
    char byte, want[32];
    pid_t pid;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0)
        hold_lock_until_killed(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_int_eq(d->ops->lock(d, &e), -1);
    snprintf(want, sizeof(want), "in use by pid %d", (int)pid);
    ck_assert_ptr_nonnull(strstr(e.text, want));
    kill(pid, SIGKILL);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert_int_eq(d->ops->lock(d, &e), 0);
}

TEST(a_full_disk_does_not_keep_the_lock_from_being_taken)
{
    room = 0;
    ck_assert_int_eq(d->ops->lock(d, &e), 0);
}

TEST(a_directory_that_cannot_be_is_refused_by_name)
{
    static const struct {
        const char *name, *why;
    } cases[] = {
        { "/missing/state", "cannot create: No such file or directory" },
        { "/state/file", "cannot open: Not a directory" },
    };
    char name[256], want[512];

    d->ops->close(d, must_open("file"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        snprintf(name, sizeof(name), "%s%s", top, cases[i].name);
        ck_assert_ptr_null(disk_open_directory(name, &e));
        snprintf(want, sizeof(want), "state directory %s: %s", name, cases[i].why);
        ck_assert_str_eq(e.text, want);
    }
}

static int count_record(void *arg, unsigned type, const void *data, size_t size,
                        struct err *err)
{
    int *count = arg;

    ck_assert_uint_eq(type, 1);
    ck_assert_uint_eq(size, sizeof(*count));
    ck_assert_mem_eq(data, count, size);
    (*count)++;
    return 0;
}

static void dump_all(void *arg, struct journal *j)
{
    for (int i = 0; i < *(int *)arg; i++)
        journal_append(j, 1, &i, sizeof(i));
}

/* With and without fallocate. */
TEST_LOOP(a_journal_lives_on_it, 0, 2)
{
    int want = 0;

    no_fallocate = _i == 1;
    for (int life = 0; life < 4; life++) {
        int count = 0;
        uint64_t cut;
        struct journal *j = journal_open(d, count_record, &count, &cut, &e);

        ck_assert_msg(j != NULL, "%s", e.text);
        ck_assert_int_eq(count, want);
        ck_assert_uint_eq(cut, 0);
        ck_assert(!journal_is_full(j));
        for (int i = 0; i < 5; i++) {
            journal_append(j, 1, &want, sizeof(want));
            want++;
            ck_assert_int_eq(journal_commit(j, &e), 0);
        }
        if (life == 2)
            ck_assert_int_eq(journal_snapshot(j, dump_all, &want, &e), 0);
        journal_close(j);
    }
}

static const struct {
    mode_t mode;
    uid_t owner;
    const char *why; /* NULL: it is taken */
} states[] = {
    { 0700, 0, NULL },
    { 0755, 0, NULL },
    { 0777, 0, "can be written by other users: chmod go-w" },
    { 0770, 0, "can be written by other users: chmod go-w" },
    { 0700, 65534, "belongs to user 65534, not to the user that runs this program" },
};

TEST_EACH(a_directory_that_others_can_write_is_refused, states)
{
    char other[160];
    struct disk *opened;

    SKIP_UNLESS_ROOT();
    snprintf(other, sizeof(other), "%s/other", top);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    ck_assert_int_eq(chmod(other, states[_i].mode), 0);
    ck_assert_int_eq(chown(other, states[_i].owner, states[_i].owner), 0);
    opened = disk_open_directory(other, &e);
    ck_assert_int_eq(opened != NULL, states[_i].why == NULL);
    if (!opened)
        ck_assert_msg(strstr(e.text, states[_i].why) != NULL, "%s", e.text);
    disk_destroy(opened);
}

TEST(a_file_of_another_user_in_it_is_not_used)
{
    char name[160];

    SKIP_UNLESS_ROOT();
    snprintf(name, sizeof(name), "%s/file", path);
    ck_assert_int_eq(mknod(name, S_IFREG | 0666, 0), 0);
    ck_assert_int_eq(chown(name, 65534, 65534), 0);
    ck_assert_int_eq(d->ops->open(d, "file", true), -1);
    ck_assert_int_eq(errno, EPERM);
}
