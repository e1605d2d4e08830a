/* SPDX-License-Identifier: MIT */
/*
 * A batch on the GPU: matrix products by cuBLAS, on tensor cores if the type allows,
 * and kernels for the rest. A convolution is a product of its unrolled input (im2col),
 * some images at a time, so that the unrolled rows stay in the GPU's cache.
 */
#include "worker-lib/train/gpu/gpu_net.h"

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 16
#define PARTS_MAX 128
#define UNROLLED_BYTES ((size_t)24 << 20) /* half of a large second-level cache */

enum { WEIGHT, BIAS };

size_t gpu_net_element_size(const struct gpu_trainer *g)
{
    return g->plan.type == CRUN_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* -- sizes ------------------------------------------------------------------------ */

/* Elements from one unrolled pixel to the next: aligned for 16 bytes. */
static size_t pitch_of(const struct layer_shape *s)
{
    return (TAPS * s->in_channels + 7) / 8 * 8;
}

static size_t pixels_of(const struct layer_shape *s)
{
    return (s->side - FILTER + 1) * (s->side - FILTER + 1);
}

/* The number of images that are unrolled at a time. */
static size_t images_at_once(const struct gpu_trainer *g, const struct layer_shape *s)
{
    size_t each = pixels_of(s) * pitch_of(s) * gpu_net_element_size(g);
    size_t images = UNROLLED_BYTES / each;

    if (images > g->plan.capacity)
        images = g->plan.capacity;
    return images ? images : 1;
}

size_t gpu_net_unrolled_bytes(const struct gpu_trainer *g, const struct layer_shape *s)
{
    if (s->kind != LAYER_CONV)
        return 0;
    return images_at_once(g, s) * pixels_of(s) * pitch_of(s) * gpu_net_element_size(g);
}

size_t gpu_net_part_bytes(const struct gpu_trainer *g)
{
    size_t widest = 0;

    for (unsigned i = 0; i < g->layers; i++) {
        const struct layer *l = net_layer(g->plan.net, i);
        bool conv = l->shape.kind == LAYER_CONV;
        size_t width = conv ? l->shape.out_channels : l->parameters ? l->out : 0;

        widest = width > widest ? width : widest;
    }
    return PARTS_MAX * widest * sizeof(float);
}

/* -- one batch -------------------------------------------------------------------- */

/* A batch that is being queued. */
struct gpu_pass {
    struct gpu_trainer *g;
    const struct gpu_trainer_batch *b;
    const char *failed; /* the first error, or NULL */
};

static void gpu_note_launch(struct gpu_pass *p, const char *what)
{
    cudaError_t code = cudaGetLastError();

    if (code != cudaSuccess && !p->failed)
        p->failed = cudaGetErrorString(code);
}

static unsigned gpu_blocks_for(const struct gpu_pass *p, size_t threads)
{
    size_t blocks = (threads + THREADS - 1) / THREADS;
    size_t most = (size_t)p->g->processors * BLOCKS_PER_PROCESSOR;

    return (unsigned)(blocks < most ? blocks ? blocks : 1 : most);
}

/* Of kernels with 32-bit counts, which divide numbers below 2^31 (struct divisor). */
static uint32_t gpu_items(struct gpu_pass *p, size_t items)
{
    if (items > INT32_MAX && !p->failed)
        p->failed = "the batch is too large";
    return p->failed ? 0 : (uint32_t)items;
}

/* Whether rows of `width` elements are whole packs of 16 bytes. */
template <class T> static bool is_packed(size_t width)
{
    return width % sixteen_bytes<T>::COUNT == 0;
}

template <class T> static cudaDataType cuda_type_of(void);
template <> cudaDataType cuda_type_of<float>(void)
{
    return CUDA_R_32F;
}
template <> cudaDataType cuda_type_of<bf16>(void)
{
    return CUDA_R_16BF;
}
template <> cudaDataType cuda_type_of<f16>(void)
{
    return CUDA_R_16F;
}

/* C = A B + beta C for row-major matrices; a_transposed and b_transposed use A' and B'.
 * C is rows by columns, and each element a sum of `inner` products. Leading dimensions
 * are those of the matrices in memory. */
struct gemm_operands {
    const void *a, *b;
    void *c;
    size_t rows, columns, inner, lda, ldb, ldc;
    bool a_transposed, b_transposed;
    float beta;
    cudaDataType type, c_type;
};

static void gpu_multiply(struct gpu_pass *p, const struct gemm_operands &o)
{
    const float one = 1;
    struct gpu_trainer *g = p->g;
    cublasComputeType_t compute = g->plan.tf32 && o.type == CUDA_R_32F
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    /* cuBLAS is column-major, so this computes C' = B' A' */
    cublasStatus_t status = g->blas->gemm(
        g->handle, o.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        o.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)o.columns, (int)o.rows,
        (int)o.inner, &one, o.b, o.type, (int)o.ldb, o.a, o.type, (int)o.lda, &o.beta,
        o.c, o.c_type, (int)o.ldc, compute, CUBLAS_GEMM_DEFAULT);

    if (status != CUBLAS_STATUS_SUCCESS && !p->failed)
        p->failed = "cuBLAS refused a product";
}

