/* SPDX-License-Identifier: MIT */
/* Which state several ranks copy for a checkpoint, and when, if it is on a GPU. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/rank_threads.h"
#include "tests/worlds/tiny_model.h"
#include "tests/worlds/world_stub.h"
#include "worker-lib/checkpoint/checkpoint_dir.h"
#include "worker-lib/training/optim.h"

#define RANKS 2
#define CHUNK_BYTES ((size_t)4 << 20)
#define VALUES_MAX 4096 /* the tiny model has fewer */

static void must(crun_status s)
{
    ck_assert_msg(s == CRUN_OK, "%s", crun_error_text());
}

/* -- a slow GPU -------------------------------------------------------------------- */

/*
 * Copies that overlap with the training are done when the program's queue waits for
 * them, and no sooner, unless the queue is freed.
 */
#define COPIES_MAX 64

struct slow_queue {
    struct slow_copy {
        void *to;
        const void *from;
        size_t bytes;
    } copy[COPIES_MAX];
    unsigned copies;
};

struct device_note {
    char bytes[NOTE_BYTES];
    bool arrived;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ran = PTHREAD_COND_INITIALIZER;
static struct device_note arrival; /* marks the copies of notes */

/* Of each rank's thread. */
static _Thread_local struct {
    size_t pinned, most_pinned, copied;
} counted;

static _Thread_local int device; /* what CUDA uses by default */

static crun_status slow_set_device(int number)
{
    device = number;
    return CRUN_OK;
}

static crun_status slow_host_alloc(size_t bytes, void **memory)
{
    counted.pinned += bytes;
    counted.most_pinned = bytes > counted.most_pinned ? bytes : counted.most_pinned;
    return device_cpu.host_alloc(bytes, memory);
}

static crun_status slow_make_queue(void **queue)
{
    *queue = calloc(1, sizeof(struct slow_queue));
    return CRUN_OK;
}

static void run_queue(struct slow_queue *q)
{
    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < q->copies; i++) {
        const struct slow_copy *c = &q->copy[i];

        if (c->from == &arrival)
            ((struct device_note *)c->to)->arrived = true;
        else
            memcpy(c->to, c->from, c->bytes);
    }
    q->copies = 0;
    pthread_cond_broadcast(&ran);
    pthread_mutex_unlock(&lock);
}

static void slow_free_queue(void *queue)
{
    if (queue)
        run_queue(queue);
    free(queue);
}

static crun_status slow_follow(void *queue, void *earlier)
{
    if (!queue && earlier)
        run_queue(earlier);
    return CRUN_OK;
}

static crun_status slow_copy(void *queue, void *to, const void *from, size_t bytes)
{
    struct slow_queue *q = queue;

    counted.copied += bytes;
    if (!q)
        return device_cpu.copy(NULL, to, from, bytes);
    pthread_mutex_lock(&lock);
    ck_assert_uint_lt(q->copies, COPIES_MAX);
    q->copy[q->copies++] = (struct slow_copy){ to, from, bytes };
    pthread_mutex_unlock(&lock);
    return CRUN_OK;
}

static struct device_note *slow_make_note(void)
{
    return calloc(1, sizeof(struct device_note));
}

static void slow_free_note(struct device_note *n)
{
    free(n);
}

static crun_status slow_write_note(void *queue, struct device_note *n, const void *from,
                                   size_t bytes)
{
    n->arrived = !queue;
    if (bytes)
        must(slow_copy(queue, n->bytes, from, bytes));
    counted.copied -= bytes;
    return queue ? slow_copy(queue, n, &arrival, 0) : CRUN_OK;
}

static const void *slow_read_note(struct device_note *n)
{
    ck_assert_int_eq(device, 3);
    pthread_mutex_lock(&lock);
    while (!n->arrived)
        pthread_cond_wait(&ran, &lock);
    pthread_mutex_unlock(&lock);
    return n->bytes;
}

