/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * A test double of NCCL on the emulated GPU (tests/fakes/cuda), for ranks that are
 * processes or threads of one machine. Its data goes through memory that the ranks
 * share. CRUN_STANDIN_VERSION is the version whose rules it follows, 22809 for 2.28.9.
 * CRUN_STANDIN_ADDRESS is the address of rank 0 in an id, for which nothing listens.
 * CRUN_STANDIN_FAULT injects faults into calls: tests/fakes/cuda/fault.h.
 *
 * The rules, each with the place in NCCL's sources (src/) that it copies; "all" is
 * every release from 2.19.3 to 2.30.7.
 *
 * Calls in progress (communicators with blocking = 0)
 *  1 A call returns ncclInProgress, and a thread of NCCL does the work and puts the
 *    kernel into the caller's stream later: group.cc, ncclGroupEndInternal, from
 *    2.23.4. Before, only set-up and the first message of two ranks did so: see below.
 *  2 Any call that uses the communicator meanwhile gets ncclInvalidArgument: init.cc,
 *    ncclCommEnsureReady, all. The collective also makes it the communicator's state,
 *    until the work in progress sets another: enqueue.cc, ncclEnqueueCheck, all.
 *  3 ncclCommGetAsyncError returns the state: ncclInProgress, then the result of the
 *    work: init.cc, all. An error stays: every later call but ncclCommAbort returns it,
 *    ncclCommDestroy included: init.cc, ncclCommEnsureReady, all.
 *  4 A single ncclSend or ncclRecv returns ncclSuccess while it is in progress, below
 *    2.24.3: it ends a group and drops ncclInProgress: collectives.cc, v2.23.4-1.
 *  5 ncclCommWindowRegister returns ncclSuccess while it is in progress, from 2.28.3:
 *    dev_runtime.cc, v2.28.9-1. 2.27 returns ncclInProgress: register/register.cc,
 *    v2.27.7-1.
 *  6 Blocking calls return when the kernel is in the stream. Both kinds in one group
 *    are ncclInvalidArgument: group.cc, ncclAsyncLaunch, all.
 *
 * Communicators
 *  7 *comm is set before the work begins, and NULL after wrong arguments: init.cc,
 *    ncclCommInitRankDev, all. The new one of ncclCommSplit is NULL until the parent's
 *    work is over: ncclCommInitChildComm, v2.28.9-1. If a split fails on a rank without
 *    a color, NCCL's thread writes to the new communicator, which is NULL: the process
 *    ends (ncclCommInitRankFunc, all).
 *  8 A rank that shares its host hash and its GPU's bus id with another one gets
 *    ncclInvalidUsage; the other ranks wait for it: init.cc, initTransportsRank, all.
 *    From 2.30.3 NCCL compares UUIDs, which differ between parts of a GPU, and
 *    NCCL_MULTI_RANK_GPU_ENABLE allows ranks to share a GPU: v2.30.7-1.
 *    NCCL_HOSTID replaces the host's name: misc/utils.cc, getHostHash, all.
 *  9 Ranks with different versions get ncclInvalidUsage, from 2.23.4: init.cc.
 * 10 ncclCommFinalize waits for the kernels. If it was not called, ncclCommDestroy and
 *    ncclCommAbort do so: init.cc, commDestroySync, all. They also wait for graphs that
 *    contain a kernel: localPersistentRefs, v2.28.9-1. Ranks of a node finalize
 *    together (user guide, "ncclCommFinalize").
 * 11 ncclCommAbort ends the work in progress and kernels, which poll a flag. User
 *    guide, "Fault Tolerance": with blocking = 0 no thread may be inside another call
 *    of the communicator; the stand-in ends the process there, but waits for a call
 *    that has hung for half a second. A call of a blocking communicator that another
 *    thread aborts returns ncclInternalError: misc/socket.cc.
 * 27 From 2.28.7 ncclCommRevoke ends a call of a blocking communicator, and its
 * kernels, and frees nothing: init.cc, commRevokeAsync, v2.28.9-1. From there on an
 * abort under such a call ends the process, as what it frees is in use; but not while
 *    ranks meet.
 * 12 The death of a peer on this host is no error, and kernels wait for it forever;
 *    only the network causes ncclRemoteError: misc/socket.cc, transport/net_ib.cc, all.
 * 13 From 2.22.3 algorithms are connected by the first operation that uses them, by all
 *    ranks together; two ranks are connected by their first message, both of them, in
 *    all versions: group.cc, ncclCollPreconnect and ncclP2PPreconnectFunc.
 *
 * 25 Kernels that ncclCommAbort ends, also those that are queued, tell their peers that
 *    each step is done. So the peers' kernels end, without an error and with the bytes
 *    of another time. The aborted kernel leaves the rest of its output as it was:
 *    device/prims_simple.h, workSize 0 and postPeer, v2.30.7-1 lines 230, 277, 297 and
 *    165 (v2.19.3-1 lines 242, 280 and 179). With the low-latency protocol, for small
 *    operations, its output has such bytes, too: device/prims_ll.h, readLL, v2.30.7-1
 *    line 118 (v2.19.3-1 line 104). What was done before has the right sums.
 *
 * Groups
 * 14 Nothing starts before the outermost ncclGroupEnd, and that returns the first error
 *    of the group's calls: group.cc, all. With one rank a collective is a copy that
 *    starts at once: enqueue.cc, taskAppend, all.
 * 15 A group's collectives run sorted: symmetric ones, then by function, operation and
 *    type, small before large; messages last and together: enqueue.cc, ncclPrepareTasks
 *    and ncclLaunchPrepare, v2.23.4-1 and later. Its streams are joined before and
 *    after.
 * 16 Collectives without elements are dropped: enqueue.cc, taskAppend, all.
 *
 * Memory
 * 17 ncclMemFree unmaps without a wait: allocator.cc, all. Work that still uses the
 *    memory faults, as does a kernel with pageable host memory or that of another GPU.
 * 18 Windows need memory of ncclMemAlloc: else ncclUnhandledCudaError
 *    (cuMemRetainAllocationHandle), at once in 2.27, from 2.28 as the state. From 2.28
 *    their offset must be a multiple of 4096 (ncclInvalidArgument): dev_runtime.cc.
 *    2.27 returns a NULL window if the allocation does not contain the whole buffer:
 *    register/register.cc.
 * 19 From 2.29.2 a window is NULL, with success, if ranks are on several nodes whose
 *    GPUs cannot use the network by themselves (GIN): init.cc, symmetricSupport, and
 *    dev_runtime.cc, v2.29.7-1. Before, it is a local registration.
 * 20 Symmetric kernels: any all-gather, and sums of f32, f16 and bf16 by all-reduce and
 *    reduce-scatter, both buffers in symmetric windows, one node: symmetric.cc
 *    v2.27.7-1, sym_kernels.cc v2.28.9-1. Below 2.29.7 ncclCommAbort does not end them:
 *    nccl_device/impl/lsa_barrier__funcs.h, v2.29.3-1 and v2.29.7-1.
 * 26 From 2.29.2 an all-gather in symmetric windows, of more than NCCL_SYM_CE_THRESHOLD
 *    elements of each rank (8 Mi), uses copy engines if all GPUs have the compute
 *    capability 10: enqueue.cc, taskAppend, v2.29.7-1. Those of the stand-in count as
 *    such. ncclCommAbort does not end it: ce_coll.cc.
 * 21 ncclCommRegister is local and needs no VMM memory; below 2.23.4 a NULL handle to
 *    ncclCommDeregister is an error: init.cc v2.19.3-1, register.cc v2.23.4-1.
 *
 * Sums
 * 22 Floats are added in a ring's order and rounded in the element's type at each hop:
 *    device/all_reduce.h. Chunk r of n / ranks elements begins with rank r + 1 and ends
 *    with rank r. Two ranks: the same bits as any other order.
 * 23 ncclAvg multiplies floats by 1 / ranks in the element's type before it adds, and
 *    divides the sum of integers: enqueue.cc, hostToDevRedOp, all.
 * 24 Counts, types or operations that differ between ranks cause no error, but wrong
 *    data or a wait without end.
 *
 * Stricter than NCCL, where its behaviour is undefined: ncclCommRegister, -Deregister
 * and ncclCommWindowDeregister are refused while a call is in progress; calls that a
 * version does not have, and any use of a communicator that is NULL, was freed or is
 * being aborted, end the process.
 * It accepts more than NCCL, or leaves out what NCCL does:
 *  - Below 2.23.4 NCCL launches collectives in the call itself, which then returns
 *    ncclSuccess; 2.22.3 also connects there. Like a call of a blocking communicator,
 *    it may wait for other ranks, and it cannot be aborted.
 *  - Calls never wait for room in the stream or in NCCL's queue of work.
 *  - The members of a group run one after the other. NCCL may run them at the same
 *    time, so members that use each other's buffers are wrong there.
 *  - Below 2.28.7 ncclCommAbort of a blocking communicator waits for the threads that
 *    are in its calls. NCCL frees it while they use it.
 *  - ncclCommRevoke does not take its flag back, and it does not touch what a thread in
 *    a call uses. NCCL's stops the proxy thread, too.
 *  - No call of the stand-in waits for all of the GPU's work, as cudaFree does, or is
 *    forbidden during a capture.
 *  - Kernels of several communicators never lack room on the GPU.
 *  - Ranks on several nodes share memory: no network, and no windows over it (GIN).
 *  - A kernel's sums are those of one ring with one channel; the real ones also know
 *    trees and NVLS.
 */
#define STANDIN_VERSION 22809

int standin_version(void);
/* The text of ncclGetLastError. */
__attribute__((format(printf, 1, 2))) void standin_warn(const char *format, ...);
const char *standin_last_warning(void);
/* A use that has no defined result: ends the process. */
__attribute__((format(printf, 1, 2), noreturn)) void standin_refuse(const char *format,
                                                                    ...);

/* -- what depends on the version: the numbers are those of the rules above --------- */
bool rule_message_returns_early(int version); /* 4 */
bool rule_window_returns_early(int version);  /* 5 */
bool rule_gpus_compared_by_uuid(int version); /* 8 */
bool rule_versions_compared(int version);     /* 9 */
bool rule_connects_lazily(int version);       /* 13 */
bool rule_has_windows(int version);           /* 18 */
bool rule_window_needs_one_node(int version); /* 19 */
bool rule_symmetric_is_deaf(int version);     /* 20 */
bool rule_null_handle_refused(int version);   /* 21 */
bool rule_has_copy_engines(int version);      /* 26 */
bool rule_has_revoke(int version);            /* 27 */
