/* SPDX-License-Identifier: MIT */
#pragma once

#include <pthread.h>
#include <signal.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/fakes/cuda/cuda_runtime.h"

/*
 * The declarations that the emulator's files share. One lock guards all of it; queued
 * work runs without the lock. No static object here has a destructor: threads may run
 * until the process ends.
 */
#define DEVICES_MAX 64

using stream_ref = std::shared_ptr<CUstream_st>;
using capture_ref = std::shared_ptr<struct capture>;

/* One call of cudaEventRecord. */
struct moment {
    bool reached;
    stream_ref in;
    double at_ms;
    capture_ref captured; /* in a capture, with how far its branches had come */
    std::vector<size_t> clock;
};
using moment_ref = std::shared_ptr<moment>;

/* A kernel that waits for other processes. */
struct waiting_kernel {
    void (*run)(void *arg);
    void (*release)(void *arg);
    void *arg;
    ~waiting_kernel()
    {
        if (release)
            release(arg);
    }
};

enum item_kind {
    ITEM_RUN,
    ITEM_RECORD,
    ITEM_WAIT,
    ITEM_WAITING,
    ITEM_STUCK,
    ITEM_FAIL
};

struct item {
    enum item_kind kind;
    std::function<void()> run; /* ITEM_RUN */
    bool peers;                /* it may touch every device's memory: a copy */
    bool of_graph;
    moment_ref when;
    std::shared_ptr<waiting_kernel> waiting;
};

struct CUstream_st {
    struct device *device;
    bool blocking; /* not cudaStreamNonBlocking */
    bool destroyed, busy, threaded;
    unsigned waiting; /* so many items that run in the stream's thread */
    std::deque<item> items;
    capture_ref capture;
    size_t branch; /* its number in the capture */
};

struct CUevent_st {
    struct device *device;
    bool timed;
    moment_ref last;
};

struct piece { /* of memory of a device */
    struct device *device;
    char *at;
    size_t bytes;  /* asked for, up to the alignment */
    char *base;    /* its first page */
    size_t pages;  /* bytes of its pages */
    bool mapped;   /* by cuda_emulated_map */
    bool opened;   /* it can be touched now */
    unsigned seen; /* by so many waiting kernels that run */
    ~piece();
};
using piece_ref = std::shared_ptr<piece>;

struct device {
    int number;
    bool made; /* it has a context */
    cudaError_t failed;
    stream_ref standard; /* the default stream */
    std::set<stream_ref> streams;
    int memory; /* the file */
    char *arena, *view, *top;
    std::multimap<size_t, char *> unused; /* address space of freed pieces */
    size_t used;
    int working;                   /* so many device_access */
    std::vector<piece_ref> opened; /* that it has touched meanwhile */
};

/* -- emulator.cc ------------------------------------------------------------------- */
struct emulator {
    emulator()
    {
        for (int i = 0; i < DEVICES_MAX; i++)
            devices[i].number = i;
    }
    device devices[DEVICES_MAX] = {};
    std::map<CUstream_st *, stream_ref> streams;
    std::set<CUevent_st *> events;
    std::map<char *, piece_ref> pieces;
    std::map<char *, size_t> pinned, registered;
    std::vector<capture_ref> captures; /* under way */
    std::vector<item> dropped;         /* destroyed without the lock */
};
emulator &state(void);

/* The lock. */
struct locked {
    locked();
    ~locked();
};
/* While work runs. */
struct unlocked {
    unlocked();
    ~unlocked();
};
/* In a signal handler: it only takes the lock. */
struct locked_briefly {
    locked_briefly();
    ~locked_briefly();
};
void changed(void);
void await_change(void);
/* Waits a millisecond at most. */
void await_change_briefly(void);

enum {
    CALL_PLAIN = 0,
    CALL_DEVICE = 1, /* needs a device's context */
    CALL_UNSAFE = 2  /* refused during captures */
};
/* At the beginning of each call of the API, without the lock. */
cudaError_t enter_call(const char *name, unsigned rules);
/* At its end. */
cudaError_t end_call(cudaError_t code);
#define ENTER(name, rules)                                                             \
    do {                                                                               \
        cudaError_t entered = enter_call(name, rules);                                 \
        if (entered != cudaSuccess)                                                    \
            return end_call(entered);                                                  \
    } while (0)
/* The fault of the work that this call queues; returned once. */
int take_fault(void);

/* -- device.cc --------------------------------------------------------------------- */
device *current_device(void);
cudaError_t make_context(void);
/* With the lock. */
void fail_device(device *d, cudaError_t code);
void set_current(int number);

/* -- memory.cc --------------------------------------------------------------------- */
/* While this object exists, work can touch these devices' memory. With the lock. */
struct device_access {
    std::vector<device *> open;
    void add(device *d);
    void close(void);
    ~device_access()
    {
        close();
    }
};
piece_ref find_piece(const void *memory);
bool is_arena(const void *memory);
/* After an access that failed, without the lock. True: try it again. */
bool open_piece(const device_access &a, void *memory);
bool is_pinned(const void *memory);
/* The pieces that a waiting kernel of this thread has seen. */
struct running_kernel {
    device *on;
    std::vector<piece_ref> seen;
};
void begin_running(running_kernel *k);
void end_running(running_kernel *k);

/* -- schedule.cc: with the lock ---------------------------------------------------- */
/* Puts an item into the stream, or into the graph that is captured from it. */
cudaError_t queue_item(const stream_ref &s, item i);
moment_ref queue_moment(const stream_ref &s);
/* Runs all work before the moment. */
cudaError_t await_moment(const moment_ref &m);
/* Does one piece of work of the stream, or of one that it waits for. False: there is
 * none that can be done now. */
bool advance_once(const stream_ref &s);
cudaError_t await_device(device *d);

/* -- stream.cc --------------------------------------------------------------------- */
stream_ref find_stream(cudaStream_t s);
stream_ref make_stream(device *d, bool blocking);
void destroy_stream(const stream_ref &s);

/* -- capture.cc: with the lock ----------------------------------------------------- */
struct node {
    size_t branch;
    item i;
};
struct capture {
    enum cudaStreamCaptureMode mode;
    pthread_t thread;
    bool invalid;
    stream_ref origin;
    std::vector<stream_ref> branches;
    std::vector<std::vector<size_t>> clocks; /* of each branch, of all branches */
    std::vector<node> nodes;
};
cudaError_t capture_item(const stream_ref &s, item i);
cudaError_t capture_moment(const stream_ref &s, CUevent_st *event);
/* *handled: the capture has recorded it. */
cudaError_t capture_wait(const stream_ref &s, const moment_ref &m, bool *handled);
cudaError_t capture_check_unsafe(void);
/* For a call that would wait for a stream, or query it. */
cudaError_t capture_check_stream(const stream_ref &s);

/* -- graph.cc ---------------------------------------------------------------------- */
cudaGraph_t make_graph(const capture_ref &c);

/* -- kernel.cc --------------------------------------------------------------------- */
/* Returns the code of a memory fault in what it runs. */
cudaError_t run_guarded(const std::function<void()> &run, const device_access &a);
void guard_memory_faults(void);
