/* SPDX-License-Identifier: MIT */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fakes/cuda/cuda_runtime.h"
#include "tests/fakes/cuda/fault.h"
#include "worker-lib/backends/nccl/nccl_calls.h"

/* not in a build without the emulator */
#pragma weak cuda_emulated_device

#define LATE_US 300000
#define FAULTS_MAX 16

static _Thread_local int thread_rank = -1;

static _Atomic(const char *) last_error = "";

const char *standin_last_error(void)
{
    return last_error;
}

int standin_number(const char *variable, int otherwise)
{
    const char *text = getenv(variable);

    return text && *text ? atoi(text) : otherwise;
}

static void hang_forever(void)
{
    for (;;)
        pause();
}

static bool is_cuda(const char *call)
{
    return strncmp(call, "cu", 2) == 0;
}

/* kind: a word, or WORD=CODE. */
static enum fault apply_fault(const char *call, char *kind, int *result)
{
    char *code = strchr(kind, '=');

    if (code)
        *code++ = 0;
    if (strcmp(kind, "error") == 0)
        *result = code            ? atoi(code)
                  : is_cuda(call) ? cudaErrorUnknown
                                  : NCCL_SYSTEM_ERROR;
    else if (strcmp(kind, "remote") == 0)
        *result = NCCL_REMOTE_ERROR;
    else if (strcmp(kind, "sticky") == 0)
        *result = code ? atoi(code) : cudaErrorIllegalAddress;
    else if (strcmp(kind, "hang") == 0 || strcmp(kind, "wait") == 0)
        hang_forever();
    else if (strcmp(kind, "kill") == 0)
        raise(SIGKILL);
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
    return strcmp(kind, "sticky") == 0 ? FAULT_STICKY : FAULT_NONE;
}

void standin_set_rank(int rank)
{
    thread_rank = rank;
}

/* For a call that does not know its rank. */
static int own_rank(void)
{
    int device = cuda_emulated_device ? cuda_emulated_device() : 0;

    if (thread_rank >= 0)
        return thread_rank;
    return standin_number("RANK", standin_number("OMPI_COMM_WORLD_RANK", device));
}

/* A line for the file that the variable names, if it is set. */
static void note_line(const char *variable, const char *call, int rank)
{
    const char *path = getenv(variable);
    char line[96];
    int size = snprintf(line, sizeof(line), "%d %s\n", rank, call), fd;

    if (!path || (fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600)) < 0)
        return;
    (void)!write(fd, line, (size_t)size);
    close(fd);
}

void standin_trace(const char *what)
{
    note_line("CRUN_STANDIN_TRACE", what, own_rank());
}

enum fault standin_fault(const char *call, int rank, int *result)
{
    static _Atomic int calls[FAULTS_MAX];
    const char *text = getenv("CRUN_STANDIN_FAULT");
    char name[64], kind[32];
    int at, nth;

    *result = 0;
    if (standin_number("TORCHELASTIC_RESTART_COUNT", 0) > 0)
        return FAULT_NONE;
    if (rank < 0)
        rank = own_rank();
    note_line("CRUN_STANDIN_CALLS", call, rank);
    for (int i = 0; text && i < FAULTS_MAX; i++) {
        nth = 1;
        if (sscanf(text, "%63[^:]:%31[^:]:%d:%d", name, kind, &at, &nth) >= 3 &&
            strcmp(name, call) == 0 && at == rank &&
            atomic_fetch_add(&calls[i], 1) + 1 == nth) {
            note_line("CRUN_STANDIN_HAPPENED", call, rank);
            return apply_fault(call, kind, result);
        }
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return FAULT_NONE;
}