template <class P>
static void add_bias_packs(struct gpu_pass *p, void *y, const float *bias, size_t rows,
                           size_t width, bool rectify)
{
    size_t packs = width / P::COUNT;
    uint32_t count = gpu_items(p, rows * packs);

    LAUNCH_ALONE(bias_kernel<P>, gpu_blocks_for(p, count), THREADS, p->g->stream,
                 (P *)y, bias, count, divisor_of((uint32_t)packs), rectify);
    gpu_note_launch(p, "bias");
}

/* The bias has the alignment of a parameter of crun_ddp. */
template <class T>
static void add_bias(struct gpu_pass *p, void *y, const float *bias, size_t rows,
                     size_t width, bool rectify)
{
    if (is_packed<T>(width))
        add_bias_packs<sixteen_bytes<T>>(p, y, bias, rows, width, rectify);
    else
        add_bias_packs<single<T>>(p, y, bias, rows, width, rectify);
}

/* If rectified, dy becomes 0 where y is; the sums of its columns are the gradient. */
template <class T>
static void bias_gradient(struct gpu_pass *p, void *dy, const void *y, size_t rows,
                          size_t width, void *gradient, bool rectify)
{
    size_t groups = (width + COLUMNS - 1) / COLUMNS;
    unsigned parts = (unsigned)((rows + 4 * LANES - 1) / (4 * LANES));
    bool accumulate = p->b->accumulate;
    unsigned blocks = (unsigned)((width + THREADS - 1) / THREADS);
    const T *masked_by = rectify ? (const T *)y : NULL;
    T *data = (T *)dy;
    float *part = p->g->part;

    parts = parts < PARTS_MAX ? parts : PARTS_MAX;
    LAUNCH_TOGETHER(mask_sum_kernel<T>, dim3((unsigned)groups, parts),
                    dim3(COLUMNS, LANES), p->g->stream, data, masked_by, part,
                    gpu_items(p, rows), (uint32_t)width);
    gpu_note_launch(p, "bias gradient");
    if (p->g->plan.wide)
        LAUNCH_ALONE(add_parts_kernel<float>, blocks, THREADS, p->g->stream, part,
                     parts, width, (float *)gradient, accumulate);
    else
        LAUNCH_ALONE(add_parts_kernel<T>, blocks, THREADS, p->g->stream, part, parts,
                     width, (T *)gradient, accumulate);
    gpu_note_launch(p, "bias gradient");
}

/* The operands of a layer's three products: rows of inputs, in by out weights. */
struct layer_product {
    const void *x;
    size_t x_pitch, rows, in, out;
    struct gpu_trainer_parameter *parameter;
};

template <class T>
static void product_forward(struct gpu_pass *p, const struct layer_product &q, void *y)
{
    gpu_multiply(p, { q.x, q.parameter[WEIGHT].weight, y, q.rows, q.out, q.in,
                      q.x_pitch, q.out, q.out, false, false, 0, cuda_type_of<T>(),
                      cuda_type_of<T>() });
}

