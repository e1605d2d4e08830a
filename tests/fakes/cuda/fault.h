/* SPDX-License-Identifier: MIT */
#ifndef TESTS_FAKES_CUDA_FAULT_H
#define TESTS_FAKES_CUDA_FAULT_H

/*
 * Faults of the emulated GPU's calls and of the stand-in for NCCL, one grammar:
 *
 *   CRUN_STANDIN_FAULT   CALL:KIND:RANK[:NTH],...   ncclSend:hang:1:3, the third
 *       error[=CODE]   it returns ncclSystemError; a call of CUDA cudaErrorUnknown
 *       remote         it returns ncclRemoteError
 *       sticky[=CODE]  CUDA: so does each later call of its device; 700 without a code
 *       hang           it never returns
 *       wait           the same; for calls that free: a kernel before it hangs
 *       late           it takes some time
 *       kill           the process dies
 *       async          it is done, and the communicator is broken; CUDA: what it queues
 *                      fails when the device reaches it (cudaErrorIllegalAddress)
 *       stall          what it queues never ends; NCCL: unless it is aborted
 *       deaf           what it launches never ends, aborted or not
 *
 * CALL is the function's name; a kernel's launch is cudaLaunchKernel, and NCCL's memory
 * comes and goes with cuMemMap and cuMemUnmap. RANK is that of a
 * NCCL communicator where the call has one; else that of the thread
 * (standin_set_rank), else the process's (RANK, OMPI_COMM_WORLD_RANK), else the number
 * of the thread's device. A fault happens in the job's first life only
 * (TORCHELASTIC_RESTART_COUNT).
 *
 * "RANK CALL" is added as a line to the file CRUN_STANDIN_CALLS at each call, and to
 * the file CRUN_STANDIN_HAPPENED at each fault.
 */
#ifdef __cplusplus
extern "C" {
#endif

enum fault { FAULT_NONE, FAULT_ASYNC, FAULT_STALL, FAULT_DEAF, FAULT_STICKY };

/* Of a call by this rank, -1: the call does not tell. *result is what it is to return,
 * 0: it goes on. */
enum fault standin_fault(const char *call, int rank, int *result);
/* The rank of this thread, for faults of its calls. */
void standin_set_rank(int rank);
int standin_number(const char *variable, int otherwise);
const char *standin_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
