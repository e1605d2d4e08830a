/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/order_filter.h"

#include <check.h>

#include "tests/worlds/check_main.h"

/* -- which orders an agent is given, of all that come ----------------------- */

#define ORDERS_MAX 5

static const struct {
    const char *what;
    struct {
        enum msg_type type;
        uint64_t epoch;
        uint32_t grace_ms;
        bool taken;
    } is[ORDERS_MAX];
} sequences[] = {
    { "an epoch's START counts once",
      { { MSG_START, 1, 0, true },
        { MSG_START, 1, 0, false },
        { MSG_START, 2, 0, true } } },
    { "and not at all once the epoch was stopped",
      { { MSG_STOP, 1, 5, true }, { MSG_START, 1, 0, false } } },
    { "a repeat of STOP counts if it leaves less time",
      { { MSG_START, 1, 0, true },
        { MSG_STOP, 1, 5, true },
        { MSG_STOP, 1, 5, false },
        { MSG_STOP, 1, 2, true },
        { MSG_STOP, 1, 3, false } } },
    { "START of an epoch that is over",
      { { MSG_START, 1, 0, true },
        { MSG_START, 2, 0, true },
        { MSG_START, 1, 0, false } } },
    { "STOP of an epoch that is over",
      { { MSG_START, 1, 0, true },
        { MSG_START, 2, 0, true },
        { MSG_STOP, 1, 5, false },
        { MSG_STOP, 2, 5, true } } },
    { "MEMBERS and ASK_CHECKPOINT of an epoch that is over",
      { { MSG_START, 2, 0, true },
        { MSG_MEMBERS, 1, 0, false },
        { MSG_ASK_CHECKPOINT, 1, 0, false },
        { MSG_MEMBERS, 2, 0, true },
        { MSG_ASK_CHECKPOINT, 2, 0, true } } },
    { "nothing follows DONE, of whatever epoch",
      { { MSG_START, 2, 0, true },
        { MSG_DONE, 1, 0, true },
        { MSG_DONE, 2, 0, false },
        { MSG_START, 3, 0, false } } },
};

TEST_EACH(an_order_is_taken_once_and_in_time, sequences)
{
    struct order_filter o = { 0 };

    for (unsigned i = 0; i < ORDERS_MAX && sequences[_i].is[i].type; i++) {
        struct msg m = { .type = sequences[_i].is[i].type,
                         .epoch = sequences[_i].is[i].epoch };

        if (m.type == MSG_STOP)
            m.stop.grace_ms = sequences[_i].is[i].grace_ms;
        ck_assert_msg(order_filter_take(&o, &m) == sequences[_i].is[i].taken,
                      "%s: order %u is %staken", sequences[_i].what, i + 1,
                      sequences[_i].is[i].taken ? "not " : "");
    }
}

/* -- whether anything of an epoch may live ---------------------------------- */

TEST(an_epoch_lives_until_its_end_is_reported)
{
    struct msg start = { .type = MSG_START, .epoch = 2 };
    struct msg finished = { .type = MSG_FINISHED, .epoch = 1 };
    struct order_filter o = { 0 };

    ck_assert(!o.live);
    ck_assert(order_filter_take(&o, &start));
    ck_assert(o.live);
    order_filter_reported(&o, &finished); /* of the epoch before */
    ck_assert(o.live);
    finished.epoch = 2;
    order_filter_reported(&o, &finished);
    ck_assert(!o.live);
}