static struct device_ops slow_gpu(void)
{
    struct device_ops ops = device_cpu;

    ops.queued = true;
    ops.set_device = slow_set_device;
    ops.host_alloc = slow_host_alloc;
    ops.make_queue = slow_make_queue;
    ops.free_queue = slow_free_queue;
    ops.follow = slow_follow;
    ops.copy = slow_copy;
    ops.make_note = slow_make_note;
    ops.free_note = slow_free_note;
    ops.write_note = slow_write_note;
    ops.read_note = slow_read_note;
    return ops;
}

/* -- saving and loading ------------------------------------------------------------ */

static const crun_optim_options adam = { .kind = CRUN_ADAM, .lr = 0.01f };

struct saving {
    char dir[64];
    int shard;
    bool stepped, without_optim, half;
    float values[VALUES_MAX]; /* when it was saved */
    float after[VALUES_MAX];  /* with stepped: after the next step */
};

static void save_values(struct tiny *t, float *values)
{
    must(crun_ddp_gather(t->ddp));
    if (t->world->rank == 0)
        memcpy(values, t->ddp->arena.values, t->ddp->arena.length * sizeof(float));
}

static void save_steps(struct tiny *t, struct saving *c)
{
    crun_checkpoint_options o = { .directory = c->dir };
    crun_optim *optim = c->without_optim ? NULL : t->optim;
    crun_checkpoints *all;

    must(crun_checkpoints_open(&all, t->world, &o));
    for (uint64_t i = 0; i < 3; i++)
        must(tiny_step(t, i, 2, 1, NULL));
    must(crun_checkpoint_save(all, 3, t->ddp, optim, NULL, NULL, 0));
    if (t->world->rank == 0)
        memcpy(c->values, t->ddp->arena.values, t->ddp->arena.length * sizeof(float));
    if (c->without_optim) /* the program changes the parameters by itself */
        memset(t->ddp->arena.values, 0, t->ddp->arena.length * sizeof(float));
    else if (c->stepped)
        must(tiny_step(t, 3, 2, 1, NULL));
    else
        tiny_close(t);
    must(crun_checkpoint_wait(all));
    if (c->stepped && !c->without_optim)
        save_values(t, c->after);
    rank_threads_sync();
    crun_checkpoints_close(all);
}

static void load_steps(struct tiny *t, struct saving *c)
{
    crun_checkpoint_options o = { .directory = c->dir };
    crun_checkpoints *all;
    uint64_t step;

    counted.pinned = counted.most_pinned = counted.copied = 0;
    must(crun_checkpoints_open(&all, t->world, &o));
    must(crun_checkpoint_load(all, "", &step, t->ddp,
                              c->without_optim ? NULL : t->optim, NULL, NULL, 0));
    ck_assert_uint_eq(step, 3);
    ck_assert_mem_eq(t->ddp->arena.values, c->values,
                     t->ddp->arena.length * sizeof(float));
    ck_assert_uint_le(counted.most_pinned, CHUNK_BYTES);
    if (c->stepped && !c->without_optim) {
        must(tiny_step(t, 3, 2, 1, NULL));
        must(crun_ddp_gather(t->ddp));
        ck_assert_mem_eq(t->ddp->arena.values, c->after,
                         t->ddp->arena.length * sizeof(float));
    }
    crun_checkpoints_close(all);
}

/* Parameters on rank 0; the optimizer's two numbers for each of this rank's. */
static size_t bytes_of_rank(const struct tiny *t, const struct saving *c)
{
    const struct state_part *part;
    size_t count = 0;

    for (unsigned i = optim_state(t->optim, &part); i-- > 0;)
        for (unsigned r = 0; r < part[i].ranges; r++)
            count += part[i].range[r].count;
    if (c->without_optim || (t->world->rank > 0 && !c->shard))
        count = 0;
    return sizeof(float) * (count + (t->world->rank == 0 ? t->ddp->count : 0));
}

