/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/run_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define STRANGER 65534

static char root[] = "/tmp/run-folder-XXXXXX";
static char own[PATH_MAX];

static void setup(void)
{
    memcpy(strchr(root, '\0') - 6, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(root));
    snprintf(own, sizeof(own), "%s/run", root);
    setenv("CRUN_RUNTIME_DIR", own, 1);
    unsetenv("XDG_RUNTIME_DIR");
}

static void teardown(void)
{
    char command[PATH_MAX + 16];

    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    ck_assert_int_eq(system(command), 0);
}

static void make_own(struct run_folder *f)
{
    struct err e;

    if (run_folder_make(f, &e) < 0)
        ck_abort_msg("%s", e.text);
}

/* -- the candidates -----------------------------------------------------------------
 */

FIXTURE(setup, teardown);

TEST(the_variable_excludes_the_others)
{
    char paths[RUN_FOLDERS_MAX][PATH_MAX];

    ck_assert_uint_eq(run_folder_list(paths), 1);
    ck_assert_str_eq(paths[0], own);
}

TEST(the_session_comes_before_tmp)
{
    char paths[RUN_FOLDERS_MAX][PATH_MAX], wanted[64];

    unsetenv("CRUN_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", "/run/somewhere", 1);
    ck_assert_uint_eq(run_folder_list(paths), 3);
    ck_assert_str_eq(paths[0], "/run/somewhere/crun");
    snprintf(wanted, sizeof(wanted), "/run/user/%u/crun", (unsigned)geteuid());
    ck_assert_str_eq(paths[1], wanted);
    snprintf(wanted, sizeof(wanted), "/tmp/crun-%u", (unsigned)geteuid());
    ck_assert_str_eq(paths[2], wanted);
    snprintf(wanted, sizeof(wanted), "/run/user/%u", (unsigned)geteuid());
    setenv("XDG_RUNTIME_DIR", wanted, 1); /* the usual case: not twice */
    ck_assert_uint_eq(run_folder_list(paths), 2);
    setenv("XDG_RUNTIME_DIR", "relative", 1);
    ck_assert_uint_eq(run_folder_list(paths), 2);
}

/* -- what is no folder of this user --------------------------------------------------
 */

static void must_refuse(void)
{
    struct run_folder f;
    struct err e;

    ck_assert_int_eq(run_folder_make(&f, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, own));
}

