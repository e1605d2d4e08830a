/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/xalloc.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

TEST(copies_are_whole_and_of_their_own)
{
    char text[] = "abc";
    char *copy = xstrdup(text), *bytes = xmemdup(text, sizeof(text));

    text[0] = 'x';
    ck_assert_str_eq(copy, "abc");
    ck_assert_mem_eq(bytes, "abc", 4);
    free(copy);
    free(bytes);
}

TEST(nothing_at_all_can_be_allocated)
{
    free(xmalloc(0));
    free(xcalloc(0, 8));
    free(xmemdup(NULL, 0));
}

TEST(counted_memory_is_zero_and_grows_with_its_bytes)
{
    char *memory = xcalloc(4, 2);

    for (int i = 0; i < 8; i++)
        ck_assert_int_eq(memory[i], 0);
    memory[7] = 'x';
    memory = xrealloc(memory, 100000);
    ck_assert_int_eq(memory[7], 'x');
    free(memory);
}

TEST(a_text_is_formatted_at_any_length)
{
    char *text = xasprintf("%d %*s", 7, 10000, "end");

    ck_assert_uint_eq(strlen(text), 10002);
    ck_assert_str_eq(text + 9999, "end");
    free(text);
}

/* volatile: compilers know that no object is this large, and say so */
static volatile size_t too_much = PTRDIFF_MAX;

/* the sanitizers' own malloc ends the program in its own way */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RUNS 0
#else
#define RUNS 3
#endif

TEST_RAISES(no_memory_ends_the_program, SIGABRT, 0, RUNS)
{
    void *memory = _i == 0   ? xmalloc(too_much)
                   : _i == 1 ? xcalloc(too_much, 16)
                             : xrealloc(NULL, too_much);

    free(memory);
}
