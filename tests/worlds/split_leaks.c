/* SPDX-License-Identifier: MIT */
#include "tests/worlds/split_leaks.h"

#include <check.h>
#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"

#define WARM_UP 10
#define PATIENCE_MS 20000

struct leak_plan {
    unsigned splits;
    size_t bytes_each;
};

/* What the process and the store have. */
struct holdings {
    uint64_t keys;
    size_t threads, descriptors, mappings, bytes;
};

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    size_t count = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Of files: heaps come and go. */
static size_t count_mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    char line[600];
    size_t count = 0;

    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f)) {
        int path = 0;

        (void)!sscanf(line, "%*s %*s %*s %*s %*s %n", &path);
        count += path > 0 && line[path] == '/';
    }
    fclose(f);
    return count;
}

static size_t count_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static struct holdings count_holdings(void)
{
    return (struct holdings){ .keys = ranks_store_keys(),
                              .threads = count_entries("/proc/self/task"),
                              .descriptors = count_entries("/proc/self/fd"),
                              .mappings = count_mappings(),
                              .bytes = count_bytes() };
}

static bool holds_more(const struct holdings *now, const struct holdings *before,
                       const struct leak_plan *plan)
{
    return now->keys > before->keys || now->threads > before->threads ||
           now->descriptors > before->descriptors || now->mappings > before->mappings ||
           now->bytes > before->bytes + plan->splits * plan->bytes_each;
}

/* What ends later than a call, such as the answer of the store, ends soon. */
static void expect_no_more(const struct holdings *before, const struct leak_plan *plan)
{
    uint64_t until = clock_ms() + PATIENCE_MS;
    struct holdings now = count_holdings();

    while (holds_more(&now, before, plan) && clock_ms() < until) {
        usleep(10000);
        now = count_holdings();
    }
    ck_assert_msg(!holds_more(&now, before, plan),
                  "keys %llu -> %llu, threads %zu -> %zu, descriptors %zu -> %zu, "
                  "mappings %zu -> %zu, bytes %zu -> %zu",
                  (unsigned long long)before->keys, (unsigned long long)now.keys,
                  before->threads, now.threads, before->descriptors, now.descriptors,
                  before->mappings, now.mappings, before->bytes, now.bytes);
}

static void split_often(crun_world *w, unsigned splits)
{
    for (unsigned i = 0; i < splits; i++) {
        int32_t one = 1, sum = 0;
        crun_world *g;

        ranks_ok(crun_split(w, 0, crun_rank(w), &g));
        ranks_ok(crun_all_reduce(g, &one, &sum, 1, CRUN_I32, CRUN_SUM, NULL));
        ck_assert_int_eq(sum, crun_size(w));
        crun_finalize(g);
    }
}

static void compare_holdings(crun_world *w, void *arg)
{
    const struct leak_plan *plan = arg;
    struct holdings before = { 0 };

    split_often(w, WARM_UP);
    rank_threads_sync();
    if (crun_rank(w) == 0)
        before = count_holdings();
    rank_threads_sync();
    split_often(w, plan->splits);
    rank_threads_sync();
    if (crun_rank(w) == 0)
        expect_no_more(&before, plan);
    rank_threads_sync();
}

void split_leaks_check(const struct ranks_config *config, unsigned splits,
                       size_t bytes_each)
{
    struct leak_plan plan = { splits, bytes_each };

    ranks_run(config, compare_holdings, &plan);
}