TEST(it_is_made_for_this_user_alone)
{
    mode_t before = umask(0777);
    struct run_folder f;
    struct stat st;

    make_own(&f);
    umask(before);
    ck_assert_int_eq(fstat(f.fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    run_folder_close(&f);
    make_own(&f); /* the one that is there */
    ck_assert(run_folder_is_there(&f));
    run_folder_close(&f);
}

TEST(another_mode_is_refused_and_left)
{
    struct stat st;

    ck_assert_int_eq(mkdir(own, 0700), 0);
    ck_assert_int_eq(chmod(own, 0770), 0);
    must_refuse();
    ck_assert_int_eq(stat(own, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0770);
}

TEST(a_link_is_not_followed)
{
    char target[PATH_MAX + 8];

    snprintf(target, sizeof(target), "%s.real", own);
    ck_assert_int_eq(mkdir(target, 0700), 0);
    ck_assert_int_eq(symlink(target, own), 0);
    must_refuse();
}

TEST(a_file_is_no_folder)
{
    close(open(own, O_CREAT | O_WRONLY, 0700));
    must_refuse();
    ck_assert_int_eq(access(own, F_OK), 0);
}

TEST(a_folder_of_another_user_is_refused)
{
    SKIP_UNLESS_ROOT();
    ck_assert_int_eq(mkdir(own, 0700), 0);
    ck_assert_int_eq(chown(own, STRANGER, STRANGER), 0);
    must_refuse();
}

/* Its owner could put another folder in its place. */
TEST(a_parent_of_another_user_is_refused)
{
    SKIP_UNLESS_ROOT();
    ck_assert_int_eq(chown(root, STRANGER, STRANGER), 0);
    must_refuse();
    ck_assert_int_eq(chown(root, 0, 0), 0);
    ck_assert_int_eq(chmod(root, 0777), 0);
    must_refuse();
    ck_assert_int_eq(chmod(root, 01777), 0); /* as /tmp */
    struct run_folder f;
    make_own(&f);
    run_folder_close(&f);
}

TEST(the_next_candidate_follows)
{
    struct run_folder f;
    struct err e;
    char path[PATH_MAX];

    unsetenv("CRUN_RUNTIME_DIR");
    setenv("XDG_RUNTIME_DIR", root, 1);
    snprintf(path, sizeof(path), "%s/crun", root);
    ck_assert_int_eq(symlink("/nonexistent", path), 0);
    if (run_folder_make(&f, &e) == 0)
        ck_assert_str_ne(f.path, path);
    run_folder_close(&f);
}

/* -- sockets --------------------------------------------------------------------------
 */

static void take_connection(const struct run_folder *f, int listener)
{
    int client = run_folder_connect(f, "7.sock"), server;

    ck_assert_int_ge(client, 0);
    server = accept(listener, NULL, NULL);
    ck_assert_int_ge(server, 0);
    close(client);
    close(server);
}

TEST(a_socket_takes_connections_also_at_a_long_path)
{
    char deep[PATH_MAX];
    struct run_folder f;
    int fd;

    for (int i = 0; i < 2; i++) {
        make_own(&f);
        fd = run_folder_listen(&f, "7.sock");
        ck_assert_int_ge(fd, 0);
        take_connection(&f, fd);
        close(fd);
        run_folder_close(&f);
        snprintf(deep, sizeof(deep), "%s/%0120d", root, 0);
        setenv("CRUN_RUNTIME_DIR", deep, 1);
    }
}

TEST(a_dead_socket_is_replaced_and_a_living_one_is_not)
{
    struct run_folder f;
    int first, second;

    make_own(&f);
    first = run_folder_listen(&f, "7.sock");
    ck_assert_int_eq(run_folder_listen(&f, "7.sock"), -1);
    ck_assert_int_eq(errno, EADDRINUSE);
    close(first);
    ck_assert_int_eq(run_folder_connect(&f, "7.sock"), -1);
    ck_assert_int_eq(errno, ECONNREFUSED);
    second = run_folder_listen(&f, "7.sock");
    ck_assert_int_ge(second, 0);
    take_connection(&f, second);
    close(second);
    run_folder_close(&f);
}

TEST(what_is_no_socket_is_left)
{
    struct run_folder f;

    make_own(&f);
    ck_assert_int_eq(run_folder_write(&f, "7.sock", "mine", 4), 0);
    ck_assert_int_eq(run_folder_listen(&f, "7.sock"), -1);
    ck_assert_int_eq(run_folder_connect(&f, "7.sock"), -1);
    ck_assert_int_eq(symlinkat("7.sock", f.fd, "8.sock"), 0);
    ck_assert_int_eq(run_folder_listen(&f, "8.sock"), -1);
    ck_assert_int_eq(run_folder_connect(&f, "8.sock"), -1);
    char *text = run_folder_read(&f, "7.sock", 100);
    ck_assert_str_eq(text, "mine");
    free(text);
    run_folder_close(&f);
}

/* -- files ---------------------------------------------------------------------------
 */

TEST(a_file_is_replaced_as_a_whole)
{
    struct run_folder f;
    char *text;

    make_own(&f);
    ck_assert_int_eq(run_folder_write(&f, "a.json", "one", 3), 0);
    ck_assert_int_eq(symlinkat("a.json", f.fd, "b.json"), 0);
    ck_assert_int_eq(symlinkat("a.json", f.fd, "b.json.new"), 0);
    ck_assert_int_eq(run_folder_write(&f, "b.json", "two", 3), 0);
    text = run_folder_read(&f, "a.json", 100);
    ck_assert_str_eq(text, "one");
    free(text);
    text = run_folder_read(&f, "b.json", 2); /* at most so much of it */
    ck_assert_str_eq(text, "tw");
    free(text);
    run_folder_close(&f);
}

TEST(only_ordinary_files_are_read)
{
    struct run_folder f;

    make_own(&f);
    ck_assert_int_eq(mkfifoat(f.fd, "fifo.json", 0600), 0);
    ck_assert_ptr_null(run_folder_read(&f, "fifo.json", 100));
    ck_assert_int_eq(symlinkat("/etc/passwd", f.fd, "link.json"), 0);
    ck_assert_ptr_null(run_folder_read(&f, "link.json", 100));
    ck_assert_ptr_null(run_folder_read(&f, "none.json", 100));
    run_folder_close(&f);
}

TEST(a_folder_that_was_replaced_is_not_there)
{
    char aside[PATH_MAX + 8];
    struct run_folder f;

    make_own(&f);
    snprintf(aside, sizeof(aside), "%s.aside", own);
    ck_assert_int_eq(rename(own, aside), 0);
    ck_assert(!run_folder_is_there(&f));
    ck_assert_int_eq(mkdir(own, 0700), 0);
    ck_assert(!run_folder_is_there(&f));
    run_folder_close(&f);
}