static void save_and_load(crun_world *w, void *arg)
{
    struct saving *c = arg;
    struct device_ops gpu = slow_gpu();
    crun_ddp_options ddp = { .first_bucket_bytes = 256,
                             .bucket_bytes = 700,
                             .shard = c->shard,
                             .grad_type = c->half ? CRUN_BF16 : CRUN_F32,
                             .keep_half = c->half,
                             .gather_half = c->half };
    struct tiny t;
    size_t bytes;

    w->device = &gpu;
    device = crun_device(w);
    memset(&counted, 0, sizeof(counted));
    must(tiny_open(&t, w, &ddp, &adam));
    ck_assert_uint_eq(counted.pinned, 0);
    bytes = bytes_of_rank(&t, c);
    save_steps(&t, c);
    ck_assert_uint_eq(counted.pinned, bytes);
    ck_assert_uint_eq(counted.copied, bytes);
    if (!c->stepped)
        must(tiny_open(&t, w, &ddp, &adam));
    load_steps(&t, c);
    tiny_close(&t);
}

static struct saving cases[] = {
    { .stepped = true },
    { .stepped = true, .shard = 1 },
    { .stepped = true, .shard = 2 },
    { .stepped = false },
    { .stepped = true, .without_optim = true },
    { .stepped = true, .shard = true, .half = true },
};

/* A rank that does not write neither allocates nor copies. The others' copies have the
 * state at the time of the save, whatever happens next. */
TEST_LOOP(writing_ranks_copy_their_part_beside_the_training, 0,
          sizeof(cases) / sizeof(*cases))
{
    struct saving *c = &cases[_i];
    char command[80];

    strcpy(c->dir, "/tmp/test_checkpoint_ranks_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(c->dir));
    world_stub_run(RANKS, save_and_load, c);
    snprintf(command, sizeof(command), "rm -rf %s", c->dir);
    ck_assert_int_eq(system(command), 0);
}

/* As if a rank had ended the world while the GPUs summed the last gradients. */
static void save_what_may_be_wrong(crun_world *w, void *arg)
{
    crun_checkpoint_options o = { .directory = arg };
    struct device_ops gpu = slow_gpu();
    crun_checkpoints *all;
    struct tiny t;
    uint64_t step;

    w->device = &gpu;
    device = crun_device(w);
    must(tiny_open(&t, w, &(crun_ddp_options){ .shard = true }, &adam));
    must(crun_checkpoints_open(&all, w, &o));
    must(crun_checkpoint_save(all, 1, t.ddp, t.optim, NULL, NULL, 0));
    atomic_store(&w->ended, w->rank == 1);
    must(tiny_step(&t, 0, 2, 1, NULL)); /* the copies arrive */
    (void)!crun_checkpoint_wait(all);
    rank_threads_sync();
    ck_assert_int_eq(
        crun_checkpoint_load(all, "", &step, t.ddp, t.optim, NULL, NULL, 0),
        CRUN_NOT_FOUND);
    crun_checkpoints_close(all);
    tiny_close(&t);
}

/* -- what the ranks agree on ------------------------------------------------------- */

static crun_checkpoints *open_model(struct tiny *t, crun_world *w, bool shard,
                                    const char *dir, bool blocking)
{
    crun_checkpoint_options o = { .directory = dir, .blocking = blocking };
    crun_checkpoints *all;

    must(tiny_open(t, w, &(crun_ddp_options){ .shard = shard }, &adam));
    must(crun_checkpoints_open(&all, w, &o));
    return all;
}

static void close_model(struct tiny *t, crun_checkpoints *all)
{
    rank_threads_sync();
    crun_checkpoints_close(all);
    tiny_close(t);
}

static void share_no_directory(crun_world *w, void *arg)
{
    char dir[80], claim[100];
    crun_checkpoint_options o = { .directory = dir };
    crun_checkpoints *all;

    snprintf(dir, sizeof(dir), "%s/%d", (const char *)arg, w->rank);
    snprintf(claim, sizeof(claim), "%s/generation-1", dir);
    if (w->rank == 1) { /* it has a first generation, too */
        ck_assert_int_eq(mkdir(dir, 0700), 0);
        fclose(fopen(claim, "w"));
    }
    ck_assert_int_eq(crun_checkpoints_open(&all, w, &o), CRUN_BAD_ARGUMENT);
    ck_assert_ptr_null(all);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "not the one of rank 0"));
}

