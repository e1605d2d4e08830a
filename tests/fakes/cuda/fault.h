/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Faults of the emulated GPU's calls and of the stand-in for NCCL, one grammar:
 *
 *   CRUN_STANDIN_FAULT   CALL:KIND:RANK[:NTH],...   ncclSend:hang:1:3, the third
 *       error[=CODE]   it returns ncclSystemError; a call of CUDA cudaErrorUnknown
 *       remote         it returns ncclRemoteError
 *       sticky[=CODE]  CUDA: so does each later call of its device; 700 without a code
 *       hang           it never returns
 *       wait           the same; in calls that free memory: a kernel before it hangs
 *       late           it takes some time
 *       kill           the process dies
 *       async          it is done, and the communicator is broken; CUDA: what it queues
 *                      fails when the device reaches it (cudaErrorIllegalAddress)
 *       stall          what it queues never ends; NCCL: unless it is aborted
 *       deaf           what it launches never ends, aborted or not
 *
 * CALL is the function's name. The launch of a kernel is cudaLaunchKernel; NCCL
 * allocates and frees GPU memory by cuMemMap and cuMemUnmap. RANK is that in the NCCL
 * communicator of the call, if it has one; else that of the thread (standin_set_rank),
 * else the process's (RANK, OMPI_COMM_WORLD_RANK), else the number of the thread's
 * device. Faults do not happen after a restart (TORCHELASTIC_RESTART_COUNT).
 *
 * Each call appends the line "RANK CALL" to the file CRUN_STANDIN_CALLS, and each fault
 * appends it to the file CRUN_STANDIN_HAPPENED. What the device begins to do is in the
 * file CRUN_STANDIN_TRACE: "work", "graph" for work of one, "ncclReduceScatter",
 * "nccl".
 */
#ifdef __cplusplus
extern "C" {
#endif

enum fault { FAULT_NONE, FAULT_ASYNC, FAULT_STALL, FAULT_DEAF, FAULT_STICKY };

/* The fault of a call by this rank (-1: the call does not know it). *result is what the
 * call is to return; 0: it continues. */
enum fault standin_fault(const char *call, int rank, int *result);
void standin_trace(const char *what);
/* The rank of this thread, for faults of its calls. */
void standin_set_rank(int rank);
int standin_number(const char *variable, int otherwise);
const char *standin_last_error(void);

#ifdef __cplusplus
}
#endif
