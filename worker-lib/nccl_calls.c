/* SPDX-License-Identifier: MIT */
#include "worker-lib/nccl_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define LIBRARY "libnccl.so.2"
#define STANDIN "crun_standin_gpu"
#define CALLS (sizeof(struct nccl_calls) / sizeof(void *))

/* In the order of struct nccl_calls. */
static const struct {
    const char *symbol;
    bool optional;
} symbols[CALLS] = {
    { "ncclGetVersion", false },
    { "ncclGetUniqueId", false },
    { "ncclCommInitRankConfig", false },
    { "ncclCommFinalize", false },
    { "ncclCommDestroy", false },
    { "ncclCommAbort", false },
    { "ncclCommGetAsyncError", false },
    { "ncclGetErrorString", false },
    { "ncclGetLastError", false },
    { "ncclMemAlloc", false },
    { "ncclMemFree", false },
    { "ncclAllReduce", false },
    { "ncclBroadcast", false },
    { "ncclReduceScatter", false },
    { "ncclAllGather", false },
    { "ncclSend", false },
    { "ncclRecv", false },
    { "ncclGroupStart", false },
    { "ncclGroupEnd", false },
    { "ncclCommWindowRegister", true },
    { "ncclCommWindowDeregister", true },
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static union {
    struct nccl_calls calls;
    void *symbol[CALLS];
} nccl;
static const struct gpu_calls *standin_gpu;
static struct err why_not;
static bool usable;

/* 22809 as people say it; the numbers were others before 2.9. */
static int say_version(char *text, size_t size, int v)
{
    int unit = v >= 10000 ? 10000 : 1000;

    return snprintf(text, size, "%d.%d.%d", v / unit, v % unit / 100, v % 100);
}

static bool take_symbols(void *library, const char *name)
{
    bool all = true;
    int version = 0;
    char is[24], should[24];

    for (size_t i = 0; i < CALLS; i++) {
        nccl.symbol[i] = dlsym(library, symbols[i].symbol);
        all = all && (nccl.symbol[i] || symbols[i].optional);
    }
    if (!nccl.calls.get_version) {
        err_set(&why_not, "%s is not NCCL: it has no ncclGetVersion", name);
        return false;
    }
    if (nccl.calls.get_version(&version) != NCCL_OK) {
        err_set(&why_not, "%s: ncclGetVersion failed", name);
        return false;
    }
    say_version(is, sizeof(is), version);
    say_version(should, sizeof(should), NCCL_VERSION_MIN);
    if (!all || version < NCCL_VERSION_MIN) {
        err_set(&why_not, "%s is NCCL %s: %s or newer is needed", name, is, should);
        return false;
    }
    return true;
}

static void open_once(void)
{
    const char *given = getenv("CRUN_NCCL_LIBRARY");
    const char *name = given && *given ? given : LIBRARY;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        err_set(&why_not, "NCCL is not there: %s", dlerror());
        return;
    }
    if (given && *given)
        standin_gpu = dlsym(library, STANDIN);
    usable = take_symbols(library, name);
}

const struct nccl_calls *nccl_open(const struct gpu_calls **standin, struct err *e)
{
    pthread_once(&once, open_once);
    *standin = standin_gpu;
    if (usable)
        return &nccl.calls;
    *e = why_not;
    return NULL;
}
