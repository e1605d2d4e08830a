/* SPDX-License-Identifier: MIT */
/* Streams and events. */
#include "tests/fakes/cuda/emulator.h"

#include "tests/fakes/cuda/fault.h"

/* -- streams ----------------------------------------------------------------------- */

stream_ref make_stream(device *d, bool blocking)
{
    stream_ref s = std::make_shared<CUstream_st>();

    s->device = d;
    s->blocking = blocking;
    d->streams.insert(s);
    state().streams[s.get()] = s;
    return s;
}

stream_ref find_stream(cudaStream_t s)
{
    auto found = state().streams.find(s);

    if (!s)
        return current_device()->standard;
    return found == state().streams.end() ? nullptr : found->second;
}

static void forget_idle_streams(device *d)
{
    for (auto s = d->streams.begin(); s != d->streams.end();)
        if ((*s)->destroyed && !(*s)->busy && (*s)->items.empty())
            s = d->streams.erase(s);
        else
            ++s;
}

void destroy_stream(const stream_ref &s)
{
    s->destroyed = true;
    state().streams.erase(s.get());
    forget_idle_streams(s->device);
    changed();
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags)
{
    ENTER("cudaStreamCreateWithFlags", CALL_DEVICE);
    locked guard;

    *s = make_stream(current_device(), !(flags & cudaStreamNonBlocking)).get();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int)
{
    ENTER("cudaStreamCreateWithPriority", CALL_DEVICE);
    return cudaStreamCreateWithFlags(s, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    ENTER("cudaDeviceGetStreamPriorityRange", CALL_DEVICE);
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* Its work continues. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    ENTER("cudaStreamDestroy", CALL_DEVICE);
    locked guard;
    stream_ref s = stream ? find_stream(stream) : nullptr;

    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    (void)capture_check_stream(s);
    destroy_stream(s);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    ENTER("cudaStreamSynchronize", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    stream_ref s = find_stream(stream);
    cudaError_t code;

    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    code = capture_check_stream(s);
    if (code == cudaSuccess)
        code = await_moment(queue_moment(s));
    return end_call(code);
}

/* A program that polls lets the threads run for which it waits. Its next query sees
 * their changes. */
static cudaError_t not_ready(bool advanced)
{
    if (!advanced)
        await_change_briefly();
    return cudaErrorNotReady;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    ENTER("cudaStreamQuery", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    stream_ref s = find_stream(stream);
    cudaError_t code;

    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    code = capture_check_stream(s);
    if (code != cudaSuccess)
        return end_call(code);
    bool advanced = advance_once(s);
    if (s->device->failed != cudaSuccess)
        return end_call(s->device->failed);
    if (!s->busy && s->items.empty())
        return cudaSuccess;
    return not_ready(advanced);
}

/* -- events ------------------------------------------------------------------------ */

static CUevent_st *find_event(cudaEvent_t event)
{
    return state().events.count(event) ? event : NULL;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    ENTER("cudaEventCreateWithFlags", CALL_DEVICE);
    locked guard;

    *event = new CUevent_st();
    (*event)->device = current_device();
    (*event)->timed = !(flags & cudaEventDisableTiming);
    state().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    ENTER("cudaEventDestroy", CALL_DEVICE);
    locked guard;

    if (!find_event(event))
        return end_call(cudaErrorInvalidResourceHandle);
    state().events.erase(event);
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    ENTER("cudaEventRecord", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);

    if (!find_event(event) || !s || s->device != event->device)
        return end_call(cudaErrorInvalidResourceHandle);
    if (s->capture)
        return end_call(capture_moment(s, event));
    event->last = queue_moment(s);
    return end_call(s->device->failed);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    ENTER("cudaStreamWaitEvent", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);
    bool handled = false;
    cudaError_t code;
    item i{};

    if (!find_event(event) || !s)
        return end_call(cudaErrorInvalidResourceHandle);
    if (!event->last)
        return cudaSuccess;
    code = capture_wait(s, event->last, &handled);
    if (handled || event->last->reached)
        return end_call(code);
    i.kind = ITEM_WAIT;
    i.when = event->last;
    return end_call(queue_item(s, std::move(i)));
}

/* Of an event that was recorded in a capture. */
static cudaError_t check_captured(const moment_ref &m)
{
    if (!m || !m->captured)
        return cudaSuccess;
    m->captured->invalid = true;
    return cudaErrorCapturedEvent;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    ENTER("cudaEventSynchronize", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    cudaError_t code;

    if (!find_event(event))
        return end_call(cudaErrorInvalidResourceHandle);
    moment_ref m = event->last;
    code = check_captured(m);
    if (code == cudaSuccess && m)
        code = await_moment(m);
    return end_call(code);
}

/* Each query does one piece of work, so that polling ends. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    ENTER("cudaEventQuery", CALL_DEVICE | CALL_UNSAFE);
    locked guard;
    cudaError_t code;

    if (!find_event(event))
        return end_call(cudaErrorInvalidResourceHandle);
    moment_ref m = event->last;
    code = check_captured(m);
    if (code != cudaSuccess || !m)
        return end_call(code);
    bool advanced = !m->reached && advance_once(m->in);
    if (m->in->device->failed != cudaSuccess)
        return end_call(m->in->device->failed);
    return m->reached ? cudaSuccess : not_ready(advanced);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    ENTER("cudaEventElapsedTime", CALL_DEVICE);
    locked guard;

    if (!find_event(from) || !find_event(to) || !from->last || !to->last ||
        !from->timed || !to->timed || from->device != to->device)
        return end_call(cudaErrorInvalidResourceHandle);
    if (from->last->captured || to->last->captured)
        return end_call(cudaErrorCapturedEvent);
    if (!from->last->reached || !to->last->reached)
        return cudaErrorNotReady;
    *ms = (float)(to->last->at_ms - from->last->at_ms);
    return cudaSuccess;
}
