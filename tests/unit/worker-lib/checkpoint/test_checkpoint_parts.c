/* SPDX-License-Identifier: MIT */
/* Checkpoints in the parts of several ranks, as files and as sections in memory. */
#include "tests/worlds/checkpoint_world.h"

static struct err e;

FIXTURE(setup, teardown);

/* As three ranks write it, in unequal parts; read whole, as by a world of one. */
static const struct checkpoint_claim claim = { 1, "0123456789abcdef0123456789abcdef" };

static void save_in_three(uint64_t step, const struct checkpoint_claim *by)
{
    static const size_t begins[] = { 0, 400, 401, TOTAL };
    struct checkpoint_target to = { world, dir, by, { 1, step / 10, step, 3, 0 }, 0 };
    const struct state_queues queues = { .ops = &device_cpu };
    struct checkpoint_memory memory = { 0 };
    char claimed[100];
    FILE *f;

    snprintf(claimed, sizeof(claimed), "%s/generation-%" PRIu64, dir, by->generation);
    f = fopen(claimed, "w");
    ck_assert_ptr_nonnull(f);
    fputs(by->id, f);
    fclose(f);
    for (unsigned r = 0; r < 3; r++) {
        struct state_part all[3];
        struct checkpoint_copy *copy;

        hold(begins[r], begins[r + 1] - begins[r]);
        memcpy(all, model, sizeof(model));
        all[2] = state[0];
        ck_assert_int_eq(
            checkpoint_copy_take(&copy,
                                 &(struct checkpoint_content){ .step = step,
                                                               .optim = &scalars,
                                                               .part = all,
                                                               .parts = 3,
                                                               .whole = r == 0 },
                                 &queues, &memory),
            CRUN_OK);
        to.part = r + 1;
        ck_assert_int_eq(checkpoint_copy_write(copy, &to, &e), CRUN_OK);
        checkpoint_copy_free(copy);
    }
    checkpoint_memory_free(&memory);
    hold(0, TOTAL);
}

TEST(parts_of_several_ranks_are_put_together)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    fill(6);
    save_in_three(10, &claim);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    expect_filled(6);
    fill(-1);
    hold(300, 200); /* one rank of another world takes its own */
    ck_assert_int_eq(crun_checkpoint_load(c, "", &step, ddp, optim, NULL, NULL, 0),
                     CRUN_OK);
    ck_assert(momentum[299] == -1 - 299.f && momentum[300] == 6 - 300.f);
    ck_assert(momentum[499] == 6 - 499.f && momentum[500] == -1 - 500.f);
    crun_checkpoints_close(c);
}

/* State in several ranges is no reason for several files, if one rank has them all. */
TEST(whole_state_in_ranges_is_one_file)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    momentum_range[0] = (struct state_range){ 0, 600, momentum };
    momentum_range[1] = (struct state_range){ 600, TOTAL - 600, momentum + 600 };
    state[0].ranges = 2;
    ck_assert(!checkpoint_is_sharded(state, 1));
    save(c, 10, 1);
    ck_assert_int_eq(load(c, path_of(1, 10, 1, 1), &step), CRUN_OK);
    expect_filled(1);
    crun_checkpoints_close(c);
}

TEST(a_missing_part_makes_it_no_checkpoint)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    fill(6);
    save_in_three(10, &claim);
    ck_assert_int_eq(unlink(path_of(1, 10, 2, 3)), 0);
    ck_assert_int_eq(load(c, path_of(1, 10, 1, 3), &step), CRUN_NOT_FOUND);
    ck_assert_int_eq(load(c, "", &step), CRUN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "step 10: 2 of 3 parts"));
    ck_assert_str_eq(warnings, crun_error_text());
    crun_checkpoints_close(c);
}

/* A rank is killed before it saves the step again. */
TEST(a_save_that_was_not_completed_is_passed_over)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    fill(6);
    save_in_three(10, &claim);
    fill(7);
    save_in_three(20, &claim);
    ck_assert_int_eq(unlink(path_of(1, 20, 2, 3)), 0);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 10);
    expect_filled(6);
    ck_assert_ptr_nonnull(strstr(warnings, "step 20: 2 of 3 parts"));
    crun_checkpoints_close(c);
}

