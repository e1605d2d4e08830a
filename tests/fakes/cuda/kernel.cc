/* SPDX-License-Identifier: MIT */
/* Kernels: blocks one after the other, the threads of a block in one thread. */
#undef _FORTIFY_SOURCE /* a jump from one stack to another is meant */
#include "tests/fakes/cuda/emulator.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <atomic>

#include "tests/fakes/cuda/fault.h"

CUDA_EMULATED_INDEX threadIdx, blockIdx, blockDim, gridDim;

/* -- faults ------------------------------------------------------------------------ */

/* Of work that runs in this thread. */
static thread_local sigjmp_buf *landing;
static thread_local const device_access *touchable;
static struct sigaction before[NSIG];
static const int faults[] = { SIGSEGV, SIGBUS, SIGILL, SIGTRAP };

static void note_memory_fault(int signal, siginfo_t *info, void *)
{
    sigjmp_buf *to = landing;

    if (to && signal == SIGSEGV && open_piece(*touchable, info->si_addr))
        return;
    if (!to) { /* a fault of the program: repeat it without this handler */
        sigaction(signal, &before[signal], NULL);
        return;
    }
    landing = NULL;
    /* checks of the alignment end in an invalid instruction */
    siglongjmp(*to, signal == SIGSEGV || signal == SIGBUS ? cudaErrorIllegalAddress
                                                          : cudaErrorMisalignedAddress);
}

void guard_memory_faults(void)
{
    static bool guarded;
    struct sigaction action;

    if (guarded)
        return;
    guarded = true;
    memset(&action, 0, sizeof(action));
    action.sa_sigaction = note_memory_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    for (int signal : faults)
        sigaction(signal, &action, &before[signal]);
}

static void admit_faults(void)
{
    sigset_t set;

    sigemptyset(&set);
    for (int signal : faults)
        sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

cudaError_t run_guarded(const std::function<void()> &run, const device_access &a)
{
    static thread_local bool admitted;
    sigjmp_buf here;
    int code;

    /* a thread of the program that blocks all signals may do this work */
    if (!admitted)
        admit_faults();
    admitted = true;
    code = sigsetjmp(here, 0);
    if (code == 0) {
        touchable = &a;
        landing = &here;
        run();
    } else {
        admit_faults(); /* ThreadSanitizer blocks all signals in a handler */
    }
    landing = NULL;
    return (cudaError_t)code;
}

/* -- order ------------------------------------------------------------------------- */

#define DEFAULT_SEED 1

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 8;
}

/* The order of one launch, which differs between launches. 0: in order. */
static uint32_t launch_seed(void)
{
    static std::atomic<uint32_t> launches;
    uint32_t seed = (uint32_t)standin_number("CRUN_STANDIN_SEED", DEFAULT_SEED);

    return seed ? seed * 2654435761u + ++launches : 0;
}

static void list_all(std::vector<dim3> &all, dim3 size)
{
    all.clear();
    all.reserve((size_t)size.x * size.y * size.z);
    for (unsigned z = 0; z < size.z; z++)
        for (unsigned y = 0; y < size.y; y++)
            for (unsigned x = 0; x < size.x; x++)
                all.push_back(dim3(x, y, z));
}

static void shuffle(std::vector<dim3> &all, uint32_t *seed)
{
    for (size_t i = all.size(); *seed && i > 1; i--)
        std::swap(all[i - 1], all[next_random(seed) % i]);
}

/* -- the threads of a block -------------------------------------------------------- */

#define STACK_BYTES ((size_t)65536)
#define THREADS_MAX 1024

struct turn {
    ucontext_t context;
    jmp_buf at;
    bool begun, done;
    bool made; /* its context */
};

/* They end with the thread. */
struct block_stacks {
    turn *turns;
    char *stacks;
    ~block_stacks()
    {
        delete[] turns;
        if (stacks)
            munmap(stacks, THREADS_MAX * STACK_BYTES);
        turns = NULL;
        stacks = NULL;
    }
};

static thread_local block_stacks own;
static thread_local turn *turns;
static thread_local turn scheduler;
static thread_local size_t current;
static thread_local bool in_block;
static thread_local const std::function<void()> *body;

/* Jumps need no call of the system, which swapcontext does; sanitizers know only that.
 */