static void *claim_after_another(void *dir)
{
    char first[100];
    struct checkpoint_claim newer;
    struct err e;

    snprintf(first, sizeof(first), "%s/generation-1", (const char *)dir);
    while (access(first, R_OK) < 0)
        usleep(1000);
    ck_assert_int_eq(checkpoint_dir_claim(dir, &newer, &e), CRUN_OK);
    return NULL;
}

/* The rank that failed is named on the others. */
static void expect_text_of(const crun_world *w, int rank, const char *text)
{
    char wanted[80] = "";

    if (w->rank != rank)
        snprintf(wanted, sizeof(wanted), "rank %d: ", rank);
    strcat(wanted, text);
    ck_assert_msg(strncmp(crun_error_text(), wanted, strlen(wanted)) == 0, "%s",
                  crun_error_text());
    ck_assert(*wanted || strncmp(crun_error_text(), "rank ", 5) != 0);
}

/* Rank 1 looks for the claim in vain, and a newer start has made one. */
static void open_too_late(crun_world *w, void *arg)
{
    char dir[80];
    crun_checkpoint_options o = { .directory = dir };
    crun_checkpoints *all;
    pthread_t newer;

    snprintf(dir, sizeof(dir), "%s%s", (const char *)arg, w->rank ? "/other" : "");
    if (w->rank == 0)
        ck_assert_int_eq(pthread_create(&newer, NULL, claim_after_another, dir), 0);
    ck_assert_int_eq(crun_checkpoints_open(&all, w, &o), CRUN_STALE);
    ck_assert_ptr_null(all);
    expect_text_of(w, 0, "another job");
    if (w->rank == 0)
        pthread_join(newer, NULL);
}

/* One rank's mistake is all ranks', and nothing is written. */
static void disagree(crun_world *w, void *arg)
{
    static const crun_extra bad = { "a", "\xff" };
    struct tiny t;
    crun_checkpoints *all = open_model(&t, w, true, arg, false);
    crun_extra asked = { w->rank ? "b" : "a", "" };
    uint64_t step;

    ck_assert_int_eq(
        crun_checkpoint_save(all, 1, t.ddp, t.optim, NULL, &bad, w->rank == 1),
        CRUN_BAD_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "extra \"a\""));
    ck_assert_int_eq(
        crun_checkpoint_save(all, 1 + (uint64_t)w->rank, t.ddp, t.optim, NULL, NULL, 0),
        CRUN_MISMATCH);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), "from 1 to 2"));
    ck_assert_int_eq(crun_checkpoint_save(all, w->rank ? UINT64_C(1) << 63 : 5, t.ddp,
                                          t.optim, NULL, NULL, 0),
                     CRUN_MISMATCH);
    ck_assert_int_eq(
        crun_checkpoint_save(all, 1, t.ddp, w->rank ? t.optim : NULL, NULL, NULL, 0),
        CRUN_MISMATCH);
    must(crun_checkpoint_wait(all));
    ck_assert_int_eq(
        crun_checkpoint_load(all, "", &step, t.ddp, t.optim, NULL, NULL, 0),
        CRUN_NOT_FOUND);
    ck_assert_ptr_null(strstr(crun_error_text(), "parts"));
    must(crun_checkpoint_save(all, 1, t.ddp, t.optim, NULL, NULL, 0));
    ck_assert_int_eq(crun_checkpoint_load(all, "", &step, t.ddp,
                                          w->rank ? t.optim : NULL, NULL, NULL, 0),
                     CRUN_MISMATCH);
    ck_assert_int_eq(
        crun_checkpoint_load(all, "", &step, t.ddp, t.optim, NULL, &asked, 1),
        CRUN_MISMATCH);
    expect_text_of(w, 1, "its extras");
    close_model(&t, all);
}

