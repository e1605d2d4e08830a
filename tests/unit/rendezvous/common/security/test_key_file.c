/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/security/key_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/security/limits.h"
#include "tests/worlds/check_main.h"

#define SECRET "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define KEY_A "crun1:aaaaaaaaaaaaaaaa:agent:0:" SECRET
#define KEY_B "crun1:bbbbbbbbbbbbbbbb:agent:0:" SECRET

/* A folder as a home directory has it, and a path in it. */
static char folder[64], path[512];
static struct key keys[KEYS_PER_FILE_MAX];
static struct err e;

static void make_folder(void)
{
    snprintf(folder, sizeof(folder), "/tmp/crun-test-keys-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/key", folder);
}

static void remove_folder(void)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void write_at(const char *where, const char *text, mode_t mode)
{
    int fd = open(where, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

static int read_keys(void)
{
    struct stat seen;

    return key_file_read(path, keys, KEYS_PER_FILE_MAX, &seen, &e);
}

/* The message is one line that names the file. */
static void expect_refusal(const char *why)
{
    ck_assert_int_eq(read_keys(), -1);
    ck_assert_msg(strstr(e.text, why) != NULL, "%s", e.text);
    ck_assert_msg(strstr(e.text, folder) != NULL, "%s", e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    ck_assert_ptr_null(strstr(e.text, "000102"));
    for (int i = 0; i < KEYS_PER_FILE_MAX; i++)
        ck_assert_int_eq(keys[i].secret[1], 0);
}

FIXTURE(make_folder, remove_folder);

TEST(all_keys_of_a_file_are_read_in_their_order)
{
    write_at(path, "# from alice\n\n  " KEY_B " \n" KEY_A, 0600);
    ck_assert_int_eq(read_keys(), 2);
    ck_assert_str_eq(keys[0].id, "bbbbbbbbbbbbbbbb");
    ck_assert_str_eq(keys[1].id, "aaaaaaaaaaaaaaaa");
}

TEST(line_ends_of_other_systems_do_no_harm)
{
    write_at(path, KEY_A "\r\n\r\n" KEY_B "\r\n", 0600);
    ck_assert_int_eq(read_keys(), 2);
}

TEST(a_file_that_is_none_is_refused)
{
    expect_refusal("No such file");
    ck_assert_int_eq(mkdir(path, 0700), 0);
    expect_refusal("a folder");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_refusal("a FIFO");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(symlink("key", path), 0);
    expect_refusal("symbolic links");
}

TEST(content_that_is_no_key_is_refused)
{
    char *large = malloc(10 << 20);

    write_at(path, "", 0600);
    expect_refusal("is empty");
    write_at(path, "# a comment\n", 0600);
    expect_refusal("has no key");
    write_at(path, KEY_A "\ncrun1:bbbbbbbbbbbbbbbb:agent:0:000102", 0600);
    expect_refusal("key:2: this key was cut or damaged");
    write_at(path, KEY_A "\n" KEY_B "\n" KEY_A "\n", 0600);
    expect_refusal("key:3: key aaaaaaaaaaaaaaaa stands there twice");
    memset(large, '#', 10 << 20);
    large[(10 << 20) - 1] = '\0';
    write_at(path, large, 0600);
    expect_refusal("more than 64 KiB");
    free(large);
}

TEST(a_file_has_a_limit_of_keys)
{
    char text[(KEYS_PER_FILE_MAX + 1) * KEY_TEXT_SIZE] = "";
    struct key k;

    for (int i = 0; i < KEYS_PER_FILE_MAX + 1; i++) {
        key_generate(0, &k);
        key_format(&k, text + strlen(text));
        if (i == KEYS_PER_FILE_MAX - 1) {
            write_at(path, text, 0600);
            ck_assert_int_eq(read_keys(), KEYS_PER_FILE_MAX);
        }
    }
    write_at(path, text, 0600);
    expect_refusal("more than 64 keys");
}

TEST(a_file_that_others_can_use_is_refused)
{
    static const mode_t bad[] = { 0644, 0604, 0602, 0620, 0660, 0666 };
    static const mode_t good[] = { 0600, 0400, 0640, 0440 };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_at(path, KEY_A, bad[i]);
        expect_refusal("other users (mode 06");
        ck_assert_ptr_nonnull(strstr(e.text, "chmod 600"));
    }
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        unlink(path);
        write_at(path, KEY_A, good[i]);
        ck_assert_int_eq(read_keys(), 1);
    }
}

TEST(a_file_of_another_user_is_refused)
{
    SKIP_UNLESS_ROOT();
    write_at(path, KEY_A, 0600);
    ck_assert_int_eq(chown(path, 4711, 0), 0);
    expect_refusal("belongs to user 4711");
    ck_assert_int_eq(chown(path, 0, 4711), 0);
    ck_assert_int_eq(chown(folder, 4711, 0), 0);
    expect_refusal("belongs to user 4711");
    ck_assert_int_eq(chown(folder, 0, 4711), 0);
    ck_assert_int_eq(read_keys(), 1);
}

TEST(a_folder_that_others_can_write_is_refused)
{
    write_at(path, KEY_A, 0600);
    ck_assert_int_eq(chmod(folder, 0770), 0);
    expect_refusal("chmod go-w");
    ck_assert_int_eq(chmod(folder, 0702), 0);
    expect_refusal("chmod go-w");
    ck_assert_int_eq(chmod(folder, 01777), 0);
    ck_assert_int_eq(read_keys(), 1);
    ck_assert_int_eq(chmod(folder, 0755), 0);
    ck_assert_int_eq(read_keys(), 1);
}

/* A link leads through folders that must be right, too, not only its target's. */
TEST(links_are_followed_through_folders_that_are_checked)
{
    char open_folder[128], link_in_it[160], target[160];

    snprintf(open_folder, sizeof(open_folder), "%s/open", folder);
    snprintf(link_in_it, sizeof(link_in_it), "%s/link", open_folder);
    snprintf(target, sizeof(target), "%s/real", folder);
    write_at(target, KEY_A, 0600);
    ck_assert_int_eq(mkdir(open_folder, 0700), 0);
    ck_assert_int_eq(symlink("../real", link_in_it), 0);
    ck_assert_int_eq(symlink(link_in_it, path), 0);
    ck_assert_int_eq(read_keys(), 1);
    ck_assert_int_eq(chmod(open_folder, 0777), 0);
    expect_refusal("chmod go-w");
}

/* A Secret's volume: a sticky folder for all, key -> ..data/key, ..data -> ..2026/,
 * which root made, and the pod's group can read. */
TEST(a_secret_of_kubernetes_passes)
{
    char stamp[128], data[128], real[160];

    ck_assert_int_eq(chmod(folder, 03777), 0);
    snprintf(stamp, sizeof(stamp), "%s/..2026_11_22", folder);
    snprintf(data, sizeof(data), "%s/..data", folder);
    snprintf(real, sizeof(real), "%s/key", stamp);
    ck_assert_int_eq(mkdir(stamp, 0755), 0);
    write_at(real, KEY_A, 0440);
    ck_assert_int_eq(symlink("..2026_11_22", data), 0);
    ck_assert_int_eq(symlink("..data/key", path), 0);
    ck_assert_int_eq(read_keys(), 1);
}

TEST(a_relative_path_is_checked_up_to_the_root)
{
    struct stat seen;

    write_at(path, KEY_A, 0600);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(key_file_read("key", keys, 1, &seen, &e), 1);
    ck_assert_int_eq(key_file_read("./../../tmp//key/..", keys, 1, &seen, &e), -1);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert_int_eq(key_file_read("key", keys, 1, &seen, &e), -1);
    ck_assert_int_eq(chdir("/"), 0);
}

TEST(a_name_that_is_too_long_is_not_cut)
{
    char name[301] = "", there[400];

    memset(name, 'k', 255);
    snprintf(there, sizeof(there), "%s/%s", folder, name);
    write_at(there, KEY_A, 0600);
    memset(name, 'k', 300);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    ck_assert_int_eq(read_keys(), -1);
    ck_assert_int_eq(e.code, ENAMETOOLONG);
}

TEST(a_new_file_is_private_and_replaces_none)
{
    struct key k, other;
    struct stat st;

    snprintf(path, sizeof(path), "%s/config/crun/key", folder);
    umask(0);
    key_generate(0, &k);
    key_generate(0, &other);
    ck_assert_int_eq(key_file_create(path, &k, &e), 0);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(key_file_create(path, &other, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "replaces no key"));
    ck_assert_int_eq(read_keys(), 1);
    ck_assert_str_eq(keys[0].id, k.id);
    *strrchr(path, '/') = '\0';
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
}

TEST(a_file_that_could_not_be_used_is_not_made)
{
    struct key k;

    key_generate(0, &k);
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert_int_eq(key_file_create(path, &k, &e), -1);
    ck_assert_ptr_nonnull(strstr(e.text, "chmod go-w"));
    ck_assert_int_eq(access(path, F_OK), -1);
}
