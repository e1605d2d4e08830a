/* SPDX-License-Identifier: MIT */
/* When work runs: as late as a wait of the host, or a waiting kernel behind it, allows.
 */
#include "tests/fakes/cuda/emulator.h"

#include <stdlib.h>
#include <time.h>

#include "tests/fakes/cuda/fault.h"

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* -- running ----------------------------------------------------------------------- */

static void run_first(CUstream_st *s, device_access &a)
{
    item i = std::move(s->items.front());
    cudaError_t code;

    s->items.pop_front();
    s->busy = true;
    standin_trace(i.of_graph ? "graph" : "work");
    a.add(s->device);
    for (device &d : state().devices)
        if (i.peers && d.arena)
            a.add(&d);
    {
        unlocked running;
        code = run_guarded(i.run, a);
    }
    s->busy = false;
    if (code != cudaSuccess)
        fail_device(s->device, code);
    changed();
}

/* Runs the first item of the stream, or of one that it waits for. False: something else
 * has to happen first. */
static bool advance(stream_ref s, device_access &a)
{
    while (!s->busy && !s->items.empty()) {
        item &first = s->items.front();

        switch (first.kind) {
        case ITEM_RUN:
            run_first(s.get(), a);
            return true;
        case ITEM_RECORD:
            first.when->at_ms = now_ms();
            first.when->reached = true;
            s->items.pop_front();
            changed();
            return true;
        case ITEM_WAIT:
            if (first.when->reached || first.when->in->device->failed != cudaSuccess) {
                s->items.pop_front();
                return true;
            }
            s = stream_ref(first.when->in);
            break;
        case ITEM_FAIL:
            fail_device(s->device, cudaErrorIllegalAddress);
            return true;
        case ITEM_WAITING:
        case ITEM_STUCK:
            return false;
        }
    }
    return false;
}

cudaError_t await_moment(const moment_ref &m)
{
    device *d = m->in->device;
    device_access a;

    while (!m->reached && d->failed == cudaSuccess)
        if (!advance(m->in, a)) {
            a.close();
            await_change();
        }
    return d->failed;
}

bool advance_once(const stream_ref &s)
{
    device_access a;

    return advance(s, a);
}

/* All streams of the device, up to what is queued now. */
cudaError_t await_device(device *d)
{
    std::vector<moment_ref> ends;

    for (const stream_ref &s : d->streams)
        if (!s->capture && (s->busy || !s->items.empty()))
            ends.push_back(queue_moment(s));
    for (const moment_ref &m : ends)
        await_moment(m);
    return d->failed;
}

/* -- the threads of streams, for waiting kernels ----------------------------------- */

static void run_waiting(const stream_ref &s)
{
    item i = std::move(s->items.front());
    running_kernel running = { s->device, {} };

    s->items.pop_front();
    s->waiting--;
    s->busy = true;
    {
        unlocked here;
        begin_running(&running);
        i.waiting->run(i.waiting->arg);
        i.waiting.reset();
    }
    end_running(&running);
    s->busy = false;
    changed();
}

static void *drain_stream(void *arg)
{
    stream_ref s = *(stream_ref *)arg;

    delete (stream_ref *)arg;
    set_current(s->device->number);
    locked guard;
    device_access a;
    while (!s->destroyed || s->waiting > 0) {
        if (s->waiting > 0 && !s->busy && s->items.front().kind == ITEM_WAITING) {
            a.close();
            run_waiting(s);
        } else if (s->waiting == 0 || !advance(s, a)) {
            a.close();
            await_change();
        }
    }
    return NULL;
}

static void start_thread(const stream_ref &s)
{
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;

    if (s->threaded)
        return;
    s->threaded = true;
    sigfillset(&all);
    for (int fault : { SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE })
        sigdelset(&all, fault);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &detached, drain_stream, new stream_ref(s)) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

/* -- queueing ---------------------------------------------------------------------- */

static item plain_item(enum item_kind kind)
{
    item i{};

    i.kind = kind;
    return i;
}

/* Later work of `after` waits for the work that is in `before` now. */
static void join_streams(const stream_ref &before, const stream_ref &after)
{
    if (before == after || before->capture || (!before->busy && before->items.empty()))
        return;
    if (before->items.empty() || before->items.back().kind != ITEM_RECORD) {
        item end = plain_item(ITEM_RECORD);

        end.when = std::make_shared<moment>();
        end.when->in = before;
        before->items.push_back(std::move(end));
    }
    item wait = plain_item(ITEM_WAIT);
    wait.when = before->items.back().when;
    after->items.push_back(std::move(wait));
}

/* The default stream waits for all streams but non-blocking ones, and they wait for
 * it. */
static void order_with_default(const stream_ref &s)
{
    device *d = s->device;

    if (!s->blocking)
        return;
    if (s != d->standard)
        join_streams(d->standard, s);
    for (const stream_ref &other : d->streams)
        if (s == d->standard && other->blocking)
            join_streams(other, s);
}

cudaError_t queue_item(const stream_ref &s, item i)
{
    int fault = take_fault();
    bool threaded = i.kind == ITEM_WAITING;

    if (!s->capture && (fault == FAULT_STALL || fault == FAULT_DEAF))
        s->items.push_back(plain_item(ITEM_STUCK));
    else if (fault == FAULT_ASYNC)
        i = plain_item(ITEM_FAIL), threaded = false;
    if (s->capture)
        return capture_item(s, std::move(i));
    if (s->device->failed != cudaSuccess) {
        state().dropped.push_back(std::move(i));
        return s->device->failed;
    }
    cudaError_t code = capture_check_stream(s);
    if (code != cudaSuccess) {
        state().dropped.push_back(std::move(i));
        return code;
    }
    order_with_default(s);
    s->items.push_back(std::move(i));
    if (threaded) {
        s->waiting++;
        start_thread(s);
        changed();
    }
    return cudaSuccess;
}

moment_ref queue_moment(const stream_ref &s)
{
    moment_ref m = std::make_shared<moment>();
    item i = plain_item(ITEM_RECORD);

    m->in = s;
    i.when = m;
    queue_item(s, std::move(i));
    return m;
}

void cuda_emulated_queue(cudaStream_t stream, void (*run)(void *arg), void *arg)
{
    std::shared_ptr<void> owned(arg, free);
    cudaError_t code = enter_call("cudaLaunchKernel", CALL_DEVICE);
    locked guard;
    stream_ref s = code == cudaSuccess ? find_stream(stream) : nullptr;
    item i = plain_item(ITEM_RUN);

    if (code == cudaSuccess && (!s || s->device != current_device()))
        code = cudaErrorInvalidResourceHandle;
    i.run = [=] { run(owned.get()); };
    if (code == cudaSuccess)
        code = queue_item(s, std::move(i));
    end_call(code);
}

cudaError_t cuda_emulated_queue_waiting(cudaStream_t stream, void (*run)(void *arg),
                                        void (*release)(void *arg), void *arg)
{
    auto kernel = std::make_shared<waiting_kernel>();
    item i = plain_item(ITEM_WAITING);

    kernel->run = run;
    kernel->release = release;
    kernel->arg = arg;
    i.waiting = std::move(kernel);
    ENTER("cudaLaunchKernel", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);
    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    return end_call(queue_item(s, std::move(i)));
}
