/* SPDX-License-Identifier: MIT */
#pragma once

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdlib.h>

extern "C" {
#include "worker-lib/train/compute.h"
}

/* cuBLASLt, loaded at run time, so that the program also runs on machines without it.
 * Products are computed in f32, or with factors rounded to the precision. */

#define WORKSPACE_BYTES ((size_t)32 << 20)
#define ALIGNMENT 16 /* of all operands, at least */

/* Their functions that are used are the same. With an emulated GPU the program has
 * them. */
#ifdef CRUN_EMULATED
#define BLAS_LIBRARIES NULL, NULL
#else
#define BLAS_LIBRARIES "libcublasLt.so.13", "libcublasLt.so.12"
#endif

#define CALLS(CALL)                                                                    \
    CALL(Create)                                                                       \
    CALL(MatmulDescCreate)                                                             \
                                                                                       \
    CALL(MatmulDescSetAttribute)                                                       \
    CALL(MatrixLayoutCreate)                                                           \
    CALL(MatrixLayoutDestroy)                                                          \
    CALL(MatmulPreferenceCreate)                                                       \
    CALL(MatmulPreferenceSetAttribute) CALL(MatmulAlgoGetHeuristic) CALL(Matmul)

static struct {
#define CALL(name) decltype(&cublasLt##name) name;
    CALLS(CALL)
#undef CALL
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t description; /* set for each product */
    cublasLtMatmulPreference_t preference;
    cublasComputeType_t compute;
    void *workspace;
} blas;

static int blas_load(struct err *e)
{
    const char *path = getenv("CRUN_CUBLASLT");
    void *library = NULL;
    static const char *const names[] = { BLAS_LIBRARIES };

    for (const char *name : names)
        if (!library)
            library = dlopen(path && *path ? path : name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(e, "cannot load cuBLASLt: %s", dlerror());
#define CALL(name)                                                                     \
    *(void **)&blas.name = dlsym(library, "cublasLt" #name);                           \
    if (!blas.name)                                                                    \
        return err_set(e, "cuBLASLt has no cublasLt" #name);
    CALLS(CALL)
#undef CALL
    return 0;
}

#define TRY(call)                                                                      \
    do {                                                                               \
        cublasStatus_t status_ = (call);                                               \
        if (status_)                                                                   \
            return status_;                                                            \
    } while (0)

static cublasStatus_t blas_create(void)
{
    const size_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = ALIGNMENT;

    TRY(blas.Create(&blas.handle));
    TRY(blas.MatmulDescCreate(&blas.description, blas.compute, CUDA_R_32F));
    TRY(blas.MatmulPreferenceCreate(&blas.preference));
    TRY(blas.MatmulPreferenceSetAttribute(blas.preference,
                                          CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &workspace, sizeof(workspace)));
    for (int of = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         of <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; of++)
        TRY(blas.MatmulPreferenceSetAttribute(blas.preference,
                                              (cublasLtMatmulPreferenceAttributes_t)of,
                                              &alignment, sizeof(alignment)));
    return CUBLAS_STATUS_SUCCESS;
}

static int blas_open(crun_dtype precision, struct err *e)
{
    if (blas_load(e) < 0)
        return -1;
    blas.compute = precision == CRUN_BF16  ? CUBLAS_COMPUTE_32F_FAST_16BF
                   : precision == CRUN_F16 ? CUBLAS_COMPUTE_32F_FAST_16F
                                           : CUBLAS_COMPUTE_32F;
    if (cudaMalloc(&blas.workspace, WORKSPACE_BYTES) != cudaSuccess)
        return err_set(e, "cuBLASLt has no workspace");
    return blas_create() ? err_set(e, "cuBLASLt cannot be initialized") : 0;
}

/* cuBLASLt stores matrices by columns, so it computes out' = b' a': its first operand
 * is b, its rows are columns of `out`. */
struct blas_layouts {
    cublasLtMatrixLayout_t a, b, out;
};

/* By rows in memory: a transposed matrix has its columns there. */
static cublasStatus_t blas_layout(cublasLtMatrixLayout_t *layout, size_t rows,
                                  size_t columns, bool transposed)
{
    size_t along = transposed ? rows : columns, across = transposed ? columns : rows;

    return blas.MatrixLayoutCreate(layout, CUDA_R_32F, along, across, (int64_t)along);
}

static cublasStatus_t blas_queue(struct blas_layouts *q, const struct product *p,
                                 cudaStream_t stream)
{
    const cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = !p->bias  ? CUBLASLT_EPILOGUE_DEFAULT
                                        : p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                  : CUBLASLT_EPILOGUE_BIAS;
    const float one = 1, before = p->add;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;

#define SET(name, value)                                                               \
    TRY(blas.MatmulDescSetAttribute(blas.description, CUBLASLT_MATMUL_DESC_##name,     \
                                    &(value), sizeof(value)))
    SET(TRANSA, first);
    SET(TRANSB, second);
    SET(EPILOGUE, epilogue);
    SET(BIAS_POINTER, p->bias);
#undef SET
    TRY(blas_layout(&q->a, p->rows, p->depth, p->a_transposed));
    TRY(blas_layout(&q->b, p->depth, p->columns, p->b_transposed));
    TRY(blas_layout(&q->out, p->rows, p->columns, false));
    TRY(blas.MatmulAlgoGetHeuristic(blas.handle, blas.description, q->b, q->a, q->out,
                                    q->out, blas.preference, 1, &found, &count));
    if (count == 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return blas.Matmul(blas.handle, blas.description, &one, p->b, q->b, p->a, q->a,
                       &before, p->out, q->out, p->out, q->out, &found.algo,
                       blas.workspace, WORKSPACE_BYTES, stream);
}

/* Queues a product. False: cuBLASLt refused it. */
static bool blas_multiply(const struct product *p, cudaStream_t stream)
{
    struct blas_layouts q = {};
    cublasStatus_t status = blas_queue(&q, p, stream);

    for (cublasLtMatrixLayout_t layout : { q.a, q.b, q.out })
        if (layout)
            blas.MatrixLayoutDestroy(layout);
    return status == CUBLAS_STATUS_SUCCESS;
}
