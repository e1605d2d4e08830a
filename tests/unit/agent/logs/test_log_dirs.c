/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_dirs.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/limits.h"
#include "tests/worlds/check_main.h"

static char folder[64], log_dir[96];

static void setup(void)
{
    snprintf(folder, sizeof(folder), "/tmp/test_logtree_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(log_dir, sizeof(log_dir), "%s/a/b", folder);
    setenv("TMPDIR", folder, 1);
}

static void teardown(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static mode_t chosen_mode;

static struct log_dirs *create_dirs(const char *dir, const char *run_id)
{
    struct err e;
    struct log_dirs *t = log_dirs_create(dir, run_id, chosen_mode, &e);

    ck_assert_msg(t != NULL, "%s", e.text);
    return t;
}

static void begin_attempt(struct log_dirs *t, uint64_t attempt, uint32_t workers)
{
    struct err e;

    ck_assert_msg(log_dirs_begin(t, attempt, workers, &e) == 0, "%s", e.text);
}

static void append(struct log_dirs *t, uint32_t local_rank, const char *text)
{
    struct err e;
    int fd = log_dirs_open(t, local_rank, "stdout.log", &e);

    ck_assert_msg(fd >= 0, "%s", e.text);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static off_t size_of(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 ? st.st_size : -1;
}

FIXTURE(setup, teardown);

TEST(the_tree_is_torchruns)
{
    struct log_dirs *t = create_dirs(log_dir, "run");
    char wanted[256], *path, latest[512], host[HOST_NAME_MAX_BYTES + 1] = "";
    char target[256] = "";

    ck_assert_mem_eq(log_dirs_path(t), log_dir, strlen(log_dir));
    ck_assert_int_eq(strncmp(log_dirs_path(t) + strlen(log_dir), "/run_", 5), 0);
    begin_attempt(t, 3, 2);
    append(t, 1, "hello");
    snprintf(wanted, sizeof(wanted), "%s/attempt_3/1/stdout.log", log_dirs_path(t));
    path = log_dirs_file_path(t, 1, "stdout.log");
    ck_assert_str_eq(path, wanted);
    ck_assert_int_eq(size_of(path), 5);
    free(path);
    append(t, LOG_DIRS_NODE, "node");
    path = log_dirs_file_path(t, LOG_DIRS_NODE, "stdout.log");
    ck_assert_int_eq(size_of(path), 4);
    free(path);
    gethostname(host, sizeof(host) - 1);
    snprintf(latest, sizeof(latest), "%s/latest-%s", log_dir, host);
    ck_assert_int_gt(readlink(latest, target, sizeof(target) - 1), 0);
    ck_assert_str_eq(target, strrchr(log_dirs_path(t), '/') + 1);
    log_dirs_destroy(t);
}

static mode_t mode_of(struct log_dirs *t, uint32_t local_rank, const char *name)
{
    char *path = log_dirs_file_path(t, local_rank, name);
    struct stat st;

    ck_assert_int_eq(stat(path, &st), 0);
    free(path);
    return st.st_mode & 07777;
}

static const struct {
    mode_t umask, chosen, file, folder;
} modes[] = {
    { 0022, 0, 0600, 0700 },    { 0000, 0, 0600, 0700 },    { 0077, 0640, 0640, 0750 },
    { 0022, 0666, 0666, 0777 }, { 0177, 0600, 0600, 0700 },
};

TEST_EACH(logs_are_for_the_user_only_unless_a_mode_is_chosen, modes)
{
    struct log_dirs *t;
    struct stat st;

    chosen_mode = modes[_i].chosen;
    umask(modes[_i].umask);
    t = create_dirs(folder, "run");
    begin_attempt(t, 0, 1);
    append(t, 0, "text");
    ck_assert_int_eq(stat(log_dirs_path(t), &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, modes[_i].folder);
    ck_assert_uint_eq(mode_of(t, LOG_DIRS_NODE, ""), modes[_i].folder);
    ck_assert_uint_eq(mode_of(t, 0, ""), modes[_i].folder);
    ck_assert_uint_eq(mode_of(t, 0, "stdout.log"), modes[_i].file);
    log_dirs_destroy(t);
}

TEST(latest_points_to_the_newest_run)
{
    struct log_dirs *one = create_dirs(log_dir, "run"),
                    *two = create_dirs(log_dir, "run");
    char latest[512], host[HOST_NAME_MAX_BYTES + 1] = "", *real;

    gethostname(host, sizeof(host) - 1);
    snprintf(latest, sizeof(latest), "%s/latest-%s", log_dir, host);
    real = realpath(latest, NULL);
    ck_assert_str_eq(real, log_dirs_path(two));
    ck_assert_str_ne(log_dirs_path(one), log_dirs_path(two));
    free(real);
    log_dirs_destroy(one);
    log_dirs_destroy(two);
}

TEST(nothing_is_erased_by_another_attempt_or_the_same)
{
    struct log_dirs *t = create_dirs(log_dir, "run");
    char *path;

    begin_attempt(t, 0, 1);
    append(t, 0, "one");
    begin_attempt(t, 1, 1);
    append(t, 0, "two");
    begin_attempt(t, 0, 1);
    append(t, 0, "more");
    path = log_dirs_file_path(t, 0, "stdout.log");
    ck_assert_int_eq(size_of(path), 7);
    free(path);
    log_dirs_destroy(t);
}

TEST(a_temporary_tree_goes_if_it_stayed_empty)
{
    struct log_dirs *t = create_dirs(NULL, "run");
    char path[512];

    snprintf(path, sizeof(path), "%s", log_dirs_path(t));
    begin_attempt(t, 0, 3);
    begin_attempt(t, 1, 2);
    log_dirs_destroy(t);
    ck_assert_int_eq(rmdir(folder), 0); /* nothing is left in it */
    ck_assert_int_eq(mkdir(folder, 0700), 0);
}

TEST(a_temporary_tree_stays_where_something_was_written)
{
    struct log_dirs *t = create_dirs(NULL, "run");
    char path[512], *file;

    begin_attempt(t, 0, 3);
    append(t, 1, "hello");
    file = log_dirs_file_path(t, 1, "stdout.log");
    snprintf(path, sizeof(path), "%s/attempt_0/0", log_dirs_path(t));
    ck_assert_int_ge(size_of(path), 0);
    begin_attempt(t, 1, 3);
    ck_assert_int_eq(size_of(path), -1);
    log_dirs_destroy(t);
    ck_assert_int_eq(size_of(file), 5);
    free(file);
}

TEST(a_temporary_tree_can_go_before_its_end_but_no_other)
{
    for (int i = 0; i < 2; i++) {
        struct log_dirs *t = create_dirs(i ? log_dir : NULL, "run");
        char path[512];

        begin_attempt(t, 0, 2);
        append(t, 1, "hello");
        log_dirs_remove_empty(t);
        snprintf(path, sizeof(path), "%s/attempt_0/0", log_dirs_path(t));
        ck_assert_int_eq(size_of(path) >= 0, i);
        snprintf(path, sizeof(path), "%s/attempt_0/1/stdout.log", log_dirs_path(t));
        ck_assert_int_eq(size_of(path), 5);
        log_dirs_destroy(t);
        ck_assert_int_eq(size_of(path), 5);
    }
}

TEST_LOOP(a_run_id_of_any_text_makes_one_folder, 0, 6)
{
    static const struct {
        const char *run_id, *name;
    } ids[] = { { "a/../b", "a_.._b_" }, { "../up", "_._up_" }, { ".", "__" },
                { "", "none_" },         { "a\nb", "a_b_" },    { "a b", "a b_" } };
    struct log_dirs *t = create_dirs(log_dir, ids[_i].run_id);
    const char *name = log_dirs_path(t) + strlen(log_dir) + 1;

    ck_assert_ptr_null(strchr(name, '/'));
    ck_assert_msg(strncmp(name, ids[_i].name, strlen(ids[_i].name)) == 0, "%s", name);
    log_dirs_destroy(t);
}

TEST(no_symbolic_link_is_followed)
{
    struct log_dirs *t = create_dirs(log_dir, "run");
    char path[512], target[256];
    struct err e;

    begin_attempt(t, 0, 1);
    snprintf(target, sizeof(target), "%s/target", folder);
    snprintf(path, sizeof(path), "%s/attempt_0/0/stdout.log", log_dirs_path(t));
    ck_assert_int_eq(symlink(target, path), 0);
    ck_assert_int_eq(log_dirs_open(t, 0, "stdout.log", &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, path));
    ck_assert_int_eq(size_of(target), -1);
    snprintf(path, sizeof(path), "%s/attempt_1", log_dirs_path(t));
    ck_assert_int_eq(symlink(folder, path), 0);
    ck_assert_int_eq(log_dirs_begin(t, 1, 1, &e), -1);
    log_dirs_destroy(t);
}

TEST(a_folder_that_cannot_be_made_is_named)
{
    char path[128];
    struct err e;
    FILE *f;

    snprintf(path, sizeof(path), "%s/file", folder);
    f = fopen(path, "w");
    fclose(f);
    snprintf(path, sizeof(path), "%s/file/logs", folder);
    ck_assert_ptr_null(log_dirs_create(path, "run", 0, &e));
    ck_assert_ptr_nonnull(strstr(e.text, path));
    setenv("TMPDIR", path, 1);
    ck_assert_ptr_null(log_dirs_create(NULL, "run", 0, &e));
    ck_assert_ptr_nonnull(strstr(e.text, path));
}

/* What a worker has linked there is not touched. */
TEST(the_first_attempt_and_the_newest_are_kept)
{
    struct log_dirs *t = create_dirs(log_dir, "run");
    char path[512], other[512], file[1024];

    snprintf(other, sizeof(other), "%s/other", folder);
    snprintf(file, sizeof(file), "%s/file", other);
    ck_assert_int_eq(mkdir(other, 0700), 0);
    close(creat(file, 0600));
    log_dirs_keep(t, 2);
    for (uint64_t attempt = 0; attempt < 50; attempt += 1 + (attempt == 7)) {
        begin_attempt(t, attempt, 2);
        append(t, 1, "line\n");
        snprintf(path, sizeof(path), "%s/attempt_%d/1/link", log_dirs_path(t),
                 (int)attempt);
        ck_assert_int_eq(symlink(other, path), 0);
    }
    log_dirs_drop_old(t);
    for (int attempt = 0; attempt < 50; attempt++) {
        bool is_kept = attempt == 0 || attempt >= 48;

        snprintf(path, sizeof(path), "%s/attempt_%d/1/stdout.log", log_dirs_path(t),
                 attempt);
        ck_assert_msg((access(path, F_OK) == 0) == is_kept, "%s", path);
        snprintf(path, sizeof(path), "%s/attempt_%d", log_dirs_path(t), attempt);
        ck_assert_msg((access(path, F_OK) == 0) == is_kept, "%s", path);
    }
    ck_assert_int_eq(access(file, F_OK), 0);
    log_dirs_destroy(t);
}
