/* SPDX-License-Identifier: MIT */
/* Captures of streams. */
#include "tests/fakes/cuda/emulator.h"

#include "tests/fakes/cuda/fault.h"

static thread_local enum cudaStreamCaptureMode thread_mode =
    cudaStreamCaptureModeGlobal;

static bool is_own(const capture_ref &c)
{
    return pthread_equal(c->thread, pthread_self());
}

/* Whether the capture forbids unsafe calls in this thread, by the table of modes at
 * cudaThreadExchangeStreamCaptureMode. */
static bool forbids_unsafe(const capture_ref &c)
{
    if (thread_mode == cudaStreamCaptureModeRelaxed)
        return false;
    if (is_own(c))
        return c->mode != cudaStreamCaptureModeRelaxed;
    return thread_mode == cudaStreamCaptureModeGlobal &&
           c->mode == cudaStreamCaptureModeGlobal;
}

cudaError_t capture_check_unsafe(void)
{
    cudaError_t code = cudaSuccess;

    for (const capture_ref &c : state().captures)
        if (forbids_unsafe(c)) {
            c->invalid = true;
            code = cudaErrorStreamCaptureUnsupported;
        }
    return code;
}

/* The capture whose blocking stream the default stream would have to wait for. */
static capture_ref find_implicit(const stream_ref &s)
{
    if (s != s->device->standard)
        return nullptr;
    for (const capture_ref &c : state().captures)
        for (const stream_ref &branch : c->branches)
            if (branch->blocking && branch->device == s->device)
                return c;
    return nullptr;
}

cudaError_t capture_check_stream(const stream_ref &s)
{
    capture_ref c = s->capture ? s->capture : find_implicit(s);

    if (!c)
        return cudaSuccess;
    c->invalid = true;
    return s->capture ? cudaErrorStreamCaptureUnsupported
                      : cudaErrorStreamCaptureImplicit;
}

/* -- what is captured -------------------------------------------------------------- */

/* One step of the branch further. */
static void add_node(const stream_ref &s, item i)
{
    capture_ref c = s->capture;

    c->clocks[s->branch][s->branch]++;
    c->nodes.push_back({ s->branch, std::move(i) });
}

static void add_branch(const capture_ref &c, const stream_ref &s)
{
    s->capture = c;
    s->branch = c->branches.size();
    c->branches.push_back(s);
    for (std::vector<size_t> &clock : c->clocks)
        clock.push_back(0);
    c->clocks.push_back(std::vector<size_t>(c->branches.size(), 0));
}

cudaError_t capture_item(const stream_ref &s, item i)
{
    if (s->capture->invalid) {
        state().dropped.push_back(std::move(i));
        return cudaErrorStreamCaptureInvalidated;
    }
    add_node(s, std::move(i));
    return cudaSuccess;
}

cudaError_t capture_moment(const stream_ref &s, CUevent_st *event)
{
    moment_ref m = std::make_shared<moment>();
    item i{};

    if (s->capture->invalid)
        return cudaErrorStreamCaptureInvalidated;
    m->in = s;
    m->captured = s->capture;
    i.kind = ITEM_RECORD;
    i.when = m;
    s->capture->nodes.push_back({ s->branch, std::move(i) });
    m->clock = s->capture->clocks[s->branch];
    event->last = m;
    return cudaSuccess;
}

static cudaError_t refuse_wait(const capture_ref &c, cudaError_t code)
{
    if (c)
        c->invalid = true;
    return code;
}

cudaError_t capture_wait(const stream_ref &s, const moment_ref &m, bool *handled)
{
    capture_ref c = m->captured;
    item i{};

    *handled = s->capture || c;
    if (!*handled)
        return cudaSuccess;
    if ((s->capture && s->capture->invalid) || (c && c->invalid))
        return cudaErrorStreamCaptureInvalidated;
    if (!c)
        return refuse_wait(s->capture, cudaErrorStreamCaptureIsolation);
    if (c->branches.empty()) /* it has ended */
        return refuse_wait(s->capture, cudaErrorCapturedEvent);
    if (s->capture && s->capture != c) {
        refuse_wait(c, cudaErrorStreamCaptureMerge);
        return refuse_wait(s->capture, cudaErrorStreamCaptureMerge);
    }
    if (s == s->device->standard)
        return refuse_wait(c, cudaErrorStreamCaptureImplicit);
    if (!s->capture)
        add_branch(c, s);
    for (size_t b = 0; b < m->clock.size(); b++)
        if (c->clocks[s->branch][b] < m->clock[b])
            c->clocks[s->branch][b] = m->clock[b];
    i.kind = ITEM_WAIT;
    i.when = m;
    c->nodes.push_back({ s->branch, std::move(i) });
    return cudaSuccess;
}

/* -- begin and end ----------------------------------------------------------------- */

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    ENTER("cudaThreadExchangeStreamCaptureMode", CALL_PLAIN);
    enum cudaStreamCaptureMode before = thread_mode;

    thread_mode = *mode;
    *mode = before;
    return cudaSuccess;
}

/* It ends no capture. */
cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  enum cudaStreamCaptureStatus *status)
{
    ENTER("cudaStreamIsCapturing", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);

    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    *status = !s->capture           ? cudaStreamCaptureStatusNone
              : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return find_implicit(s) ? end_call(cudaErrorStreamCaptureImplicit) : cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    ENTER("cudaStreamBeginCapture", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);
    capture_ref c = std::make_shared<capture>();

    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    if (s == s->device->standard)
        return end_call(cudaErrorStreamCaptureUnsupported);
    if (s->capture)
        return end_call(cudaErrorIllegalState);
    c->mode = mode;
    c->thread = pthread_self();
    c->origin = s;
    add_branch(c, s);
    state().captures.push_back(c);
    return cudaSuccess;
}

static cudaError_t check_end(const stream_ref &s)
{
    capture_ref c = s->capture;

    if (!c)
        return cudaErrorIllegalState;
    if (c->origin != s)
        return refuse_wait(c, cudaErrorStreamCaptureUnmatched);
    if (c->mode != cudaStreamCaptureModeRelaxed && !is_own(c))
        return refuse_wait(c, cudaErrorStreamCaptureWrongThread);
    return cudaSuccess;
}

/* Streams are as they were. */
static void end_capture(const capture_ref &c)
{
    for (const stream_ref &branch : c->branches)
        branch->capture = nullptr;
    c->origin = nullptr;
    c->branches.clear();
    for (size_t i = 0; i < state().captures.size(); i++)
        if (state().captures[i] == c) {
            state().captures.erase(state().captures.begin() + (ptrdiff_t)i);
            break;
        }
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    ENTER("cudaStreamEndCapture", CALL_DEVICE);
    locked guard;
    stream_ref s = find_stream(stream);
    cudaError_t code;

    *graph = NULL;
    if (!s)
        return end_call(cudaErrorInvalidResourceHandle);
    code = check_end(s);
    if (code != cudaSuccess)
        return end_call(code);
    capture_ref c = s->capture;
    for (size_t b = 0; b < c->branches.size(); b++)
        if (c->clocks[0][b] != c->clocks[b][b])
            code = cudaErrorStreamCaptureUnjoined;
    if (c->invalid)
        code = cudaErrorStreamCaptureInvalidated;
    if (code == cudaSuccess)
        *graph = make_graph(c);
    else
        for (node &n : c->nodes)
            state().dropped.push_back(std::move(n.i));
    end_capture(c);
    return end_call(code);
}
