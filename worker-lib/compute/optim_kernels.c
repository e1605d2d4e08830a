/* SPDX-License-Identifier: MIT */
#include "worker-lib/compute/optim_kernels.h"

/*
 * Plain loops that the compiler vectorizes, in one version for each vector width; the
 * dynamic linker chooses one. Sanitizers are not initialized yet at that time.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

/* clang 14 gives a function with clones a name that other files cannot call */
#if defined(__x86_64__) && !defined(SANITIZED) && !defined(__clang__)
#define EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define EACH_WIDTH
#endif

EACH_WIDTH
void kernel_adam(const struct adam_constants *constants, float *restrict p,
                 float *restrict m, float *restrict v, const float *restrict g,
                 size_t count)
{
    const struct adam_constants c = *constants;

    for (size_t i = 0; i < count; i++)
        p[i] = adam_element(c, p[i], &m[i], &v[i], g[i]);
}

EACH_WIDTH
void kernel_momentum(const struct sgd_constants *constants, float *restrict p,
                     float *restrict m, const float *restrict g, size_t count)
{
    const struct sgd_constants c = *constants;

    for (size_t i = 0; i < count; i++)
        p[i] = momentum_element(c, p[i], &m[i], g[i]);
}

EACH_WIDTH
void kernel_sgd(const struct sgd_constants *constants, float *restrict p,
                const float *restrict g, size_t count)
{
    const struct sgd_constants c = *constants;

    for (size_t i = 0; i < count; i++)
        p[i] = sgd_element(c, p[i], g[i]);
}

#define LANES 16

EACH_WIDTH
double kernel_squares(const float *g, size_t count)
{
    double sum[LANES] = { 0 }, all = 0;
    size_t whole = count / LANES * LANES;

    for (size_t i = 0; i < whole; i += LANES)
        for (unsigned k = 0; k < LANES; k++)
            sum[k] += (double)g[i + k] * (double)g[i + k];
    for (size_t i = whole; i < count; i++)
        sum[i - whole] += (double)g[i] * (double)g[i];
    for (unsigned k = 0; k < LANES; k++)
        all += sum[k];
    return all;
}

EACH_WIDTH
void kernel_from_f16(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = float_of_f16(in[i]);
}

EACH_WIDTH
void kernel_from_bf16(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = float_of_bf16(in[i]);
}
