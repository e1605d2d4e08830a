/* SPDX-License-Identifier: MIT */
#include "tests/worlds/checkpoint_world.h"

FIXTURE(setup, teardown);

TEST(what_is_saved_is_loaded)
{
    crun_sampler_options so = { .samples = 100, .seed = 3, .size = 1 };
    crun_extra in[] = { { "pass", "4" }, { "best", "0.98" } };
    crun_extra out[] = { { "best", "" }, { "unheard", "?" } };
    crun_checkpoints *c = open_dir();
    crun_sampler *s;
    uint64_t step, index[10];

    ck_assert_int_eq(crun_sampler_create(&s, &so), CRUN_OK);
    crun_sampler_set_pass(s, 2);
    crun_sampler_next(s, index, 10);
    fill(5);
    ck_assert_int_eq(crun_checkpoint_save(c, 42, ddp, optim, s, in, 2), CRUN_OK);
    crun_checkpoints_close(c);

    c = open_dir();
    crun_sampler_set_pass(s, 0);
    fill(-1);
    ck_assert_int_eq(crun_checkpoint_load(c, "", &step, ddp, optim, s, out, 2),
                     CRUN_OK);
    ck_assert_uint_eq(step, 42);
    expect_filled(5);
    ck_assert_str_eq(out[0].value, "0.98");
    ck_assert_str_eq(out[1].value, "");
    ck_assert_uint_eq(crun_sampler_left(s), 90);
    crun_sampler_destroy(s);
    crun_checkpoints_close(c);
}

static atomic_bool disk_holds;
static atomic_uint syncs;

/* In place of libc's. */
int fsync(int fd)
{
    syncs++;
    while (disk_holds)
        usleep(1000);
    return (int)syscall(SYS_fsync, fd);
}

/* Its agent gives the rank time to finish. */
TEST(the_status_page_shows_a_checkpoint_while_it_is_written)
{
    struct progress_page *page;
    crun_checkpoints *c;
    char path[128];
    int fd = memfd_create("page", 0);

    ck_assert_int_eq(ftruncate(fd, PROGRESS_PAGE_BYTES), 0);
    page = mmap(NULL, PROGRESS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert(page != MAP_FAILED);
    page->magic = PROGRESS_MAGIC;
    page->version = PROGRESS_VERSION;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    setenv(PROGRESS_ENV, path, 1);
    crun_finalize(world);
    ck_assert_int_eq(crun_init(&world, NULL), CRUN_OK);
    c = open_dir();
    fill(5);
    syncs = 0;
    disk_holds = true;
    ck_assert_int_eq(crun_checkpoint_save(c, 42, ddp, optim, NULL, NULL, 0), CRUN_OK);
    while (!syncs)
        usleep(1000);
    ck_assert_uint_eq(page->flags, PROGRESS_SAVES);
    ck_assert_uint_eq(page->writing, 0); /* it reports no progress */
    disk_holds = false;
    ck_assert_int_eq(crun_checkpoint_wait(c), CRUN_OK);
    ck_assert_uint_eq(page->flags, 0);
    crun_checkpoints_close(c);
    unsetenv(PROGRESS_ENV);
    close(fd);
}

TEST(extras_are_text_that_others_can_read)
{
    static const crun_extra bad[][2] = {
        { { "a", "" }, { "a", "" } },    { { NULL, "" }, { "a", "" } },
        { { "", "" }, { "a", "" } },     { { "a", "\xff" }, { "b", "" } },
        { { "a", "" }, { "\x80", "" } }, { { "a", "\xed\xa0\x80" }, { "b", "" } },
    };
    crun_extra full = { .key = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x8e\xb2" };
    crun_checkpoints *c = open_dir();

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_int_eq(crun_checkpoint_save(c, 1, ddp, optim, NULL, bad[i], 2),
                         CRUN_BAD_ARGUMENT);
    memset(full.value, 'x', sizeof(full.value)); /* without an end */
    ck_assert_int_eq(crun_checkpoint_save(c, 1, ddp, optim, NULL, &full, 1),
                     CRUN_BAD_ARGUMENT);
    full.value[sizeof(full.value) - 1] = '\0';
    ck_assert_int_eq(crun_checkpoint_save(c, 1, ddp, optim, NULL, &full, 1), CRUN_OK);
    crun_checkpoints_close(c);
}

TEST(an_empty_directory_has_none)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    ck_assert_int_eq(load(c, "", &step), CRUN_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), dir));
    crun_checkpoints_close(c);
}