template <class T>
static void weight_gradient(struct gpu_pass *p, const struct layer_product &q,
                            const void *dy, bool add)
{
    cudaDataType kind = p->g->plan.wide ? CUDA_R_32F : cuda_type_of<T>();

    gpu_multiply(p, { q.x, dy, q.parameter[WEIGHT].gradient, q.in, q.out, q.rows,
                      q.x_pitch, q.out, q.out, true, false, add ? 1.0f : 0.0f,
                      cuda_type_of<T>(), kind });
}

template <class T>
static void gpu_input_gradient(struct gpu_pass *p, const struct layer_product &q,
                               const void *dy, void *dx, size_t dx_pitch)
{
    gpu_multiply(p, { dy, q.parameter[WEIGHT].weight, dx, q.rows, q.in, q.out, q.out,
                      q.out, dx_pitch, false, true, 0, cuda_type_of<T>(),
                      cuda_type_of<T>() });
}

/* -- layers ----------------------------------------------------------------------- */

/* A layer and its operands; dy and dx only in backward. */
struct layer_work {
    const struct layer *l;
    struct gpu_trainer_parameter *parameter;
    void *x, *y, *dy = NULL, *dx = NULL;
};

template <class T>
static struct layer_product linear_product(struct gpu_pass *p, struct layer_work &w)
{
    return { w.x, w.l->in, p->b->size, w.l->in, w.l->out, w.parameter };
}

template <class T>
static void gpu_linear_forward(struct gpu_pass *p, struct layer_work &w)
{
    product_forward<T>(p, linear_product<T>(p, w), w.y);
    add_bias<T>(p, w.y, w.parameter[BIAS].value, p->b->size, w.l->out,
                w.l->shape.rectify);
}

template <class T>
static void gpu_linear_backward(struct gpu_pass *p, struct layer_work &w)
{
    struct layer_product q = linear_product<T>(p, w);

    bias_gradient<T>(p, w.dy, w.y, p->b->size, w.l->out, w.parameter[BIAS].gradient,
                     w.l->shape.rectify);
    weight_gradient<T>(p, q, w.dy, p->b->accumulate);
    if (w.dx)
        gpu_input_gradient<T>(p, q, w.dy, w.dx, w.l->in);
}

/* For kernels whose items are units of the pixels of images with out by out pixels. */
static image_shape image_shape_of(const struct layer_shape &s, size_t units, size_t out,
                                  size_t pitch)
{
    return { divisor_of((uint32_t)units), divisor_of((uint32_t)(out * out)),
             divisor_of((uint32_t)out), (uint32_t)s.side, (uint32_t)pitch };
}

template <class U>
static void gpu_unroll_units(struct gpu_pass *p, const struct layer_shape &s,
                             const void *x, size_t images, size_t units, size_t pitch)
{
    uint32_t count = gpu_items(p, images * pixels_of(&s) * units);
    image_shape shape = image_shape_of(s, units, s.side - FILTER + 1, pitch);

    LAUNCH_ALONE(unroll_kernel<U>, gpu_blocks_for(p, count), THREADS, p->g->stream,
                 (const U *)x, (U *)p->g->unrolled, count, shape);
}

/* The inputs of some images as rows. */
template <class T>
static void gpu_unroll_images(struct gpu_pass *p, const struct layer_shape &s,
                              const T *x, size_t images)
{
    typedef sixteen_bytes<T> P;
    size_t in = s.in_channels, pitch = pitch_of(&s);

    if (is_packed<T>(in)) {
        gpu_unroll_units<P>(p, s, x, images, in / P::COUNT, pitch / P::COUNT);
    } else if (in == 1) {
        uint32_t count = gpu_items(p, images * pixels_of(&s));
        image_shape shape = image_shape_of(s, 1, s.side - FILTER + 1, pitch / P::COUNT);

        LAUNCH_ALONE(unroll_row_kernel<P>, gpu_blocks_for(p, count), THREADS,
                     p->g->stream, x, (P *)p->g->unrolled, count, shape);
    } else {
        gpu_unroll_units<T>(p, s, x, images, in, pitch);
    }
    gpu_note_launch(p, "unrolling");
}