static void switch_turn(turn *from, turn *to)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    swapcontext(&from->context, &to->context);
#else
    if (_setjmp(from->at) != 0)
        return;
    if (to->begun)
        _longjmp(to->at, 1);
    to->begun = true;
    setcontext(&to->context);
#endif
}

/* Runs one thread of each block, block after block. */
static void run_turn(void)
{
    for (;;) {
        (*body)();
        turns[current].done = true;
        switch_turn(&turns[current], &scheduler);
    }
}

static void make_turn(size_t i)
{
    turn &t = turns[i];

    t.made = true;
    t.begun = false;
    getcontext(&t.context);
    t.context.uc_stack.ss_sp = own.stacks + i * STACK_BYTES;
    t.context.uc_stack.ss_size = STACK_BYTES;
    t.context.uc_link = NULL;
    makecontext(&t.context, run_turn, 0);
}

/* A fault has jumped out of a block: its threads stand where they were. */
static void forget_turns(void)
{
    for (size_t i = 0; i < THREADS_MAX; i++)
        turns[i].made = false;
}

static void begin_turns(size_t count)
{
    if (!own.turns) {
        own.turns = new turn[THREADS_MAX]();
        own.stacks = (char *)mmap(NULL, THREADS_MAX * STACK_BYTES,
                                  PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (own.stacks == MAP_FAILED)
            abort();
    }
    turns = own.turns;
    if (in_block)
        forget_turns();
    scheduler.begun = true;
    for (size_t i = 0; i < count; i++) {
        turns[i].done = false;
        if (!turns[i].made)
            make_turn(i);
    }
}

/* Each runs up to the next barrier, in turns, until all are done. */
static void run_together(const std::vector<dim3> &threads, uint32_t *seed)
{
    size_t count = threads.size(), left = count;

    begin_turns(count);
    in_block = true;
    while (left > 0) {
        size_t first = *seed ? next_random(seed) % count : 0;

        for (size_t k = 0; k < count; k++) {
            size_t i = first + k < count ? first + k : first + k - count;

            if (turns[i].done)
                continue;
            threadIdx = threads[i];
            current = i;
            switch_turn(&scheduler, &turns[i]);
            left -= turns[i].done;
        }
    }
    in_block = false;
}

static void run_alone(const std::vector<dim3> &threads)
{
    for (const dim3 &t : threads) {
        threadIdx = t;
        (*body)();
    }
}

void cuda_emulated_barrier(void)
{
    switch_turn(&turns[current], &scheduler);
}

/* A launch. Its vectors are members, since a fault leaves it by a jump. */
struct grid_run {
    dim3 grid, block;
    bool together;
    std::function<void()> thread;
    std::vector<dim3> blocks, threads;

    void operator()(void)
    {
        uint32_t seed = launch_seed();

        list_all(blocks, grid);
        list_all(threads, block);
        shuffle(blocks, &seed);
        shuffle(threads, &seed);
        blockDim = block;
        gridDim = grid;
        body = &thread;
        for (const dim3 &b : blocks) {
            blockIdx = b;
            if (together)
                run_together(threads, &seed);
            else
                run_alone(threads);
        }
    }
};

static bool is_launchable(dim3 grid, dim3 block)
{
    return grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.y < 65536 && grid.z < 65536 &&
           block.x > 0 && block.y > 0 && block.z > 0 && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= THREADS_MAX;
}

void cuda_emulated_launch(cudaStream_t stream, dim3 grid, dim3 block, bool together,
                          std::function<void()> thread)
{
    cudaError_t code = enter_call("cudaLaunchKernel", CALL_DEVICE);
    locked guard;
    stream_ref s = code == cudaSuccess ? find_stream(stream) : nullptr;
    item i{};

    if (code == cudaSuccess && !is_launchable(grid, block))
        code = cudaErrorInvalidConfiguration;
    if (code == cudaSuccess && (!s || s->device != current_device()))
        code = cudaErrorInvalidResourceHandle;
    i.kind = ITEM_RUN;
    i.run = grid_run{ grid, block, together, std::move(thread), {}, {} };
    if (code == cudaSuccess)
        code = queue_item(s, std::move(i));
    end_call(code);
}
