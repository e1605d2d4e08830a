/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nccl-standin/standin.h"
#include "worker-lib/nccl_calls.h"

#define LATE_US 300000

static const char *last_error = "";

const char *standin_last_error(void)
{
    return last_error;
}

int standin_number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? atoi(text) : otherwise;
}

static void hang(void)
{
    for (;;)
        pause();
}

static enum fault happen(const char *kind, int *result)
{
    if (strcmp(kind, "error") == 0)
        *result = NCCL_SYSTEM_ERROR;
    else if (strcmp(kind, "remote") == 0)
        *result = NCCL_REMOTE_ERROR;
    else if (strcmp(kind, "hang") == 0)
        hang();
    else if (strcmp(kind, "late") == 0)
        usleep(LATE_US);
    else if (strcmp(kind, "async") == 0)
        return FAULT_ASYNC;
    else if (strcmp(kind, "stall") == 0)
        return FAULT_STALL;
    else if (strcmp(kind, "deaf") == 0)
        return FAULT_DEAF;
    if (*result)
        last_error = "injected";
    return FAULT_NONE;
}

enum fault standin_fault(const char *call, int rank, int *result)
{
    static _Atomic int calls;
    const char *text = getenv("CRUN_STANDIN_FAULT");
    const char *own = getenv("RANK");
    char name[64], kind[16];
    int at = 0, nth = 1;

    *result = 0;
    if (!text || sscanf(text, "%63[^:]:%15[^:]:%d:%d", name, kind, &at, &nth) < 3 ||
        strcmp(name, call) != 0 ||
        at != (rank >= 0 ? rank
               : own     ? atoi(own)
                         : 0) ||
        standin_number("TORCHELASTIC_RESTART_COUNT", 0) > 0 ||
        atomic_fetch_add(&calls, 1) + 1 != nth)
        return FAULT_NONE;
    return happen(kind, result);
}
