/* SPDX-License-Identifier: MIT */
#include "worker-lib/core/profiler_ranges.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#endif

#ifdef HAS_NVTX
/* -- a profiler, which NVTX finds in this program ---------------------------------- */

#define RANGES_MAX 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char started[RANGES_MAX][160];
static bool ended[RANGES_MAX];
static unsigned count;

static nvtxRangeId_t start_range(const char *name)
{
    nvtxRangeId_t id;

    pthread_mutex_lock(&lock);
    ck_assert_uint_lt(count, RANGES_MAX);
    snprintf(started[count], sizeof(started[0]), "%s", name);
    id = ++count;
    pthread_mutex_unlock(&lock);
    return id;
}

static void end_range(nvtxRangeId_t id)
{
    pthread_mutex_lock(&lock);
    ck_assert_msg(id > 0 && id <= count && !ended[id - 1], "range %u ends twice",
                  (unsigned)id);
    ended[id - 1] = true;
    pthread_mutex_unlock(&lock);
}

static int inject(NvtxGetExportTableFunc_t export_table)
{
    const NvtxExportTableCallbacks *callbacks = export_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;

    ck_assert_int_eq(
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size), 1);
    *table[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)start_range;
    *table[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)end_range;
    return 1;
}

/* NVTX's own is weak. */
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = inject;

/* -- cases ------------------------------------------------------------------------- */

static unsigned count_ranges(const char *begin)
{
    unsigned n = 0;

    for (unsigned i = 0; i < count; i++)
        n += strncmp(started[i], begin, strlen(begin)) == 0;
    return n;
}

static void step_twice(crun_world *w, void *arg)
{
    crun_ddp *ddp;
    crun_optim *optim;

    ranks_ok(crun_ddp_create(&ddp, w, NULL));
    ck_assert_int_eq(crun_ddp_parameter(ddp, "w", 100), 0);
    ranks_ok(crun_ddp_seal(ddp));
    ranks_ok(crun_optim_create(&optim, ddp, &(crun_optim_options){ .lr = 1 }));
    for (int step = 0; step < 2; step++) {
        ranks_ok(crun_ddp_begin(ddp, true));
        ranks_ok(crun_ddp_ready(ddp, 0));
        ranks_ok(crun_ddp_finish(ddp));
        ranks_ok(crun_optim_step(optim, NULL));
    }
    crun_optim_destroy(optim);
    crun_ddp_destroy(ddp);
}

static void run_ranks(void)
{
    ranks_run(&(struct ranks_config){ .size = 2, .backend = "shm" }, step_twice, NULL);
}

TEST(steps_buckets_and_operations_are_ranges)
{
    setenv("CRUN_NVTX", "1", 1);
    run_ranks();
    ck_assert_uint_eq(count_ranges("step 1"), 2); /* of each rank */
    ck_assert_uint_eq(count_ranges("step 2"), 2);
    ck_assert_uint_eq(count_ranges("bucket 0"), 4);
    ck_assert_uint_ge(count_ranges("all_reduce 128 x f32 mean #"), 4);
    for (unsigned i = 0; i < count; i++)
        ck_assert_msg(ended[i], "%s does not end", started[i]);
}

TEST(there_are_none_by_default)
{
    unsetenv("CRUN_NVTX");
    run_ranks();
    ck_assert_uint_eq(count, 0);
}
#else
TEST(a_build_without_nvtx_has_none)
{
    ck_assert(!ranges_are_on());
    ck_assert_uint_eq(range_begin("step %d", 1), 0);
    range_end(0);
    print_skipped("this build has no header of NVTX");
}
#endif
