/* SPDX-License-Identifier: MIT */
/* The interpreter that a shim of pyenv or asdf starts. */
#include "launcher/program/interpreter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/worlds/check_main.h"

static char shim[64];

static void setup(void)
{
    strcpy(shim, "/tmp/test-python-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(shim));
    strcat(shim, "/shims");
    ck_assert_int_eq(mkdir(shim, 0755), 0);
    strcat(shim, "/python3");
}

static void teardown(void)
{
    char remove[96];

    snprintf(remove, sizeof(remove), "rm -rf %.*s",
             (int)strlen("/tmp/test-python-XXXXXX"), shim);
    ck_assert_int_eq(system(remove), 0);
}

static char *python_behind(const char *script)
{
    FILE *f = fopen(shim, "w");

    ck_assert_ptr_nonnull(f);
    fprintf(f, "#!/bin/sh\n%s\n", script);
    ck_assert_int_eq(fclose(f), 0);
    ck_assert_int_eq(chmod(shim, 0755), 0);
    return python_behind_shim(shim);
}

FIXTURE(setup, teardown);

TEST(a_shim_tells_its_interpreter)
{
    char *python = python_behind("printf /proc/self/exe");

    ck_assert_ptr_nonnull(python);
    ck_assert_str_eq(python, "/proc/self/exe");
    free(python);
}

static const char *const useless[] = {
    "exit 1",
    "printf python3",
    "printf /nowhere/python3",
    "printf /proc/self/exe; exit 1",
    "printf \"$0\"", /* a script again */
    "kill $$",
    /* more than a path and a pipe hold: crun does not read on, and does not wait */
    "head -c 200000 /dev/zero | tr '\\0' /",
};

TEST_EACH(other_scripts_tell_none, useless)
{
    ck_assert_ptr_null(python_behind(useless[_i]));
}

TEST(only_a_folder_of_shims_has_shims)
{
    ck_assert_ptr_null(python_behind_shim("/bin/sh"));
    ck_assert_ptr_null(python_behind_shim("python3"));
    ck_assert_ptr_null(python_behind_shim("shims/nowhere"));
}
