/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "rendezvous/common/base/progress_page.h"
#include "tests/worlds/check_main.h"
#include "worker-lib/checkpoint/checkpoint_file.h"

/*
 * A training without a training: the state that checkpoints ask for is made here, held
 * whole or, as of a rank of several, in ranges.
 */
#define TOTAL 1000

static float weight[TOTAL], running[7], momentum[TOTAL];
static struct state_range weight_range = { 0, TOTAL, weight };
static struct state_range running_range = { 0, 7, running };
static struct state_range momentum_range[2];
static struct state_part model[2], state[1];
static struct optim_scalars scalars;
static crun_world *world;
static char dir[64];
static char warnings[2048];
static struct err e;

unsigned ddp_state(crun_ddp *ddp, const struct state_part **parts)
{
    *parts = model;
    return 2;
}

const struct device_ops *ddp_device(const crun_ddp *ddp)
{
    return &device_cpu;
}

crun_status ddp_copy_begin(crun_ddp *ddp, struct state_queues *queues)
{
    *queues = (struct state_queues){ .ops = &device_cpu };
    return CRUN_OK;
}

crun_status crun_ddp_gather(crun_ddp *ddp)
{
    return CRUN_OK;
}

crun_status ddp_await_copies(crun_ddp *ddp)
{
    return CRUN_OK;
}

bool ddp_is_divided(const crun_ddp *ddp)
{
    return state[0].range[0].count < TOTAL;
}

crun_status ddp_put(crun_ddp *ddp, void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return CRUN_OK;
}

crun_status ddp_state_put(crun_ddp *ddp)
{
    return CRUN_OK;
}

crun_status optim_state_fetch(crun_optim *optim)
{
    return CRUN_OK;
}

crun_status optim_state_put(crun_optim *optim)
{
    return CRUN_OK;
}

crun_world *ddp_world(const crun_ddp *ddp)
{
    return world;
}

unsigned optim_own_state(crun_optim *optim, const struct state_part **parts)
{
    return optim_state(optim, parts);
}

unsigned optim_state(crun_optim *optim, const struct state_part **parts)
{
    *parts = state;
    return 1;
}

const struct optim_scalars *optim_scalars_in_place(const crun_optim *optim)
{
    return &scalars;
}

void optim_get_scalars(const crun_optim *optim, struct optim_scalars *s)
{
    *s = scalars;
}

crun_status optim_set_scalars(crun_optim *optim, const struct optim_scalars *s)
{
    scalars = *s;
    return CRUN_OK;
}

static crun_ddp *const ddp = (crun_ddp *)weight;
static crun_optim *const optim = (crun_optim *)momentum;

static void hold(size_t begin, size_t count)
{
    momentum_range[0] = (struct state_range){ begin, count, momentum + begin };
    state[0] = (struct state_part){ .name = "optimizer.m",
                                    .type = CRUN_F32,
                                    .total = TOTAL,
                                    .range = momentum_range,
                                    .ranges = 1,
                                    .of_parameters = true };
}

static struct state_part array(const char *name, crun_dtype type, size_t total,
                               const struct state_range *range)
{
    return (struct state_part){
        .name = name, .type = type, .total = total, .range = range, .ranges = 1
    };
}

static void fill(float seed)
{
    for (unsigned i = 0; i < TOTAL; i++) {
        weight[i] = seed + (float)i;
        momentum[i] = seed - (float)i;
    }
    for (unsigned i = 0; i < 7; i++)
        running[i] = seed * (float)i;
    scalars = (struct optim_scalars){ (uint64_t)seed, seed / 3, 9 };
}

static void expect_filled(float seed)
{
    for (unsigned i = 0; i < TOTAL; i++) {
        ck_assert(weight[i] == seed + (float)i);
        ck_assert(momentum[i] == seed - (float)i);
    }
    ck_assert(running[6] == seed * 6);
    ck_assert(scalars.scale == seed / 3);
    ck_assert_uint_eq(scalars.steps, (uint64_t)seed);
}

static void warn(void *arg, const char *text)
{
    strncat(warnings, text, sizeof(warnings) - strlen(warnings) - 1);
}

static crun_checkpoints *open_dir(void)
{
    crun_checkpoint_options o = { .directory = dir, .keep = 2, .warn = warn };
    crun_checkpoints *c;

    ck_assert_int_eq(crun_checkpoints_open(&c, world, &o), CRUN_OK);
    return c;
}

static void save(crun_checkpoints *c, uint64_t step, float seed)
{
    fill(seed);
    ck_assert_int_eq(crun_checkpoint_save(c, step, ddp, optim, NULL, NULL, 0), CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(c), CRUN_OK);
}

static crun_status load(crun_checkpoints *c, const char *file, uint64_t *step)
{
    fill(-1);
    return crun_checkpoint_load(c, file, step, ddp, optim, NULL, NULL, 0);
}

static void setup(void)
{
    strcpy(dir, "/tmp/test_checkpoint_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    strcat(dir, "/a/b");
    for (const char **v = (const char *[]){ "RANK", "WORLD_SIZE", NULL }; *v; v++)
        unsetenv(*v);
    ck_assert_int_eq(crun_init(&world, NULL), CRUN_OK);
    model[0] = array("fc.weight", CRUN_F32, TOTAL, &weight_range);
    model[1] = array("bn.mean", CRUN_F32, 7, &running_range);
    model[1].in_use = true;
    hold(0, TOTAL);
    *warnings = '\0';
}

static void teardown(void)
{
    char command[128];

    crun_finalize(world);
    *strstr(dir, "/a/b") = '\0';
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static unsigned files(const char *containing)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(d)))
        n += strstr(entry->d_name, containing) != NULL;
    closedir(d);
    return n;
}

/* The steps of these tests are 10 times the number of the save. */
static char *path_of(uint64_t generation, uint64_t step, unsigned part, unsigned parts)
{
    static char path[256];
    struct checkpoint_set set = { generation, step / 10, step, parts, 0 };
    char name[CHECKPOINT_NAME_MAX];

    snprintf(path, sizeof(path), "%s/%s", dir, checkpoint_name(&set, part, name));
    return path;
}

static void damage(const char *path)
{
    int fd = open(path, O_WRONLY);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "\xff", 1, lseek(fd, 0, SEEK_END) - 100), 1);
    close(fd);
}

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