/* Where nothing is to be written, one file can be read all the same. */
TEST(without_a_directory_files_are_loaded)
{
    crun_checkpoint_options none = { .directory = NULL };
    crun_checkpoints *c = open_dir();
    uint64_t step;

    save(c, 10, 4);
    crun_checkpoints_close(c);
    ck_assert_int_eq(crun_checkpoints_open(&c, world, &none), CRUN_OK);
    ck_assert_int_eq(load(c, path_of(1, 10, 1, 1), &step), CRUN_OK);
    ck_assert_uint_eq(step, 10);
    expect_filled(4);
    ck_assert_int_eq(load(c, "", &step), CRUN_BAD_ARGUMENT);
    ck_assert_int_eq(crun_checkpoint_save(c, 1, ddp, optim, NULL, NULL, 0),
                     CRUN_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "have no directory"));
    crun_checkpoints_close(c);
    ck_assert_uint_eq(files("generation-"), 1);
}

TEST(the_last_ones_are_kept)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    for (unsigned i = 1; i <= 5; i++)
        save(c, i * 10, (float)i);
    ck_assert_uint_eq(files("checkpoint-"), 2);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 50);
    ck_assert_int_eq(load(c, path_of(1, 40, 1, 1), &step), CRUN_OK);
    expect_filled(4);
    crun_checkpoints_close(c);
}

/* The program goes back to an earlier step. */
TEST(what_is_saved_last_is_the_newest)
{
    crun_checkpoints *c = open_dir();
    char old[256];
    uint64_t step;

    for (unsigned i = 1; i <= 3; i++)
        save(c, i * 10, (float)i);
    strcpy(old, path_of(1, 20, 1, 1));
    ck_assert_int_eq(load(c, old, &step), CRUN_OK);
    ck_assert_uint_eq(step, 20);
    save(c, 21, 4);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 21);
    expect_filled(4);
    save(c, 21, 5); /* the same step again */
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    expect_filled(5);
    ck_assert_uint_eq(files("-s000021-"), 2);
    ck_assert_uint_eq(files("checkpoint-"), 2);
    crun_checkpoints_close(c);
}

/* Their saves have no number, and the order of their steps. */
TEST(files_of_earlier_versions_are_loaded)
{
    crun_checkpoints *c = open_dir();
    char old[256];
    uint64_t step;

    for (unsigned i = 1; i <= 2; i++) {
        save(c, i * 10, (float)i);
        snprintf(old, sizeof(old), "%s/checkpoint-g1-s%06u-1of1.safetensors", dir,
                 30 - i * 10);
        ck_assert_int_eq(rename(path_of(1, i * 10, 1, 1), old), 0);
    }
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    expect_filled(1);
    ck_assert_int_eq(load(c, old, &step), CRUN_OK);
    expect_filled(2);
    crun_checkpoints_close(c);
    c = open_dir();
    save(c, 5, 3);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 5);
    ck_assert_uint_eq(files("checkpoint-"), 2);
    crun_checkpoints_close(c);
}

/* Values belong to names, those of the optimizer's state as well. */
TEST(the_order_of_parameters_may_change)
{
    static const struct state_range a = { 0, 300, weight },
                                    b = { 0, 700, weight + 300 },
                                    b_first = { 0, 700, weight },
                                    a_last = { 0, 300, weight + 700 };
    crun_checkpoints *c = open_dir();
    uint64_t step;

    model[0] = array("a", CRUN_F32, 300, &a);
    model[1] = array("b", CRUN_F32, 700, &b);
    save(c, 10, 1);
    model[0] = array("b", CRUN_F32, 700, &b_first);
    model[1] = array("a", CRUN_F32, 300, &a_last);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    for (unsigned i = 0; i < TOTAL; i++) {
        float number = (float)((i + 300) % TOTAL);

        ck_assert(weight[i] == 1 + number);
        ck_assert(momentum[i] == 1 - number);
    }
    crun_checkpoints_close(c);
}

TEST_LOOP(a_refused_load_changes_nothing, 0, 2)
{
    crun_sampler_options so = { .samples = 100, .seed = 3, .size = 1 };
    crun_extra in = { "pass", "4" }, out = { "pass", "?" };
    crun_checkpoints *c = open_dir();
    crun_sampler *s;
    uint64_t step = 7;

    ck_assert_int_eq(crun_sampler_create(&s, &so), CRUN_OK);
    fill(5);
    ck_assert_int_eq(crun_checkpoint_save(c, 42, ddp, optim, _i ? s : NULL, &in, 1),
                     CRUN_OK);
    crun_sampler_destroy(s);
    so.seed = 4;
    ck_assert_int_eq(crun_sampler_create(&s, &so), CRUN_OK);
    fill(2);
    ck_assert_int_eq(crun_checkpoint_load(c, "", &step, ddp, optim, s, &out, 1),
                     CRUN_MISMATCH);
    expect_filled(2);
    ck_assert_str_eq(out.value, "?");
    ck_assert_uint_eq(step, 7);
    ck_assert_uint_eq(crun_sampler_left(s), 100);
    crun_sampler_destroy(s);
    crun_checkpoints_close(c);
}

