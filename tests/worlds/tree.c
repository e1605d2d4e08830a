/* SPDX-License-Identifier: MIT */
#include "tests/worlds/tree.h"

#include <check.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

char tree_root[64];

void tree_setup(void)
{
    /* in memory, if possible: these are many small files */
    strcpy(tree_root, "/dev/shm/crun-tree-XXXXXX");
    if (mkdtemp(tree_root))
        return;
    strcpy(tree_root, "/tmp/crun-tree-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(tree_root));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

void tree_teardown(void)
{
    ck_assert_int_eq(nftw(tree_root, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void make_directories(char *path)
{
    for (char *slash = path + strlen(tree_root) + 1; (slash = strchr(slash, '/'));
         slash++) {
        *slash = '\0';
        mkdir(path, 0755);
        *slash = '/';
    }
}

void tree_put(const char *text, const char *fmt, ...)
{
    char path[512];
    size_t length;
    va_list ap;
    FILE *out;

    length = (size_t)snprintf(path, sizeof(path), "%s/", tree_root);
    va_start(ap, fmt);
    vsnprintf(path + length, sizeof(path) - length, fmt, ap);
    va_end(ap);
    out = fopen(path, "w");
    if (!out) {
        make_directories(path);
        out = fopen(path, "w");
    }
    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    ck_assert_int_eq(fclose(out), 0);
}

void tree_remove(const char *path)
{
    char whole[512];

    snprintf(whole, sizeof(whole), "%s/%s", tree_root, path);
    ck_assert_int_eq(nftw(whole, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}
