/* SPDX-License-Identifier: MIT */
#include "tests/fakes/cuda/cublasLt.h"

#include <stdlib.h>
#include <string.h>

#include <vector>

extern "C" {
#include "worker-lib/compute/optim_math.h"
}

struct cublasLtContext {
    int unused;
};

struct cublasLtMatmulDesc {
    cublasComputeType_t compute;
    cublasOperation_t a, b;
    cublasLtEpilogue_t epilogue;
    const float *bias;
};

struct cublasLtMatrixLayout {
    uint64_t rows, columns;
    int64_t ld;
};

struct cublasLtMatmulPreference {
    uint64_t workspace;
    uint32_t alignment[4]; /* of A, B, C and D */
};

namespace
{

struct lt_product {
    cublasLtMatmulDesc desc;
    cublasLtMatrixLayout a, b, d;
    float alpha, beta;
    const float *A, *B, *C;
    float *D;
};

/* What an algorithm is right for, as far as one can forget it. */
uint64_t algo_key(const cublasLtMatmulDesc *desc,
                  const cublasLtMatrixLayout *const *all)
{
    uint64_t key = (uint64_t)desc->compute << 8 | (uint64_t)desc->a << 1 | desc->b;

    key = key * 31 + desc->epilogue;
    for (int i = 0; i < 4; i++)
        key = (key * 1000003 + all[i]->rows) * 1000003 + all[i]->columns +
              (uint64_t)all[i]->ld * 7919;
    return key;
}

/* Tensor cores round their factors. */
float rounded(float x, cublasComputeType_t compute)
{
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF)
        return float_of_bf16(bf16_of_float(x));
    return compute == CUBLAS_COMPUTE_32F_FAST_16F ? float_of_f16(f16_of_float(x)) : x;
}

/* op(matrix), with the elements of a column (`by_rows`: of a row) beside each other. */
std::vector<float> plain(const lt_product &p, const float *from,
                         const cublasLtMatrixLayout &l, cublasOperation_t op,
                         bool by_rows)
{
    std::vector<float> to(l.rows * l.columns);
    bool turned = by_rows != (op == CUBLAS_OP_T);

    for (size_t c = 0; c < l.columns; c++)
        for (size_t r = 0; r < l.rows; r++)
            to[turned ? r * l.columns + c : c * l.rows + r] = rounded(
                from[c * (size_t)l.ld + r], p.desc.compute);
    return to;
}

/* The order of the sums does not depend on the width of registers. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx2", "default")))
#endif
void add_scaled(float *to, const float *from, float factor, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += from[i] * factor;
}

/* Column by column: D[:,j] = sum over k of A[:,k] * B[k,j]. */
void multiply(void *arg)
{
    const lt_product &p = *(lt_product *)arg;
    size_t m = p.d.rows, depth = p.desc.b == CUBLAS_OP_T ? p.b.columns : p.b.rows;
    std::vector<float> A = plain(p, p.A, p.a, p.desc.a, false);
    std::vector<float> B = plain(p, p.B, p.b, p.desc.b, false);
    std::vector<float> column(m);

    for (size_t j = 0; j < p.d.columns; j++) {
        std::fill(column.begin(), column.end(), 0.0f);
        for (size_t k = 0; k < depth; k++)
            add_scaled(column.data(), &A[k * m], B[j * depth + k], m);
        for (size_t i = 0; i < m; i++) {
            size_t at = j * (size_t)p.d.ld + i;
            float x = p.alpha * column[i] + (p.beta == 0 ? 0 : p.beta * p.C[at]);

            if (p.desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
                x += p.desc.bias[i];
            p.D[at] = p.desc.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS && x < 0 ? 0 : x;
        }
    }
}

bool is_aligned(const void *at, uint64_t alignment)
{
    return (uintptr_t)at % alignment == 0;
}

} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new cublasLtContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc,
                                        cublasComputeType_t compute, cudaDataType)
{
    *desc = new cublasLtMatmulDesc{ compute, CUBLAS_OP_N, CUBLAS_OP_N,
                                    CUBLASLT_EPILOGUE_DEFAULT, NULL };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    void *field = name == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&desc->a
                  : name == CUBLASLT_MATMUL_DESC_TRANSB   ? (void *)&desc->b
                  : name == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&desc->epilogue
                                                          : (void *)&desc->bias;

    if (bytes != (field == &desc->bias ? sizeof(desc->bias) : sizeof(int)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    *layout = new cublasLtMatrixLayout{ rows, columns, ld };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new cublasLtMatmulPreference{ 0, { 256, 256, 256, 256 } };
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t bytes)
{
    bool workspace = name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;

    if (bytes != (workspace ? sizeof(uint64_t) : sizeof(uint32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (workspace)
        memcpy(&preference->workspace, value, bytes);
    else
        memcpy(
            &preference->alignment[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
            value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int requested,
                               cublasLtMatmulHeuristicResult_t found[], int *count)
{
    const cublasLtMatrixLayout *all[] = { a, b, c, d };
    uint64_t m = desc->a == CUBLAS_OP_T ? a->columns : a->rows;
    uint64_t k = desc->a == CUBLAS_OP_T ? a->rows : a->columns;
    uint64_t n = desc->b == CUBLAS_OP_T ? b->rows : b->columns;

    *count = 0;
    if (requested < 1 || k != (desc->b == CUBLAS_OP_T ? b->columns : b->rows) ||
        m != d->rows || n != d->columns || c->rows != m || c->columns != n)
        return CUBLAS_STATUS_INVALID_VALUE;
    for (const cublasLtMatrixLayout *l : all)
        if (l->ld < (int64_t)l->rows || l->rows == 0 || l->columns == 0)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    *found = {};
    found->algo.data[0] = algo_key(desc, all);
    for (int i = 0; i < 4; i++)
        found->algo.data[1 + i] = preference->alignment[i];
    found->workspaceSize = preference->workspace;
    found->algo.data[5] = preference->workspace;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                              const void *alpha, const void *A,
                              cublasLtMatrixLayout_t a, const void *B,
                              cublasLtMatrixLayout_t b, const void *beta, const void *C,
                              cublasLtMatrixLayout_t c, void *D,
                              cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const cublasLtMatrixLayout *all[] = { a, b, c, d };
    const void *at[] = { A, B, C, D };
    bool biased = desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT;

    if (!algo || algo->data[0] != algo_key(desc, all) || biased != !!desc->bias ||
        algo->data[5] > (workspace ? workspace_bytes : 0))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (!is_aligned(at[i], algo->data[1 + i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    cuda_emulated_queue(stream, multiply,
                        new (malloc(sizeof(lt_product))) lt_product{
                            *desc, *a, *b, *d, *(const float *)alpha,
                            *(const float *)beta, (const float *)A, (const float *)B,
                            (const float *)C, (float *)D });
    return CUBLAS_STATUS_SUCCESS;
}