template <class P>
static void gpu_roll_units(struct gpu_pass *p, const struct layer_shape &s, void *dx,
                           size_t images)
{
    size_t units = s.in_channels / P::COUNT;
    uint32_t count = gpu_items(p, images * s.side * s.side * units);
    image_shape shape = image_shape_of(s, units, s.side, pitch_of(&s) / P::COUNT);

    LAUNCH_ALONE(roll_kernel<P>, gpu_blocks_for(p, count), THREADS, p->g->stream,
                 (const P *)p->g->unrolled, (P *)dx, count, shape);
    gpu_note_launch(p, "the input's gradient");
}

/* The inverse, for the gradient. */
template <class T>
static void gpu_roll_images(struct gpu_pass *p, const struct layer_shape &s, T *dx,
                            size_t images)
{
    if (is_packed<T>(s.in_channels))
        gpu_roll_units<sixteen_bytes<T>>(p, s, dx, images);
    else
        gpu_roll_units<single<T>>(p, s, dx, images);
}

/* Some images at a time: from the first one, how many. */
struct image_slice {
    size_t first, images;
};

template <class T>
static struct layer_product conv_product(struct gpu_pass *p, struct layer_work &w,
                                         const struct image_slice &at)
{
    const struct layer_shape &s = w.l->shape;

    return { p->g->unrolled,       pitch_of(&s),   at.images * pixels_of(&s),
             TAPS * s.in_channels, s.out_channels, w.parameter };
}

static bool next_slice(const struct gpu_pass *p, const struct layer_shape &s,
                       struct image_slice *at)
{
    size_t most = images_at_once(p->g, &s);

    at->first += at->images;
    at->images = p->b->size - at->first < most ? p->b->size - at->first : most;
    return at->images > 0;
}

template <class T>
static void gpu_conv_forward(struct gpu_pass *p, struct layer_work &w)
{
    const struct layer_shape &s = w.l->shape;

    for (struct image_slice at = { 0, 0 }; next_slice(p, s, &at);) {
        gpu_unroll_images<T>(p, s, (const T *)w.x + at.first * w.l->in, at.images);
        product_forward<T>(p, conv_product<T>(p, w, at),
                           (T *)w.y + at.first * w.l->out);
    }
    add_bias<T>(p, w.y, w.parameter[BIAS].value, p->b->size * pixels_of(&s),
                s.out_channels, s.rectify);
}

template <class T>
static void gpu_conv_backward(struct gpu_pass *p, struct layer_work &w)
{
    const struct layer_shape &s = w.l->shape;

    bias_gradient<T>(p, w.dy, w.y, p->b->size * pixels_of(&s), s.out_channels,
                     w.parameter[BIAS].gradient, s.rectify);
    for (struct image_slice at = { 0, 0 }; next_slice(p, s, &at);) {
        struct layer_product q = conv_product<T>(p, w, at);
        const T *dy = (const T *)w.dy + at.first * w.l->out;

        gpu_unroll_images<T>(p, s, (const T *)w.x + at.first * w.l->in, at.images);
        weight_gradient<T>(p, q, dy, p->b->accumulate || at.first > 0);
        if (!w.dx)
            continue;
        gpu_input_gradient<T>(p, q, dy, p->g->unrolled, pitch_of(&s));
        gpu_roll_images<T>(p, s, (T *)w.dx + at.first * w.l->in, at.images);
    }
}

/* The items of a pool's kernels, and their shape. */
template <class P>
static uint32_t pool_items(struct gpu_pass *p, const struct layer_work &w,
                           image_shape *shape)
{
    const struct layer_shape &s = w.l->shape;

    *shape = image_shape_of(s, s.in_channels / P::COUNT, s.side / 2, 0);
    return gpu_items(p, p->b->size * w.l->out / P::COUNT);
}

template <class P>
static void gpu_pool_forward_packs(struct gpu_pass *p, struct layer_work &w)
{
    image_shape shape;
    uint32_t count = pool_items<P>(p, w, &shape);

    LAUNCH_ALONE(pool_kernel<P>, gpu_blocks_for(p, count), THREADS, p->g->stream,
                 (const P *)w.x, (P *)w.y, count, shape);
    gpu_note_launch(p, "pool");
}

