/* SPDX-License-Identifier: MIT */
#include "worker-lib/engine/abort.h"

#include <string.h>

#include "tests/worlds/check_main.h"

static struct abort_word word(crun_status s, const char *reason)
{
    struct abort_word a = { 0 };

    ck_assert(abort_set(&a, s, reason));
    return a;
}

TEST(the_first_reason_stays)
{
    struct abort_word a = word(CRUN_TIMEOUT, "first");
    struct err e;

    ck_assert(!abort_set(&a, CRUN_ABORTED, "second"));
    ck_assert_int_eq(abort_error(&a, &e), CRUN_TIMEOUT);
    ck_assert_str_eq(e.text, "first");
    ck_assert_int_eq(e.code, ERROR_ABORTED);
}

TEST(a_reason_is_told_with_the_rank_that_had_it_first)
{
    struct abort_word a = word(CRUN_ABORTED, "rank 7 is gone"), heard = { 0 };
    struct abort_notice first = abort_notice(&a, 1204), second;
    struct err e;

    ck_assert_str_eq(first.reason, "rank 1204: rank 7 is gone");
    ck_assert_int_eq(first.rank, 1204);
    ck_assert(abort_set_notice(&heard, &first));
    second = abort_notice(&heard, 3);
    ck_assert_int_eq(memcmp(&first, &second, sizeof(first)), 0);
    ck_assert_int_eq(abort_notice_error(&second, &e), CRUN_ABORTED);
    ck_assert_int_eq(e.code, ERROR_TOLD);
    ck_assert_uint_eq(e.rank, 1204);
}

TEST(an_error_that_was_told_stays_the_tellers)
{
    struct abort_word a = { 0 };
    struct err e;

    (void)err_set(&e, "rank 12: the loss is NaN");
    (void)err_set_code(&e, ERROR_TOLD, 12);
    ck_assert_int_eq(abort_notice_of_error(CRUN_ABORTED, &e).rank, 12);
    ck_assert(abort_set_error(&a, CRUN_ABORTED, &e));
    ck_assert_str_eq(abort_notice(&a, 3).reason, "rank 12: the loss is NaN");
}

TEST(words_like_those_of_a_rank_are_no_ranks)
{
    struct abort_word a = word(CRUN_ABORTED, "rank 12: says the program");

    ck_assert_str_eq(abort_notice(&a, 3).reason, "rank 3: rank 12: says the program");
}

TEST(what_is_too_long_is_cut)
{
    char text[2 * ABORT_REASON_SIZE];
    struct abort_word a;
    struct abort_notice n;

    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    a = word(CRUN_ABORTED, text);
    ck_assert_uint_eq(strlen(a.reason), ABORT_REASON_SIZE - 1);
    n = abort_notice(&a, 0);
    ck_assert_uint_eq(strlen(n.reason), ABORT_REASON_SIZE - 1);
    ck_assert(abort_notice_is_valid(&n));
}

TEST(a_notice_that_makes_no_sense_is_not_believed)
{
    struct abort_word a = word(CRUN_TIMEOUT, "why");
    struct abort_notice n = abort_notice(&a, 0), bad = n;
    struct err e;

    bad.status = CRUN_STATUS_COUNT;
    ck_assert(!abort_notice_is_valid(&bad));
    ck_assert_int_eq(abort_notice_error(&bad, &e), CRUN_PEER_LOST);
    bad = n;
    bad.status = CRUN_OK;
    ck_assert(!abort_notice_is_valid(&bad));
    bad = n;
    bad.rank = -2;
    ck_assert(!abort_notice_is_valid(&bad));
    bad = n;
    memset(bad.reason, 'x', sizeof(bad.reason));
    ck_assert(!abort_notice_is_valid(&bad));
    ck_assert_int_eq(abort_notice_error(&bad, &e), CRUN_PEER_LOST);
    ck_assert_uint_eq(strlen(e.text), ABORT_REASON_SIZE);
}
