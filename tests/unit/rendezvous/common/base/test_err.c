/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/err.h"

#include <errno.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static struct err e;

START_TEST(a_text_is_set_over_an_older_one)
{
    ck_assert_int_eq(err_set(&e, "an older and longer text"), -1);
    ck_assert_int_eq(err_set(&e, "port %d is %s", 80, "taken"), -1);
    ck_assert_str_eq(e.text, "port 80 is taken");
}
END_TEST

START_TEST(an_errno_is_told_in_words)
{
    ck_assert_int_eq(err_set_errno(&e, ENOENT, "cannot open %s", "x"), -1);
    ck_assert_str_eq(e.text, "cannot open x: No such file or directory");
}
END_TEST

START_TEST(context_goes_in_front)
{
    (void)err_set(&e, "no space");
    ck_assert_int_eq(err_wrap(&e, "record %d", 7), -1);
    ck_assert_int_eq(err_wrap(&e, "journal"), -1);
    ck_assert_str_eq(e.text, "journal: record 7: no space");
}
END_TEST

START_TEST(a_text_may_be_part_of_its_own_successor)
{
    (void)err_set(&e, "inner");
    (void)err_wrap(&e, "%s", e.text);
    ck_assert_str_eq(e.text, "inner: inner");
}
END_TEST

START_TEST(a_code_stays_while_context_is_added_and_goes_with_the_text)
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
END_TEST

START_TEST(what_is_too_long_is_cut_and_ended)
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
END_TEST

int main(void)
{
    Suite *suite = suite_create("err");
    TCase *tc = tcase_create("err");

    tcase_add_test(tc, a_text_is_set_over_an_older_one);
    tcase_add_test(tc, an_errno_is_told_in_words);
    tcase_add_test(tc, context_goes_in_front);
    tcase_add_test(tc, a_text_may_be_part_of_its_own_successor);
    tcase_add_test(tc, a_code_stays_while_context_is_added_and_goes_with_the_text);
    tcase_add_test(tc, what_is_too_long_is_cut_and_ended);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