/* Whether ranks have different state is asked at each save. */
static void save_with_and_without(crun_world *w, void *arg)
{
    struct tiny t;
    crun_checkpoints *all = open_model(&t, w, true, arg, true);
    const struct state_part *state;
    uint64_t step;

    must(crun_checkpoint_save(all, 1, t.ddp, NULL, NULL, NULL, 0));
    must(tiny_step(&t, 0, 2, 1, NULL));
    must(crun_checkpoint_save(all, 2, t.ddp, t.optim, NULL, NULL, 0));
    ck_assert_uint_gt(optim_state(t.optim, &state), 0);
    must(crun_checkpoint_load(all, "", &step, t.ddp, t.optim, NULL, NULL, 0));
    ck_assert_uint_eq(step, 2);
    close_model(&t, all);
}

/* A folder has the name of the file that is to be written. */
static void fail_to_write(crun_world *w, const char *dir, bool shard, bool blocking)
{
    struct tiny t;
    crun_checkpoints *all = open_model(&t, w, shard, dir, blocking);
    char name[200];
    crun_status s;

    snprintf(name, sizeof(name), "%s/checkpoint-g1.000001-s000001-%s.safetensors", dir,
             shard ? "2of2" : "1of1");
    if (w->rank == 0)
        ck_assert_int_eq(mkdir(name, 0700), 0);
    rank_threads_sync();
    s = crun_checkpoint_save(all, 1, t.ddp, t.optim, NULL, NULL, 0);
    ck_assert_int_eq(s, blocking ? CRUN_SYSTEM : CRUN_OK);
    ck_assert_int_eq(crun_checkpoint_wait(all), CRUN_SYSTEM);
    ck_assert_ptr_nonnull(strstr(crun_error_text(), name));
    expect_text_of(w, shard, "");
    /* the next one, in which not all of them have a part */
    ck_assert_int_eq(
        crun_checkpoint_save(all, UINT64_MAX / 2 + 1, t.ddp, NULL, NULL, NULL, 0),
        blocking ? CRUN_OK : CRUN_SYSTEM);
    must(crun_checkpoint_wait(all));
    close_model(&t, all);
}

static void fail_alone(crun_world *w, void *arg)
{
    fail_to_write(w, arg, false, false);
}

static void fail_alone_at_once(crun_world *w, void *arg)
{
    fail_to_write(w, arg, false, true);
}

static void fail_in_part(crun_world *w, void *arg)
{
    fail_to_write(w, arg, true, false);
}

static void fail_in_part_at_once(crun_world *w, void *arg)
{
    fail_to_write(w, arg, true, true);
}

static const struct {
    const char *what;
    world_stub_fn *fn;
} together[] = {
    { "what a GPU computed when the world ended is not saved", save_what_may_be_wrong },
    { "a directory that is not shared is refused", share_no_directory },
    { "a newer start takes the directory while it is opened", open_too_late },
    { "all ranks save the same", disagree },
    { "sharded or not is known at each save", save_with_and_without },
    { "all ranks wait for rank 0", fail_alone },
    { "all ranks block until rank 0 has failed", fail_alone_at_once },
    { "all ranks wait for each part", fail_in_part },
    { "all ranks block until a part has failed", fail_in_part_at_once },
};

TEST_LOOP(ranks_agree, 0, sizeof(together) / sizeof(*together))
{
    char dir[] = "/tmp/test_checkpoint_ranks_XXXXXX", command[80];

    ck_assert_ptr_nonnull(mkdtemp(dir));
    world_stub_run(RANKS, together[_i].fn, dir);
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}