/* Not even if their names agree, as in copies of two folders. */
TEST(parts_of_different_saves_are_not_mixed)
{
    static const struct checkpoint_claim other = { 1,
                                                   "ffffffffffffffffffffffffffffffff" };
    crun_checkpoints *c = open_dir();
    char of_other[300];
    uint64_t step;

    fill(6);
    save_in_three(10, &other);
    snprintf(of_other, sizeof(of_other), "%s-other", path_of(1, 10, 2, 3));
    ck_assert_int_eq(rename(path_of(1, 10, 2, 3), of_other), 0);
    save_in_three(10, &claim);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_int_eq(rename(of_other, path_of(1, 10, 2, 3)), 0);
    ck_assert_int_eq(load(c, path_of(1, 10, 1, 3), &step), CRUN_CORRUPT);
    crun_checkpoints_close(c);
}

TEST(parts_of_different_checkpoints_are_not_mixed)
{
    crun_checkpoints *c = open_dir();
    char from[256];
    uint64_t step;

    fill(6);
    save_in_three(10, &claim);
    save_in_three(20, &claim);
    strcpy(from, path_of(1, 10, 2, 3));
    ck_assert_int_eq(rename(from, path_of(1, 20, 2, 3)), 0);
    ck_assert_int_eq(load(c, path_of(1, 20, 1, 3), &step), CRUN_CORRUPT);
    crun_checkpoints_close(c);
}

/* The section as a file of tensors, in buf. */
static struct tensors *make_section(int use, uint8_t *buf, size_t room)
{
    struct state_queues queues = { .ops = &device_cpu };
    struct checkpoint_content content = {
        .step = 5,
        .optim = &scalars,
        .part = (struct state_part[]){ model[0], model[1], state[0] },
        .parts = 3,
        .use = use,
        .divided = ddp_is_divided(ddp)
    };
    const struct checkpoint_claim by = { 6, "start" };
    const struct checkpoint_target to = {
        world, dir, &by, { .generation = 6, .save = 9, .step = 5, .parts = 4 }, 1
    };
    struct checkpoint_memory memory = { .data = NULL };
    struct checkpoint_section s;
    struct checkpoint_copy *copy;
    struct tensors *t;
    size_t at = 0;

    ck_assert_int_eq(checkpoint_copy_take(&copy, &content, &queues, &memory), CRUN_OK);
    ck_assert_int_eq(checkpoint_copy_section(copy, &to, &s, &e), CRUN_OK);
    ck_assert_uint_le(s.bytes, room);
    for (size_t i = 0; i < s.pieces; at += s.piece[i++].bytes)
        memcpy(buf + at, s.piece[i].data, s.piece[i].bytes);
    ck_assert_uint_eq(at, s.bytes);
    checkpoint_section_free(&s);
    checkpoint_copy_free(copy);
    checkpoint_memory_free(&memory);
    ck_assert_int_eq(tensors_open_bytes(&t, buf, at, &e), CRUN_OK);
    ck_assert_str_eq(tensors_word(t, "step"), "5");
    ck_assert_str_eq(tensors_word(t, "part"), "1of4");
    ck_assert_str_eq(tensors_word(t, "generation"), "6");
    ck_assert_str_eq(tensors_word(t, "save"), "start 9");
    return t;
}

TEST_LOOP(only_divided_state_is_a_ranks_own, 0, 2)
{
    static uint8_t shared[16384], own[16384];
    struct tensors *s, *o;

    if (_i)
        hold(100, 50);
    fill(3);
    s = make_section(FOR_SHARED, shared, sizeof(shared));
    o = make_section(FOR_OWN, own, sizeof(own));
    ck_assert_uint_eq(tensors_count(s), _i ? 2 : 3);
    ck_assert_uint_eq(tensors_count(o), _i ? 1 : 0);
    if (_i) {
        ck_assert_str_eq(tensors_item(o, 0)->name, "optimizer.m@100");
        ck_assert_mem_eq(tensors_item(o, 0)->data, momentum + 100, 50 * sizeof(float));
    }
    tensors_close(s);
    tensors_close(o);
}
