/* SPDX-License-Identifier: MIT */
/* The lock, the begin and the end of every call, and errors. */
#include "tests/fakes/cuda/emulator.h"

#include <time.h>

#include <atomic>

#include "tests/fakes/cuda/fault.h"

#define BRIEFLY_NS 1000000

namespace
{

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
thread_local cudaError_t last_error;
thread_local int pending_fault;
std::atomic<bool> initialized, forked;

void note_fork(void)
{
    forked = initialized.load();
}

cudaError_t check_driver(void)
{
    int wanted = 0, driver = standin_number("CRUN_STANDIN_DRIVER", 13000);

    cudaRuntimeGetVersion(&wanted);
    if (driver / 1000 < wanted / 1000)
        return cudaErrorInsufficientDriver;
    if (forked)
        return cudaErrorInitializationError;
    if (!initialized && !initialized.exchange(true))
        pthread_atfork(NULL, NULL, note_fork);
    return cudaSuccess;
}

} // namespace

emulator &state(void)
{
    static emulator *all = new emulator();

    return *all;
}

locked::locked()
{
    pthread_mutex_lock(&lock);
}

/* Dropped items may call the program, so they are destroyed without the lock. */
locked::~locked()
{
    std::vector<item> dropped;

    dropped.swap(state().dropped);
    pthread_mutex_unlock(&lock);
}

unlocked::unlocked()
{
    pthread_mutex_unlock(&lock);
}

unlocked::~unlocked()
{
    pthread_mutex_lock(&lock);
}

locked_briefly::locked_briefly()
{
    pthread_mutex_lock(&lock);
}

locked_briefly::~locked_briefly()
{
    pthread_mutex_unlock(&lock);
}

void changed(void)
{
    pthread_cond_broadcast(&condition);
}

void await_change(void)
{
    pthread_cond_wait(&condition, &lock);
}

void await_change_briefly(void)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += BRIEFLY_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_clockwait(&condition, &lock, CLOCK_MONOTONIC, &until);
}

static cudaError_t check_call(unsigned rules)
{
    cudaError_t code = check_driver();

    if (code == cudaSuccess && (rules & CALL_DEVICE))
        code = make_context();
    if (code != cudaSuccess)
        return code;
    locked guard;
    if ((rules & CALL_DEVICE) && current_device()->failed != cudaSuccess)
        return current_device()->failed;
    return rules & CALL_UNSAFE ? capture_check_unsafe() : cudaSuccess;
}

cudaError_t enter_call(const char *name, unsigned rules)
{
    int result;
    enum fault fault = standin_fault(name, -1, &result);

    pending_fault = fault;
    if (fault == FAULT_STICKY)
        cuda_emulated_fail(cuda_emulated_device(), (cudaError_t)result);
    if (result != 0)
        return (cudaError_t)result;
    return check_call(rules);
}

cudaError_t end_call(cudaError_t code)
{
    if (code != cudaSuccess && code != cudaErrorNotReady)
        last_error = code;
    return code;
}

int take_fault(void)
{
    int fault = pending_fault;

    pending_fault = FAULT_NONE;
    return fault;
}

/* -- errors ------------------------------------------------------------------------ */

static const struct error_text {
    cudaError_t code;
    const char *name, *text;
} texts[] = {
#define ERROR(name, text)                                                              \
    {                                                                                  \
        name, #name, text                                                              \
    }
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInsufficientDriver,
          "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or "
                                       "unavailable"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState,
          "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorLaunchTimeout, "the launch timed out and was terminated"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered,
          "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorMisalignedAddress, "misaligned address"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported"),
    ERROR(cudaErrorStreamCaptureUnsupported,
          "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated,
          "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge,
          "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream "
                                           "as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation,
          "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking "
          "stream"),
    ERROR(cudaErrorCapturedEvent,
          "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR(cudaErrorUnknown, "unknown error"),
#undef ERROR
};

static const error_text *find_text(cudaError_t code)
{
    for (const error_text &t : texts)
        if (t.code == code)
            return &t;
    return NULL;
}

const char *cudaGetErrorString(cudaError_t code)
{
    const error_text *t = find_text(code);

    return t ? t->text : "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t code)
{
    const error_text *t = find_text(code);

    return t ? t->name : "cudaErrorUnrecognized";
}

cudaError_t cudaPeekAtLastError(void)
{
    locked guard;

    return current_device()->failed != cudaSuccess ? current_device()->failed
                                                   : last_error;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = cudaPeekAtLastError();

    last_error = cudaSuccess;
    return code;
}