/* A program that took it for its first start would begin again. */
TEST(damaged_ones_alone_are_an_error)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    save(c, 10, 1);
    damage(path_of(1, 10, 1, 1));
    ck_assert_int_eq(load(c, "", &step), CRUN_CORRUPT);
    crun_checkpoints_close(c);
}

TEST(a_damaged_one_is_passed_over)
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    save(c, 10, 1);
    save(c, 20, 2);
    damage(path_of(1, 20, 1, 1));
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 10);
    expect_filled(1);
    ck_assert_ptr_nonnull(
        strstr(warnings, "checkpoint-g1.000002-s000020-1of1.safetensors"));
    ck_assert_int_eq(load(c, path_of(1, 20, 1, 1), &step), CRUN_CORRUPT);
    crun_checkpoints_close(c);
}

/* A newer life orders before any step of an older one, which may write no more. */
TEST(an_older_life_is_refused)
{
    crun_checkpoints *old = open_dir(), *c;
    uint64_t step;

    save(old, 1000, 1);
    c = open_dir();
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    save(c, 10, 2);
    fill(3);
    ck_assert_int_eq(crun_checkpoint_save(old, 1010, ddp, optim, NULL, NULL, 0),
                     CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(old), CRUN_STALE);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "another job, or a later start"));
    ck_assert_int_eq(crun_checkpoint_save(old, 1020, ddp, optim, NULL, NULL, 0),
                     CRUN_STALE);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 10);
    expect_filled(2);
    ck_assert_uint_eq(files(".new"), 0);
    ck_assert_uint_eq(files("generation-"), 1);
    crun_checkpoints_close(old);
    crun_checkpoints_close(c);
}

/* The next start then has the number of this one. */
TEST(a_life_whose_directory_was_replaced_is_refused)
{
    crun_checkpoints *old = open_dir(), *c;
    char away[80];
    uint64_t step;

    save(old, 1000, 1);
    snprintf(away, sizeof(away), "%s.away", dir);
    ck_assert_int_eq(rename(dir, away), 0);
    c = open_dir();
    save(c, 10, 2);
    fill(3);
    ck_assert_int_eq(crun_checkpoint_save(old, 1010, ddp, optim, NULL, NULL, 0),
                     CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(old), CRUN_STALE);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "was replaced"));
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 10);
    expect_filled(2);
    crun_checkpoints_close(old);
    crun_checkpoints_close(c);
}

TEST(the_program_may_change_its_directory)
{
    crun_checkpoint_options o = { .directory = dir + strlen("/tmp/") };
    crun_checkpoints *c;

    ck_assert_int_eq(chdir("/tmp"), 0);
    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_OK);
    ck_assert_int_eq(chdir("/"), 0);
    save(c, 10, 1);
    ck_assert_uint_eq(files(".safetensors"), 1);
    crun_checkpoints_close(c);
}

static const char *const new_ends[] = { ".new", ".0123abcd.new" };

TEST_LOOP(what_a_killed_writer_left_is_removed, 0, 2)
{
    crun_checkpoints *c = open_dir();
    char left[300];

    snprintf(left, sizeof(left), "%s%s", path_of(1, 5, 1, 1), new_ends[_i]);
    close(open(left, O_CREAT | O_WRONLY, 0600));
    crun_checkpoints_close(c);
    c = open_dir();
    save(c, 10, 1);
    ck_assert_int_lt(access(left, F_OK), 0);
    crun_checkpoints_close(c);
}

/* Another user may put a link into a shared folder. */
TEST(a_planted_link_is_not_followed)
{
    crun_checkpoints *c = open_dir();
    char victim[200], link[300], text[16] = "";
    FILE *f;

    snprintf(victim, sizeof(victim), "%s-victim", dir);
    f = fopen(victim, "w");
    fputs("mine", f);
    fclose(f);
    snprintf(link, sizeof(link), "%s.new", path_of(1, 10, 1, 1));
    ck_assert_int_eq(symlink(victim, link), 0);
    ck_assert_int_eq(symlink(victim, path_of(1, 10, 1, 1)), 0);
    save(c, 10, 1);
    crun_checkpoints_close(c);
    f = fopen(victim, "r");
    ck_assert_ptr_nonnull(fgets(text, sizeof(text), f));
    fclose(f);
    ck_assert_str_eq(text, "mine");
    unlink(victim);
}

