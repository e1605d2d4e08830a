/* SPDX-License-Identifier: MIT */
#include "tests/fakes/cuda/cublas_v2.h"

#include <stdlib.h>

#include <vector>

extern "C" {
#include "worker-lib/numeric/optim_math.h"
}

struct cublasContext {
    cudaStream_t stream;
};

namespace
{

struct product {
    cublasOperation_t a, b;
    int m, n, k, lda, ldb, ldc;
    float alpha, beta;
    const void *A, *B;
    void *C;
    cudaDataType a_type, b_type, c_type;
};

float read(const void *from, size_t i, cudaDataType type)
{
    if (type == CUDA_R_32F)
        return ((const float *)from)[i];
    return type == CUDA_R_16F ? float_of_f16(((const uint16_t *)from)[i])
                              : float_of_bf16(((const uint16_t *)from)[i]);
}

void write(void *to, size_t i, cudaDataType type, float x)
{
    if (type == CUDA_R_32F)
        ((float *)to)[i] = x;
    else
        ((uint16_t *)to)[i] = type == CUDA_R_16F ? f16_of_float(x) : bf16_of_float(x);
}

/* As f32, with `inner` numbers beside each other. */
std::vector<float> plain(const void *from, cudaDataType type, int ld, int outer,
                         int inner, bool turned)
{
    std::vector<float> to((size_t)outer * inner);

    for (size_t o = 0; o < (size_t)outer; o++)
        for (size_t i = 0; i < (size_t)inner; i++)
            to[o * inner + i] = read(from, turned ? o + i * ld : o * ld + i, type);
    return to;
}

/* The order of the sums does not depend on the width of registers. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx2", "default")))
#endif
void add_scaled(float *to, const float *from, float factor, int count)
{
    for (int i = 0; i < count; i++)
        to[i] += from[i] * factor;
}

/* Column by column: C[:,j] = sum over k of A[:,k] * B[k,j]. */
void multiply(void *arg)
{
    const product &p = *(product *)arg;
    std::vector<float> A = plain(p.A, p.a_type, p.lda, p.k, p.m, p.a == CUBLAS_OP_T);
    std::vector<float> B = plain(p.B, p.b_type, p.ldb, p.n, p.k, p.b == CUBLAS_OP_T);
    std::vector<float> column(p.m);

    for (int j = 0; j < p.n; j++) {
        std::fill(column.begin(), column.end(), 0.0f);
        for (int l = 0; l < p.k; l++)
            add_scaled(column.data(), &A[(size_t)l * p.m], B[(size_t)j * p.k + l], p.m);
        for (int i = 0; i < p.m; i++) {
            size_t at = (size_t)j * p.ldc + i;
            float before = p.beta == 0 ? 0 : p.beta * read(p.C, at, p.c_type);

            write(p.C, at, p.c_type, p.alpha * column[i] + before);
        }
    }
}

} // namespace

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    *handle = new cublasContext();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t a,
                            cublasOperation_t b, int m, int n, int k, const void *alpha,
                            const void *A, cudaDataType a_type, int lda, const void *B,
                            cudaDataType b_type, int ldb, const void *beta, void *C,
                            cudaDataType c_type, int ldc, cublasComputeType_t,
                            cublasGemmAlgo_t)
{
    product *p = (product *)malloc(sizeof(*p));

    if (a_type != b_type || (c_type != a_type && c_type != CUDA_R_32F))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *p = { a,
           b,
           m,
           n,
           k,
           lda,
           ldb,
           ldc,
           *(const float *)alpha,
           *(const float *)beta,
           A,
           B,
           C,
           a_type,
           b_type,
           c_type };
    cuda_emulated_queue(handle->stream, multiply, p);
    return CUBLAS_STATUS_SUCCESS;
}
