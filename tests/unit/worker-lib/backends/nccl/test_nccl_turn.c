/* SPDX-License-Identifier: MIT */
/* The order of several worlds' launches on a GPU. */

#include "tests/worlds/check_main.h"
#include "worker-lib/backends/nccl/nccl_turn.h"

#define DEVICE 3

static int worlds[2];
static struct gpu_event *const event = (struct gpu_event *)(void *)&worlds;

TEST(turns_come_in_the_order_of_the_calls)
{
    struct nccl_line *line = nccl_line_join(DEVICE);
    struct nccl_turn t[3] = { { NULL, false } };

    ck_assert_ptr_eq(nccl_line_join(DEVICE), line);
    for (int i = 0; i < 3; i++)
        nccl_turn_take(line, &t[i]);
    ck_assert(nccl_turn_has_come(line, &t[0]));
    ck_assert(!nccl_turn_has_come(line, &t[1]));
    ck_assert(!nccl_turn_has_come(line, &t[2]));
    nccl_turn_give_back(line, &t[1], &worlds[1], NULL); /* a world that ends */
    ck_assert(!nccl_turn_has_come(line, &t[2]));
    nccl_turn_give_back(line, &t[0], &worlds[0], NULL);
    ck_assert(nccl_turn_has_come(line, &t[2]));
    nccl_turn_give_back(line, &t[2], &worlds[1], NULL);
    nccl_turn_take(line, &t[1]);
    ck_assert(nccl_turn_has_come(line, &t[1]));
    nccl_turn_give_back(line, &t[1], &worlds[1], NULL);
    ck_assert(nccl_line_leave(line, &worlds[0]));
    ck_assert(nccl_line_leave(line, &worlds[1]));
}

TEST(each_gpu_has_its_own_order)
{
    struct nccl_line *one = nccl_line_join(DEVICE), *other = nccl_line_join(DEVICE + 1);
    struct nccl_turn t[2] = { { NULL, false } };

    nccl_turn_take(one, &t[0]);
    nccl_turn_take(other, &t[1]);
    ck_assert(nccl_turn_has_come(one, &t[0]));
    ck_assert(nccl_turn_has_come(other, &t[1]));
    nccl_turn_give_back(one, &t[0], &worlds[0], event);
    ck_assert_ptr_null(nccl_turn_previous(other, &t[1], &worlds[1]));
    nccl_turn_give_back(other, &t[1], &worlds[1], NULL);
    ck_assert(nccl_line_leave(one, &worlds[0]));
    ck_assert(nccl_line_leave(other, &worlds[1]));
}

TEST(a_launch_waits_for_that_of_another_world)
{
    struct nccl_line *line = nccl_line_join(DEVICE);
    struct nccl_turn t = { NULL, false };

    nccl_line_join(DEVICE);
    nccl_turn_take(line, &t);
    ck_assert_ptr_null(nccl_turn_previous(line, &t, &worlds[0]));
    nccl_turn_give_back(line, &t, &worlds[0], event);
    nccl_turn_take(line, &t);
    ck_assert_ptr_null(nccl_turn_previous(line, &t, &worlds[0]));
    ck_assert_ptr_eq(nccl_turn_previous(line, &t, &worlds[1]), event);
    /* the event is in use */
    ck_assert(!nccl_line_forget(line, event));
    ck_assert(!nccl_line_leave(line, &worlds[0]));
    nccl_turn_give_back(line, &t, &worlds[1], NULL);
    nccl_turn_take(line, &t);
    ck_assert_ptr_null(nccl_turn_previous(line, &t, &worlds[1]));
    nccl_turn_give_back(line, &t, &worlds[1], NULL);
    ck_assert(nccl_line_leave(line, &worlds[1]));
}

TEST(an_event_that_is_destroyed_is_not_waited_for)
{
    struct nccl_line *line = nccl_line_join(DEVICE);
    struct nccl_turn t = { NULL, false };

    nccl_turn_take(line, &t);
    nccl_turn_give_back(line, &t, &worlds[0], event);
    ck_assert(nccl_line_forget(line, event));
    nccl_turn_take(line, &t);
    ck_assert_ptr_null(nccl_turn_previous(line, &t, &worlds[1]));
    nccl_turn_give_back(line, &t, &worlds[1], NULL);
    ck_assert(nccl_line_leave(line, &worlds[0]));
}
