/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/xalloc.h"

#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

START_TEST(copies_are_whole_and_of_their_own)
{
    char text[] = "abc";
    char *copy = xstrdup(text), *bytes = xmemdup(text, sizeof(text));

    text[0] = 'x';
    ck_assert_str_eq(copy, "abc");
    ck_assert_mem_eq(bytes, "abc", 4);
    free(copy);
    free(bytes);
}
END_TEST

START_TEST(nothing_at_all_can_be_allocated)
{
    free(xmalloc(0));
    free(xcalloc(0, 8));
    free(xmemdup(NULL, 0));
}
END_TEST

START_TEST(counted_memory_is_zero_and_grows_with_its_bytes)
{
    char *memory = xcalloc(4, 2);

    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(memory[i], 0);
    memory[7] = 'x';
    memory = xrealloc(memory, 100000);
    ck_assert_int_eq(memory[7], 'x');
    free(memory);
}
END_TEST

START_TEST(a_text_is_formatted_at_any_length)
{
    char *text = xasprintf("%d %*s", 7, 10000, "end");

    ck_assert_uint_eq(strlen(text), 10002);
    ck_assert_str_eq(text + 9999, "end");
    free(text);
}
END_TEST

/* volatile: compilers know that no object is this large, and say so */
static volatile size_t too_much = PTRDIFF_MAX;

START_TEST(no_memory_ends_the_program)
{
    void *memory = _i == 0   ? xmalloc(too_much)
                   : _i == 1 ? xcalloc(too_much, 16)
                             : xrealloc(NULL, too_much);

    free(memory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("xalloc");
    TCase *tc = tcase_create("xalloc");

    tcase_add_test(tc, copies_are_whole_and_of_their_own);
    tcase_add_test(tc, nothing_at_all_can_be_allocated);
    tcase_add_test(tc, counted_memory_is_zero_and_grows_with_its_bytes);
    tcase_add_test(tc, a_text_is_formatted_at_any_length);
    /* the sanitizers' own malloc ends the program in its own way */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_loop_test_raise_signal(tc, no_memory_ends_the_program, SIGABRT, 0, 3);
#else
    (void)no_memory_ends_the_program;
#endif
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
