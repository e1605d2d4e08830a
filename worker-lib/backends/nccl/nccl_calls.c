/* SPDX-License-Identifier: MIT */
#include "worker-lib/backends/nccl/nccl_calls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/thread.h"
#include "rendezvous/common/base/xalloc.h"
#include "worker-lib/backends/nccl/backend_nccl.h"
#include "worker-lib/core/stuck.h"

#ifdef CRUN_EMULATED
#define LIBRARY "libnccl-standin.so"
#else
#define LIBRARY "libnccl.so.2"
#endif
#define CALLS (sizeof(struct nccl_calls) / sizeof(void *))

/* In the order of struct nccl_calls. A call with a version is NULL with an older
 * NCCL. */
static const struct {
    const char *symbol;
    int since;
} symbols[CALLS] = {
    { "ncclGetVersion", NCCL_VERSION_MIN },
    { "ncclGetUniqueId", NCCL_VERSION_MIN },
    { "ncclCommInitRankConfig", NCCL_VERSION_MIN },
    { "ncclCommFinalize", NCCL_VERSION_MIN },
    { "ncclCommDestroy", NCCL_VERSION_MIN },
    { "ncclCommAbort", NCCL_VERSION_MIN },
    { "ncclCommGetAsyncError", NCCL_VERSION_MIN },
    { "ncclGetErrorString", NCCL_VERSION_MIN },
    { "ncclGetLastError", NCCL_VERSION_MIN },
    { "ncclMemAlloc", NCCL_VERSION_MIN },
    { "ncclMemFree", NCCL_VERSION_MIN },
    { "ncclAllReduce", NCCL_VERSION_MIN },
    { "ncclBroadcast", NCCL_VERSION_MIN },
    { "ncclReduceScatter", NCCL_VERSION_MIN },
    { "ncclAllGather", NCCL_VERSION_MIN },
    { "ncclSend", NCCL_VERSION_MIN },
    { "ncclRecv", NCCL_VERSION_MIN },
    { "ncclGroupStart", NCCL_VERSION_MIN },
    { "ncclGroupEnd", NCCL_VERSION_MIN },
    { "ncclCommRegister", NCCL_VERSION_MIN },
    { "ncclCommDeregister", NCCL_VERSION_MIN },
    { "ncclCommSplit", NCCL_VERSION_MIN },
    { "ncclCommWindowRegister", NCCL_SYMMETRIC_SINCE },
    { "ncclCommWindowDeregister", NCCL_SYMMETRIC_SINCE },
    { "ncclCommRevoke", NCCL_REVOKE_SINCE },
};

static union {
    struct nccl_calls calls;
    void *symbol[CALLS];
} nccl;
static struct err why_not;
static bool usable;
static int version_found;

/* Opening a library runs its code, which may hang, so a separate thread does it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed; /* on the monotonic clock */
static enum { CLOSED, OPENING, OPENED } state;
static const char *_Atomic under_way = "";

char *nccl_version_text(int version, char *text, size_t size)
{
    int unit = version >= 10000 ? 10000 : 1000; /* versions before 2.9 */

    snprintf(text, size, "%d.%d.%d", version / unit, version % unit / 100,
             version % 100);
    return text;
}

static bool check_version(const char *name, int version)
{
    char is[24], should[24];

    nccl_version_text(version, is, sizeof(is));
    nccl_version_text(NCCL_VERSION_MIN, should, sizeof(should));
    if (version < NCCL_VERSION_MIN) {
        err_set(&why_not, "%s is NCCL %s: %s or newer is needed", name, is, should);
        return false;
    }
    for (size_t i = 0; i < CALLS; i++) {
        if (version < symbols[i].since)
            nccl.symbol[i] = NULL;
        else if (!nccl.symbol[i]) {
            err_set(&why_not, "%s says that it is NCCL %s, but it has no %s", name, is,
                    symbols[i].symbol);
            return false;
        }
    }
    return true;
}

static bool take_symbols(void *library, const char *name)
{
    int version = 0;

    for (size_t i = 0; i < CALLS; i++)
        nccl.symbol[i] = dlsym(library, symbols[i].symbol);
    if (!nccl.calls.get_version) {
        err_set(&why_not, "%s is not NCCL: it has no ncclGetVersion", name);
        return false;
    }
    atomic_store(&under_way, symbols[0].symbol);
    if (nccl.calls.get_version(&version) != NCCL_OK) {
        err_set(&why_not, "%s: ncclGetVersion failed", name);
        return false;
    }
    version_found = version;
    return check_version(name, version);
}

static void open_once(void)
{
    const char *given = getenv("CRUN_NCCL_LIBRARY");
    const char *name = given && *given ? given : LIBRARY;
    void *library;

    atomic_store(&under_way, "dlopen of NCCL");
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        err_set(&why_not, "NCCL cannot be loaded: %s", dlerror());
        return;
    }
    usable = take_symbols(library, name);
}

static void *open_in_thread(void *arg)
{
    open_once();
    pthread_mutex_lock(&lock);
    state = OPENED;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Not by setenv: that frees the list in which another thread may be looking for
 * something. */
static void turn_copy_engines_off(void)
{
    static char off[] = "NCCL_SYM_CE_THRESHOLD=" NCCL_NO_COPY_ENGINES;
    static char **list;
    size_t count = 0;

    if (getenv("NCCL_SYM_CE_THRESHOLD"))
        return;
    while (environ && environ[count])
        count++;
    list = xcalloc(count + 2, sizeof(*list));
    if (count > 0)
        memcpy(list, environ, count * sizeof(*list));
    list[count] = off;
    __atomic_store_n(&environ, list, __ATOMIC_RELEASE);
}

static bool begin_open(void)
{
    pthread_t thread;

    if (state != CLOSED)
        return true;
    thread_cond_init(&changed);
    stuck_prepare();
    turn_copy_engines_off();
    if (pthread_create(&thread, NULL, open_in_thread, NULL) != 0)
        return false;
    pthread_detach(thread);
    state = OPENING;
    return true;
}

/* Holds the lock. */
static void await_opened(uint64_t deadline_ms)
{
    while (state == OPENING && thread_wait_until(&changed, &lock, deadline_ms))
        ;
}

int nccl_version(void)
{
    return version_found;
}

crun_status nccl_open(const struct nccl_calls **calls, uint64_t deadline_ms,
                      struct err *e)
{
    uint64_t begun = clock_ms();
    bool began, opened;

    *calls = NULL;
    pthread_mutex_lock(&lock);
    began = begin_open();
    await_opened(deadline_ms);
    opened = state == OPENED;
    pthread_mutex_unlock(&lock);
    if (!began) {
        err_set(e, "no thread to open NCCL with");
        return CRUN_SYSTEM;
    }
    if (!opened) {
        stuck_set();
        err_set(e, "%s has not returned for %.1f s in crun_init",
                atomic_load(&under_way), (double)(clock_ms() - begun) / 1000);
        return CRUN_TIMEOUT;
    }
    if (usable)
        *calls = &nccl.calls;
    else
        *e = why_not;
    return usable ? CRUN_OK : CRUN_UNSUPPORTED;
}
