/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_GPU_GPU_BLAS_H
#define WORKER_LIB_TRAIN_GPU_GPU_BLAS_H

#include <cublas_v2.h>

extern "C" {
#include "rendezvous/common/base/err.h"
}

/* cuBLAS, loaded at run time, so that the program also runs on machines without it. */
struct blas_calls {
    cublasStatus_t (*create)(cublasHandle_t *handle);
    cublasStatus_t (*destroy)(cublasHandle_t handle);
    cublasStatus_t (*set_stream)(cublasHandle_t handle, cudaStream_t stream);
    cublasStatus_t (*set_workspace)(cublasHandle_t handle, void *memory, size_t bytes);
    cublasStatus_t (*gemm)(cublasHandle_t handle, cublasOperation_t a,
                           cublasOperation_t b, int m, int n, int k, const void *alpha,
                           const void *A, cudaDataType a_type, int lda, const void *B,
                           cudaDataType b_type, int ldb, const void *beta, void *C,
                           cudaDataType c_type, int ldc, cublasComputeType_t compute,
                           cublasGemmAlgo_t algo);
};

/* NULL: see *e. */
const struct blas_calls *blas_open(struct err *e);

#endif