template <class T>
static void gpu_pool_forward(struct gpu_pass *p, struct layer_work &w)
{
    if (is_packed<T>(w.l->shape.in_channels))
        gpu_pool_forward_packs<sixteen_bytes<T>>(p, w);
    else
        gpu_pool_forward_packs<single<T>>(p, w);
}

template <class P>
static void gpu_pool_backward_packs(struct gpu_pass *p, struct layer_work &w)
{
    image_shape shape;
    uint32_t count = pool_items<P>(p, w, &shape);

    LAUNCH_ALONE(unpool_kernel<P>, gpu_blocks_for(p, count), THREADS, p->g->stream,
                 (const P *)w.x, (const P *)w.dy, (P *)w.dx, count, shape);
    gpu_note_launch(p, "pool");
}

template <class T>
static void gpu_pool_backward(struct gpu_pass *p, struct layer_work &w)
{
    if (is_packed<T>(w.l->shape.in_channels))
        gpu_pool_backward_packs<sixteen_bytes<T>>(p, w);
    else
        gpu_pool_backward_packs<single<T>>(p, w);
}

template <class T>
static void gpu_dropout_apply(struct gpu_pass *p, struct layer_work &w, void *data)
{
    typedef pack<T, DROP_BYTES> items;
    size_t width = w.l->out / DROP_BYTES;
    uint32_t count = gpu_items(p, p->b->size * width);
    uint64_t which = w.l->shape.which;
    unsigned dropped = w.l->shape.dropped;
    float scale = 256.0f / (float)(256 - dropped); /* of the elements that stay */
    const batch_head *head = p->g->head;

    LAUNCH_ALONE(drop_kernel<T>, gpu_blocks_for(p, count), THREADS, p->g->stream, head,
                 (items *)data, count, divisor_of((uint32_t)width), which, dropped,
                 scale);
    gpu_note_launch(p, "dropout");
}

template <class T>
static void gpu_dropout_forward(struct gpu_pass *p, struct layer_work &w)
{
    if (p->b->training)
        gpu_dropout_apply<T>(p, w, w.y);
}

template <class T>
static void gpu_dropout_backward(struct gpu_pass *p, struct layer_work &w)
{
    gpu_dropout_apply<T>(p, w, w.dy);
}

template <class T> struct gpu_layer_calls {
    void (*forward)(struct gpu_pass *p, struct layer_work &w);
    void (*backward)(struct gpu_pass *p, struct layer_work &w);
};

template <class T> static gpu_layer_calls<T> gpu_layer_calls_of(enum layer_kind kind)
{
    /* in the order of enum layer_kind */
    static const gpu_layer_calls<T> calls[] = {
        { gpu_linear_forward<T>, gpu_linear_backward<T> },
        { gpu_conv_forward<T>, gpu_conv_backward<T> },
        { gpu_pool_forward<T>, gpu_pool_backward<T> },
        { gpu_dropout_forward<T>, gpu_dropout_backward<T> },
    };

    return calls[kind];
}

/* -- the net ---------------------------------------------------------------------- */

template <class T> static void gpu_net_gather(struct gpu_pass *p)
{
    typedef sixteen_bytes<T> P;
    struct gpu_trainer *g = p->g;
    uint32_t count = gpu_items(p, p->b->size * (IMAGE_PIXELS / P::COUNT));
    const struct gpu_trainer_data *d = &g->set[p->b->set];

    LAUNCH_ALONE(gather_kernel<P>, gpu_blocks_for(p, count), THREADS, g->stream,
                 g->head, d->images, d->labels, (P *)g->data[0], g->label, count);
    gpu_note_launch(p, "the samples");
}

template <class T> static void gpu_net_forward(struct gpu_pass *p)
{
    struct gpu_trainer *g = p->g;
    unsigned number = 0;

    for (unsigned i = 0; i < g->layers; i++) {
        const struct layer *l = net_layer(g->plan.net, i);
        struct layer_work w = { l, &g->parameter[number], g->data[i], g->data[i + 1] };

        gpu_layer_calls_of<T>(l->shape.kind).forward(p, w);
        number += l->parameters;
    }
}

