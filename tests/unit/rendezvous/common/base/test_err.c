/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/err.h"

#include <errno.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static struct err e;

TEST(a_text_is_set_over_an_older_one)
{
    ck_assert_int_eq(err_set(&e, "an older and longer text"), -1);
    ck_assert_int_eq(err_set(&e, "port %d is %s", 80, "taken"), -1);
    ck_assert_str_eq(e.text, "port 80 is taken");
}

TEST(an_errno_is_told_in_words)
{
    ck_assert_int_eq(err_set_errno(&e, ENOENT, "cannot open %s", "x"), -1);
    ck_assert_str_eq(e.text, "cannot open x: No such file or directory");
}

TEST(context_goes_in_front)
{
    (void)err_set(&e, "no space");
    ck_assert_int_eq(err_wrap(&e, "record %d", 7), -1);
    ck_assert_int_eq(err_wrap(&e, "journal"), -1);
    ck_assert_str_eq(e.text, "journal: record 7: no space");
}

TEST(a_text_may_be_part_of_its_own_successor)
{
    (void)err_set(&e, "inner");
    (void)err_wrap(&e, "%s", e.text);
    ck_assert_str_eq(e.text, "inner: inner");
}

TEST(a_code_stays_while_context_is_added_and_goes_with_the_text)
{
    (void)err_set(&e, "no answer");
    ck_assert_int_eq(e.code, 0);
    ck_assert_int_eq(err_set_code(&e, 7, 12), -1);
    (void)err_wrap(&e, "barrier");
    ck_assert_str_eq(e.text, "barrier: no answer");
    ck_assert_int_eq(e.code, 7);
    ck_assert_uint_eq(e.rank, 12);
    (void)err_set_errno(&e, ENOENT, "cannot open %s", "x");
    ck_assert_int_eq(e.code, 0);
    ck_assert_uint_eq(e.rank, 0);
    (void)err_set_code(&e, 7, 12);
    (void)err_set(&e, "another");
    ck_assert_int_eq(e.code, 0);
}

TEST(what_is_too_long_is_cut_and_ended)
{
    char text[2 * sizeof(e.text)];

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    (void)err_set(&e, "%s", text);
    ck_assert_uint_eq(strlen(e.text), sizeof(e.text) - 1);
    (void)err_wrap(&e, "ab");
    ck_assert_uint_eq(strlen(e.text), sizeof(e.text) - 1);
    ck_assert_int_eq(strncmp(e.text, "ab: xxx", 7), 0);
    (void)err_wrap(&e, "%s", text);
    ck_assert_uint_lt(strlen(e.text), sizeof(e.text));
    ck_assert_int_eq(strncmp(e.text, "xxx", 3), 0);
    (void)err_set_errno(&e, ENOENT, "%s", text);
    ck_assert_uint_eq(strlen(e.text), sizeof(e.text) - 1);
}
