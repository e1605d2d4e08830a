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
static const char *const blas_libraries[] = {
#ifdef CRUN_EMULATED
    NULL
#else
    "libcublasLt.so.13", "libcublasLt.so.12"
#endif
};

#define CALLS(CALL)                                                                    \
    CALL(Create)                                                                       \
    CALL(Destroy)                                                                      \
    CALL(MatmulDescCreate)                                                             \
    CALL(MatmulDescDestroy)                                                            \
    CALL(MatmulDescSetAttribute)                                                       \
    CALL(MatrixLayoutCreate)                                                           \
    CALL(MatrixLayoutDestroy)                                                          \
    CALL(MatmulPreferenceCreate)                                                       \
    CALL(MatmulPreferenceDestroy)                                                      \
    CALL(MatmulPreferenceSetAttribute)                                                 \
    CALL(MatmulAlgoGetHeuristic)                                                       \
    CALL(Matmul)

static struct {
#define CALL(name) decltype(&cublasLt##name) name;
    CALLS(CALL)
#undef CALL
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cublasComputeType_t compute;
    void *workspace;
} blas;

static int blas_load(struct err *e)
{
    const char *path = getenv("CRUN_CUBLASLT");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;

    for (const char *name : blas_libraries)
        if (!library && !(path && *path))
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
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

static bool set_preference(cublasLtMatmulPreferenceAttributes_t name, const void *value,
                           size_t bytes)
{
    return blas.MatmulPreferenceSetAttribute(blas.preference, name, value, bytes) ==
           CUBLAS_STATUS_SUCCESS;
}

static int blas_open(crun_dtype precision, struct err *e)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
    };
    const size_t workspace = WORKSPACE_BYTES;
    const uint32_t alignment = ALIGNMENT;
    bool right;

    if (blas_load(e) < 0)
        return -1;
    blas.compute = precision == CRUN_BF16  ? CUBLAS_COMPUTE_32F_FAST_16BF
                   : precision == CRUN_F16 ? CUBLAS_COMPUTE_32F_FAST_16F
                                           : CUBLAS_COMPUTE_32F;
    if (cudaMalloc(&blas.workspace, workspace) != cudaSuccess)
        return err_set(e, "cuBLASLt has no workspace");
    right = blas.Create(&blas.handle) == CUBLAS_STATUS_SUCCESS &&
            blas.MatmulPreferenceCreate(&blas.preference) == CUBLAS_STATUS_SUCCESS &&
            set_preference(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                           sizeof(workspace));
    for (unsigned i = 0; right && i < sizeof(alignments) / sizeof(alignments[0]); i++)
        right = set_preference(alignments[i], &alignment, sizeof(alignment));
    return right ? 0 : err_set(e, "cuBLASLt cannot be initialized");
}

/* cuBLASLt stores matrices by columns, so it computes out' = b' a': its first operand
 * is b, its rows are columns of `out`. */
struct blas_product {
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, out;
};

static cublasStatus_t blas_set(struct blas_product *q,
                               cublasLtMatmulDescAttributes_t name, const void *value,
                               size_t bytes)
{
    return blas.MatmulDescSetAttribute(q->description, name, value, bytes);
}

static cublasStatus_t blas_describe(struct blas_product *q, const struct product *p)
{
    const cublasOperation_t first = p->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
                            second = p->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = !p->bias  ? CUBLASLT_EPILOGUE_DEFAULT
                                        : p->relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                                  : CUBLASLT_EPILOGUE_BIAS;
    cublasStatus_t s = blas.MatmulDescCreate(&q->description, blas.compute, CUDA_R_32F);

    if (!s)
        s = blas_set(q, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof(first));
    if (!s)
        s = blas_set(q, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof(second));
    if (!s)
        s = blas_set(q, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue));
    if (!s && p->bias)
        s = blas_set(q, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof(p->bias));
    return s;
}

/* By rows in memory: a transposed matrix has its columns there. */
static cublasStatus_t blas_layout(cublasLtMatrixLayout_t *layout, size_t rows,
                                  size_t columns, bool transposed)
{
    size_t along = transposed ? rows : columns, across = transposed ? columns : rows;

    return blas.MatrixLayoutCreate(layout, CUDA_R_32F, along, across, (int64_t)along);
}

static cublasStatus_t blas_queue(struct blas_product *q, const struct product *p,
                                 cudaStream_t stream)
{
    const float one = 1, before = p->add;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cublasStatus_t s = blas_describe(q, p);

    if (!s)
        s = blas_layout(&q->a, p->rows, p->depth, p->a_transposed);
    if (!s)
        s = blas_layout(&q->b, p->depth, p->columns, p->b_transposed);
    if (!s)
        s = blas_layout(&q->out, p->rows, p->columns, false);
    if (!s)
        s = blas.MatmulAlgoGetHeuristic(blas.handle, q->description, q->b, q->a, q->out,
                                        q->out, blas.preference, 1, &found, &count);
    if (!s && count == 0)
        s = CUBLAS_STATUS_NOT_SUPPORTED;
    if (!s)
        s = blas.Matmul(blas.handle, q->description, &one, p->b, q->b, p->a, q->a,
                        &before, p->out, q->out, p->out, q->out, &found.algo,
                        blas.workspace, WORKSPACE_BYTES, stream);
    return s;
}

/* Queues a product. NULL, or what is wrong. */
static const char *blas_multiply(const struct product *p, cudaStream_t stream)
{
    struct blas_product q = {};
    cublasStatus_t status = blas_queue(&q, p, stream);

    for (cublasLtMatrixLayout_t layout : { q.a, q.b, q.out })
        if (layout)
            blas.MatrixLayoutDestroy(layout);
    if (q.description)
        blas.MatmulDescDestroy(q.description);
    return status == CUBLAS_STATUS_SUCCESS ? NULL : "cuBLASLt refused a product";
}