static const struct other_training {
    const char *name;
    crun_dtype type;
    size_t total;
    const struct state_range *range;
    const char *words;
} others[] = {
    { "fc.weight", CRUN_F32, TOTAL + 1, &weight_range, "1000 elements in the file" },
    { "fc.weight", CRUN_I32, TOTAL, &weight_range,
      "not complete in the file, or not of" },
    { "fc.bias", CRUN_F32, TOTAL, &weight_range, "has no fc.bias" },
    { "bn.mean", CRUN_F32, 7, &running_range, "also has fc.weight" },
};

TEST_LOOP(a_checkpoint_of_another_model_is_an_error, 0,
          sizeof(others) / sizeof(*others))
{
    crun_checkpoints *c = open_dir();
    uint64_t step;

    save(c, 10, 1);
    model[0] = array(others[_i].name, others[_i].type, others[_i].total,
                     others[_i].range);
    ck_assert_int_eq(load(c, "", &step), CRUN_MISMATCH);
    ck_assert_msg(strstr(crun_error_text(), others[_i].words), "%s", crun_error_text());
    ck_assert(weight[5] == 4.f); /* nothing was touched */
    crun_checkpoints_close(c);
}

TEST(a_full_disk_leaves_the_last_one)
{
    crun_checkpoints *c;
    uint64_t step;
    bool mounted;

    *strstr(dir, "/a/b") = '\0';
    mounted = mount("none", dir, "tmpfs", 0, "size=32k") == 0;
    strcat(dir, "/a/b");
    SKIP_UNLESS(mounted, "no file system can be mounted here");
    c = open_dir();
    save(c, 10, 1);
    save(c, 20, 2);
    fill(3);
    ck_assert_int_eq(crun_checkpoint_save(c, 30, ddp, optim, NULL, NULL, 0), CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(c), CRUN_NO_SPACE);
    ck_assert_uint_eq(files(".new"), 0);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 20);
    crun_checkpoints_close(c);
    *strstr(dir, "/a/b") = '\0';
    ck_assert_int_eq(umount(dir), 0);
    strcat(dir, "/a/b");
}

TEST(a_directory_that_cannot_be_written)
{
    crun_checkpoint_options o = { .directory = "/proc/nothing" };
    crun_checkpoints *c;

    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_SYSTEM);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "/proc/nothing"));
    o.directory = "";
    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_BAD_ARGUMENT);
}

static const struct name_case {
    const char *name;
    bool good;
} names[] = {
    { "checkpoint-g7-s001200-1of4.safetensors", true },
    { "checkpoint-g7.000012-s001200-1of4.safetensors", true },
    { "checkpoint-g7.000000-s001200-1of4.safetensors", false },
    { "checkpoint-g7.12-s001200-1of4.safetensors", false },
    { "checkpoint-g7.-s001200-1of4.safetensors", false },
    { "checkpoint-g7", false },
    { "checkpoint-g7-s1200300400-4of4.safetensors", true },
    { "checkpoint-g7-s001200-0of4.safetensors", false },
    { "checkpoint-g7-s001200-5of4.safetensors", false },
    { "checkpoint-g7-s001200-1of4.safetensors.new", false },
    { "checkpoint-g07-s001200-1of4.safetensors", false },
    { "checkpoint-g7-s1200-1of4.safetensors", false },
    { "checkpoint-g-7-s001200-1of4.safetensors", false },
    { "model.safetensors", false },
};

TEST_LOOP(names_are_read_strictly, 0, sizeof(names) / sizeof(*names))
{
    struct checkpoint_set set;
    unsigned part;

    ck_assert(checkpoint_parse(names[_i].name, &set, &part) == names[_i].good);
}

/* -- in memory --------------------------------------------------------------------- */

/* _i 0: no launcher offers memory; 1: its agent is gone. */
TEST_LOOP(without_memory_there_are_files, 0, 2)
{
    crun_checkpoint_options o = { .directory = dir, .warn = warn, .memory_every = 1 };
    crun_checkpoints *c;
    uint64_t step;

    if (_i) {
        setenv("RANK", "0", 1);
        setenv("WORLD_SIZE", "1", 1);
        setenv("CRUN_MEMORY", "@crun-test-nobody", 1);
    } else {
        unsetenv("CRUN_MEMORY");
    }
    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_OK);
    save(c, 7, 3);
    ck_assert_int_eq(crun_checkpoint_step(c, 8, ddp, optim, NULL, NULL, 0), CRUN_OK);
    ck_assert_int_eq(load(c, "", &step), CRUN_OK);
    ck_assert_uint_eq(step, 7);
    ck_assert(!crun_checkpoint_in_memory(c));
    expect_filled(3);
    if (_i)
        ck_assert_ptr_nonnull(
            strstr(warnings, "files only: rank 0: memory: cannot reach the agent"));
    else
        ck_assert_str_eq(warnings, "");
    crun_checkpoints_close(c);
}