template <class T> static void gpu_net_loss(struct gpu_pass *p)
{
    struct gpu_trainer *g = p->g;
    size_t size = p->b->size;
    const float *scale = p->b->training ? p->b->device_scale : NULL;
    unsigned blocks = (unsigned)((size + THREADS - 1) / THREADS);

    LAUNCH_ALONE(loss_kernel<T>, blocks, THREADS, g->stream, g->head, scale,
                 (T *)g->data[g->layers], g->label, g->sample_scores, size);
    gpu_note_launch(p, "the loss");
    LAUNCH_TOGETHER(score_kernel, 1, SCORE_THREADS, g->stream, g->sample_scores, size,
                    g->score);
    gpu_note_launch(p, "the loss");
}

template <class T>
static void gpu_net_backward(struct gpu_pass *p,
                             void (*ready)(void *arg, unsigned parameter), void *arg)
{
    struct gpu_trainer *g = p->g;
    unsigned number = net_parameters(g->plan.net), turn = 0;
    void *dy = g->data[g->layers];

    for (unsigned i = g->layers; i-- > 0;) {
        const struct layer *l = net_layer(g->plan.net, i);
        void *dx = l->in_place ? dy : g->spare[turn];
        struct gpu_trainer_parameter *own = &g->parameter[number - l->parameters];
        struct layer_work w = { l, own, g->data[i], g->data[i + 1], dy, i ? dx : NULL };

        if (!l->in_place)
            turn = !turn;
        gpu_layer_calls_of<T>(l->shape.kind).backward(p, w);
        for (unsigned k = l->parameters; k-- > 0;) {
            number--;
            if (ready)
                ready(arg, number);
        }
        dy = dx;
    }
}

template <class T>
static void gpu_net_compute_as(struct gpu_pass *p,
                               void (*ready)(void *arg, unsigned parameter), void *arg)
{
    gpu_net_gather<T>(p);
    gpu_net_forward<T>(p);
    gpu_net_loss<T>(p);
    if (p->b->training)
        gpu_net_backward<T>(p, ready, arg);
}

int gpu_net_compute(struct gpu_trainer *g, const struct gpu_trainer_batch *b,
                    void (*ready)(void *arg, unsigned parameter), void *arg,
                    struct err *e)
{
    struct gpu_pass p = { g, b, NULL };

    if (g->plan.type == CRUN_F32)
        gpu_net_compute_as<float>(&p, ready, arg);
    else if (g->plan.type == CRUN_BF16)
        gpu_net_compute_as<bf16>(&p, ready, arg);
    else
        gpu_net_compute_as<f16>(&p, ready, arg);
    return p.failed
               ? err_set(e, "a kernel: %s on %s", p.failed, gpu_trainer_device_name())
               : 0;
}

template <class P>
static void narrow_packs(struct gpu_pass *p, void *to, const float *from, size_t count)
{
    uint32_t items = gpu_items(p, count / P::COUNT);

    LAUNCH_ALONE(narrow_values_kernel<P>, gpu_blocks_for(p, items), THREADS,
                 p->g->stream, (P *)to, from, items);
    gpu_note_launch(p, "rounding");
}

template <class T>
static void narrow_values(struct gpu_pass *p, void *to, const float *from, size_t count)
{
    typedef sixteen_bytes<T> P;
    bool aligned = (uintptr_t)to % sizeof(P) == 0 &&
                   (uintptr_t)from % (P::COUNT * sizeof(*from)) == 0;

    if (aligned && is_packed<T>(count))
        narrow_packs<P>(p, to, from, count);
    else
        narrow_packs<single<T>>(p, to, from, count);
}

int gpu_trainer_narrow(struct gpu_trainer *g, void *to, const float *from, size_t count,
                       struct err *e)
{
    struct gpu_pass p = { g, NULL, NULL };

    if (g->plan.type == CRUN_BF16)
        narrow_values<bf16>(&p, to, from, count);
    else
        narrow_values<f16>(&p, to, from, count);
    return p.failed
               ? err_set(e, "a kernel: %s on %s", p.failed, gpu_trainer_device_name())
               : 0;
}
