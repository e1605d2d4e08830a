/* SPDX-License-Identifier: MIT */
#include "worker-lib/optim_kernels.h"

#include <math.h>
#include <string.h>

/*
 * Plain loops that the compiler makes vectors of: one version for each width, the right
 * one is bound when the program is loaded. The sanitizers cannot run before that.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#endif

#if defined(__x86_64__) && !defined(SANITIZED)
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

    for (size_t i = 0; i < count; i++) {
        float grad = g[i] * c.factor + c.l2 * p[i];
        float mean = m[i] + c.weight1 * (grad - m[i]);
        float square = v[i] * c.beta2 + c.weight2 * grad * grad;

        m[i] = mean;
        v[i] = square;
        p[i] = p[i] * c.decay - c.step * mean / (sqrtf(square) * c.scale2 + c.eps);
    }
}

EACH_WIDTH
void kernel_momentum(const struct sgd_constants *constants, float *restrict p,
                     float *restrict m, const float *restrict g, size_t count)
{
    const struct sgd_constants c = *constants;

    for (size_t i = 0; i < count; i++) {
        float grad = g[i] * c.factor + c.l2 * p[i];
        float mean = m[i] * c.momentum + grad;

        m[i] = mean;
        p[i] -= c.lr * (c.now * grad + c.later * mean);
    }
}

EACH_WIDTH
void kernel_sgd(const struct sgd_constants *constants, float *restrict p,
                const float *restrict g, size_t count)
{
    const struct sgd_constants c = *constants;

    for (size_t i = 0; i < count; i++)
        p[i] -= c.lr * (g[i] * c.factor + c.l2 * p[i]);
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

/* The exponent's bias is mended by a multiplication, which is exact and makes normal
 * numbers of subnormal ones; infinity and NaN get the widest exponent there is. */
EACH_WIDTH
void kernel_from_f16(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t h = in[i], bits = (h & 0x7fff) << 13;
        uint32_t special = (h & 0x7c00) == 0x7c00 ? 0x7f800000 : 0;
        float f;

        memcpy(&f, &bits, sizeof(f));
        f *= 0x1p112f;
        memcpy(&bits, &f, sizeof(f));
        bits |= special | (h & 0x8000) << 16;
        memcpy(&out[i], &bits, sizeof(f));
    }
}

EACH_WIDTH
void kernel_from_bf16(float *restrict out, const uint16_t *restrict in, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;

        memcpy(&out[i], &bits, sizeof(bits));
    }
}
