/* SPDX-License-Identifier: MIT */
#include "agent/cleanup/run_tmpdir.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define TAG "abcd1234"

static char folder[64];

static void setup(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_scratch_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *path_of(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void make_tmpdir(const char *name)
{
    ck_assert_int_eq(mkdir(path_of(name), 0700), 0);
}

static void make_run(void)
{
    make_tmpdir("crun_" TAG);
    make_tmpdir("crun_" TAG "/run_1");
    make_tmpdir("crun_" TAG "/run_1/attempt_0");
    make_tmpdir("crun_" TAG "/run_1/attempt_0/0");
    make_tmpdir("crun_" TAG "/run_1/attempt_0/1");
}

static void write_file(const char *name)
{
    int fd = open(path_of(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    close(fd);
}

static bool is_there(const char *name)
{
    struct stat st;

    return lstat(path_of(name), &st) == 0;
}

FIXTURE(setup, teardown);

TEST(the_tag_stays_the_same)
{
    char *path, *again;

    ck_assert_uint_eq(strlen(run_tmpdir_tag()), RUN_TMPDIR_TAG_LEN);
    path = run_tmpdir_path(run_tmpdir_tag());
    again = run_tmpdir_path(run_tmpdir_tag());
    ck_assert_str_eq(path, again);
    ck_assert_mem_eq(path, folder, strlen(folder));
    free(path);
    free(again);
}

TEST(an_empty_tree_goes)
{
    make_run();
    run_tmpdir_remove_empty(TAG);
    ck_assert(!is_there("crun_" TAG));
    run_tmpdir_remove_empty(TAG); /* and is not missed */
}

TEST(one_below_another_tmpdir_goes)
{
    char *parent = run_tmpdir_parent();

    ck_assert_ptr_nonnull(parent);
    ck_assert_int_eq(parent[0], '/');
    make_run();
    setenv("TMPDIR", "/nonexistent", 1);
    ck_assert_ptr_null(run_tmpdir_parent());
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("crun_" TAG));
    run_tmpdir_remove_empty_below(parent, "../../etc");
    run_tmpdir_remove_empty_below(parent, TAG);
    ck_assert(!is_there("crun_" TAG));
    free(parent);
}

TEST(a_relative_tmpdir_has_an_absolute_path)
{
    char *parent;

    ck_assert_int_eq(chdir(folder), 0);
    make_tmpdir("below");
    setenv("TMPDIR", "below", 1);
    parent = run_tmpdir_parent();
    ck_assert_ptr_nonnull(parent);
    ck_assert_str_eq(parent, path_of("below"));
    free(parent);
}

/* Only root can give a folder away. */
TEST(a_folder_of_another_user_stays)
{
    SKIP_UNLESS_ROOT();
    make_run();
    ck_assert_int_eq(chown(path_of("crun_" TAG), 65534, 65534), 0);
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("crun_" TAG "/run_1/attempt_0/0"));
}

TEST(a_link_in_its_place_stays)
{
    make_tmpdir("elsewhere");
    make_tmpdir("elsewhere/empty");
    ck_assert_int_eq(symlink("elsewhere", path_of("crun_" TAG)), 0);
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("crun_" TAG));
    ck_assert(is_there("elsewhere/empty"));
}

TEST(a_file_stays_with_the_way_to_it)
{
    make_run();
    write_file("crun_" TAG "/run_1/attempt_0/1/error.json");
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("crun_" TAG "/run_1/attempt_0/1/error.json"));
    ck_assert(!is_there("crun_" TAG "/run_1/attempt_0/0"));
}

TEST(what_a_worker_made_below_stays)
{
    make_run();
    make_tmpdir("crun_" TAG "/run_1/attempt_0/0/its_own");
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("crun_" TAG "/run_1/attempt_0/0/its_own"));
}

TEST(no_link_is_followed)
{
    make_tmpdir("elsewhere");
    make_tmpdir("elsewhere/empty");
    make_tmpdir("crun_" TAG);
    ck_assert_int_eq(symlink("../elsewhere", path_of("crun_" TAG "/run_1")), 0);
    run_tmpdir_remove_empty(TAG);
    ck_assert(is_there("elsewhere/empty"));
    ck_assert(is_there("crun_" TAG "/run_1"));
}

TEST_LOOP(what_is_not_a_tag_means_nothing, 0, 6)
{
    static const char *const names[] = { "",         "abc",       "../../etc",
                                         "abcd123/", "abcd12345", "ABCD1234" };
    char name[32];

    snprintf(name, sizeof(name), "crun_%s", names[_i]);
    if (!strchr(name, '/'))
        make_tmpdir(name);
    run_tmpdir_remove_empty(names[_i]);
    ck_assert(strchr(name, '/') || is_there(name));
}
