/* SPDX-License-Identifier: MIT */
/*
 * Both products hold a tile of their result in registers: some rows of some vectors,
 * each row a sum of a number times a vector. The size that fits depends on the
 * processor's registers and is chosen at run time. The order of additions in one output
 * does not depend on the tile, so results are the same on every run.
 */
#include "worker-lib/train/net/conv_kernel.h"

#define LANES 16

typedef float vec
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

typedef int mask __attribute__((vector_size(LANES * sizeof(int)), aligned(4)));

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE void product_tile(const struct conv_shape *s, const float *in,
                         const float *weight, const float *bias, float *out,
                         int rectify, const int pixels, const int vectors)
{
    vec sum[16][4];

    UNROLL for (int v = 0; v < vectors; v++)
    {
        vec b = bias ? *(const vec *)(bias + v * LANES) : (vec){ 0 };
        UNROLL for (int p = 0; p < pixels; p++) sum[p][v] = b;
    }
    for (size_t r = 0; r < s->rows; r++) {
        const float *i = in + r * s->in_row;

        for (size_t k = 0; k < s->run; k++) {
            vec w[4];

            UNROLL for (int v = 0; v < vectors; v++)
                w[v] = *(const vec *)(weight + v * LANES);
            UNROLL for (int p = 0; p < pixels; p++)
                UNROLL for (int v = 0; v < vectors; v++)
                    sum[p][v] += i[p * s->in_pixel] * w[v];
            i++;
            weight += s->out_channels;
        }
    }
    UNROLL for (int p = 0; p < pixels; p++) UNROLL for (int v = 0; v < vectors; v++)
    {
        vec *o = (vec *)(out + p * s->out_channels + v * LANES);
        vec above = (vec)(~(sum[p][v] < 0) & (mask)sum[p][v]);

        *o = rectify ? above : sum[p][v];
    }
}

INLINE void outer_tile(const struct conv_shape *s, const float *in, const float *out,
                       float *gradient, const int taps, const int vectors)
{
    vec sum[16][4];

    UNROLL for (int t = 0; t < taps; t++) UNROLL for (int v = 0; v < vectors; v++)
        sum[t][v] = *(vec *)(gradient + t * s->out_channels + v * LANES);
    for (size_t y = 0; y < s->height; y++) {
        const float *i = in + y * s->in_row, *o = out + y * s->out_row;

        for (size_t x = 0; x < s->width; x++) {
            vec w[4];

            UNROLL for (int v = 0; v < vectors; v++)
                w[v] = *(const vec *)(o + v * LANES);
            UNROLL for (int t = 0; t < taps; t++)
                UNROLL for (int v = 0; v < vectors; v++) sum[t][v] += i[t] * w[v];
            i += s->in_pixel;
            o += s->out_channels;
        }
    }
    UNROLL for (int t = 0; t < taps; t++) UNROLL for (int v = 0; v < vectors; v++) *
        (vec *)(gradient + t * s->out_channels + v * LANES) = sum[t][v];
}

/* Each row in tiles of `pixels`, its remainder pixel by pixel. */
INLINE void product_rows(const struct conv_shape *s, const float *in,
                         const float *weight, const float *bias, float *out,
                         int rectify, const int pixels, const int vectors)
{
    for (size_t c = 0; c < s->out_channels; c += (size_t)vectors * LANES) {
        const float *b = bias ? bias + c : NULL;

        for (size_t y = 0; y < s->height; y++) {
            const float *i = in + y * s->in_row;
            float *o = out + y * s->out_row + c;
            size_t x = 0;

            for (; x + (size_t)pixels <= s->width; x += (size_t)pixels)
                product_tile(s, i + x * s->in_pixel, weight + c, b,
                             o + x * s->out_channels, rectify, pixels, vectors);
            for (; x < s->width; x++)
                product_tile(s, i + x * s->in_pixel, weight + c, b,
                             o + x * s->out_channels, rectify, 1, vectors);
        }
    }
}

INLINE void outer_rows(const struct conv_shape *s, const float *in, const float *out,
                       float *gradient, const int taps, const int vectors)
{
    for (size_t r = 0; r < s->rows; r++)
        for (size_t c = 0; c < s->out_channels; c += (size_t)vectors * LANES) {
            float *g = gradient + r * s->run * s->out_channels + c;
            const float *i = in + r * s->in_row;
            size_t k = 0;

            for (; k + (size_t)taps <= s->run; k += (size_t)taps)
                outer_tile(s, i + k, out + c, g + k * s->out_channels, taps, vectors);
            for (; k < s->run; k++)
                outer_tile(s, i + k, out + c, g + k * s->out_channels, 1, vectors);
        }
}

#define KERNEL(name, target_attribute, few, two)                                       \
    target_attribute static void products_##name(                                      \
        const struct conv_shape *s, const float *in, const float *weight,              \
        const float *bias, float *out, int rectify)                                    \
    {                                                                                  \
        if (two && s->out_channels % 64 == 0)                                          \
            product_rows(s, in, weight, bias, out, rectify, 6, 4);                     \
        else                                                                           \
            product_rows(s, in, weight, bias, out, rectify, few, 2);                   \
    }                                                                                  \
    target_attribute static void outer_##name(const struct conv_shape *s,              \
                                              const float *in, const float *out,       \
                                              float *gradient)                         \
    {                                                                                  \
        if (two && s->out_channels % 64 == 0)                                          \
            outer_rows(s, in, out, gradient, 6, 4);                                    \
        else                                                                           \
            outer_rows(s, in, out, gradient, few, 2);                                  \
    }

#ifdef __x86_64__
KERNEL(avx512, __attribute__((target("avx512f,avx512vl,avx512dq,fma"))), 13, 1)
KERNEL(avx2, __attribute__((target("avx2,fma"))), 3, 0)
#endif
KERNEL(plain, , 2, 0)

void conv_products(const struct conv_shape *s, const float *in, const float *weight,
                   const float *bias, float *out, int rectify)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        products_avx512(s, in, weight, bias, out, rectify);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        products_avx2(s, in, weight, bias, out, rectify);
        return;
    }
#endif
    products_plain(s, in, weight, bias, out, rectify);
}

void conv_outer_products(const struct conv_shape *s, const float *in, const float *out,
                         float *gradient)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f")) {
        outer_avx512(s, in, out, gradient);
        return;
    }
    if (__builtin_cpu_supports("avx2")) {
        outer_avx2(s, in, out, gradient);
        return;
    }
#endif
    outer_plain(s, in, out, gradient);
}
