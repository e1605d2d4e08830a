/* SPDX-License-Identifier: MIT */
/*
 * A batch on the GPU: products by cuBLAS, on tensor cores where the type allows, and
 * kernels around them. A convolution is a product too, of its unrolled input; that is
 * done for some images at a time, so that the unrolled rows stay in the GPU's cache.
 */
#include "worker-lib/train/gpu/gpu_net.h"

#define THREADS 256
#define BLOCKS_PER_PROCESSOR 16
#define PARTS_MAX 128
#define UNROLLED_BYTES ((size_t)24 << 20) /* half of a large second-level cache */

enum { WEIGHT, BIAS };

size_t gpu_trainer_element(const struct gpu_trainer *c)
{
    return c->plan.type == CRUN_F32 ? sizeof(float) : sizeof(uint16_t);
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

/* Images that are unrolled at a time. */
static size_t images_at_once(const struct gpu_trainer *c, const struct layer_shape *s)
{
    size_t each = pixels_of(s) * pitch_of(s) * gpu_trainer_element(c);
    size_t images = UNROLLED_BYTES / each;

    if (images > c->plan.capacity)
        images = c->plan.capacity;
    return images ? images : 1;
}

size_t gpu_trainer_unrolled_bytes(const struct gpu_trainer *c,
                                  const struct layer_shape *s)
{
    if (s->kind != LAYER_CONV)
        return 0;
    return images_at_once(c, s) * pixels_of(s) * pitch_of(s) * gpu_trainer_element(c);
}

size_t gpu_trainer_part_bytes(const struct gpu_trainer *c)
{
    size_t widest = 0;

    for (unsigned i = 0; i < c->layers; i++) {
        const struct layer *l = net_layer(c->plan.net, i);
        bool conv = l->shape.kind == LAYER_CONV;
        size_t width = conv ? l->shape.out_channels : l->parameters ? l->out : 0;

        widest = width > widest ? width : widest;
    }
    return PARTS_MAX * widest * sizeof(float);
}

/* -- one batch -------------------------------------------------------------------- */

/* What is under way. */
struct pass {
    struct gpu_trainer *c;
    const struct gpu_trainer_batch *b;
    const char *failed; /* what did, first */
};

static void note(struct pass *p, const char *what)
{
    cudaError_t code = cudaGetLastError();

    if (code != cudaSuccess && !p->failed)
        p->failed = cudaGetErrorString(code);
    (void)what;
}

static unsigned blocks_for(const struct pass *p, size_t threads)
{
    size_t blocks = (threads + THREADS - 1) / THREADS;
    size_t most = (size_t)p->c->processors * BLOCKS_PER_PROCESSOR;

    return (unsigned)(blocks < most ? blocks ? blocks : 1 : most);
}

template <class T> static cudaDataType kind_of(void);
template <> cudaDataType kind_of<float>(void)
{
    return CUDA_R_32F;
}
template <> cudaDataType kind_of<bf16>(void)
{
    return CUDA_R_16BF;
}
template <> cudaDataType kind_of<f16>(void)
{
    return CUDA_R_16F;
}

/* C = A B + beta C for matrices row by row, `a_turned` or `b_turned` first: C is rows
 * by columns, and `inner` numbers are added for each. Leading dimensions are those of
 * the matrices as they lie. */
struct operands {
    const void *a, *b;
    void *c;
    size_t rows, columns, inner, lda, ldb, ldc;
    bool a_turned, b_turned;
    float beta;
    cudaDataType type, c_type;
};

static void multiply(struct pass *p, const struct operands &o)
{
    const float one = 1;
    struct gpu_trainer *c = p->c;
    cublasComputeType_t compute = c->plan.tf32 && o.type == CUDA_R_32F
                                      ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : CUBLAS_COMPUTE_32F;
    /* cuBLAS has them column by column: so all is turned */
    cublasStatus_t status = c->blas->gemm(
        c->handle, o.b_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
        o.a_turned ? CUBLAS_OP_T : CUBLAS_OP_N, (int)o.columns, (int)o.rows,
        (int)o.inner, &one, o.b, o.type, (int)o.ldb, o.a, o.type, (int)o.lda, &o.beta,
        o.c, o.c_type, (int)o.ldc, compute, CUBLAS_GEMM_DEFAULT);

    if (status != CUBLAS_STATUS_SUCCESS && !p->failed)
        p->failed = "cuBLAS refused a product";
}

template <class T>
static void add_bias(struct pass *p, void *y, const float *bias, size_t rows,
                     size_t width, bool rectify)
{
    size_t count = rows * width;
    T *data = (T *)y;

    LAUNCH_ALONE(bias_kernel<T>, blocks_for(p, count), THREADS, p->c->stream, data,
                 bias, count, width, rectify);
    note(p, "bias");
}

/* dy is masked by y where that was rectified; its columns' sums are the bias' gradient.
 */
template <class T>
static void bias_gradient(struct pass *p, void *dy, const void *y, size_t rows,
                          size_t width, void *gradient, bool rectify)
{
    size_t groups = (width + COLUMNS - 1) / COLUMNS;
    unsigned parts = (unsigned)((rows + 4 * LANES - 1) / (4 * LANES));
    bool accumulate = p->b->accumulate;
    unsigned blocks = (unsigned)((width + THREADS - 1) / THREADS);
    const T *masked_by = rectify ? (const T *)y : NULL;
    T *data = (T *)dy;
    float *part = p->c->part;

    parts = parts < PARTS_MAX ? parts : PARTS_MAX;
    LAUNCH_TOGETHER(mask_sum_kernel<T>, dim3((unsigned)groups, parts),
                    dim3(COLUMNS, LANES), p->c->stream, data, masked_by, part, rows,
                    width);
    note(p, "bias gradient");
    if (p->c->plan.wide)
        LAUNCH_ALONE(add_parts_kernel<float>, blocks, THREADS, p->c->stream, part,
                     parts, width, (float *)gradient, accumulate);
    else
        LAUNCH_ALONE(add_parts_kernel<T>, blocks, THREADS, p->c->stream, part, parts,
                     width, (T *)gradient, accumulate);
    note(p, "bias gradient");
}

/* The three products of a layer of `in` by `out` weights, for rows of either. */
struct product {
    const void *x;
    size_t x_pitch, rows, in, out;
    struct gpu_trainer_parameter *parameter;
};

template <class T>
static void product_forward(struct pass *p, const struct product &q, void *y)
{
    multiply(p, { q.x, q.parameter[WEIGHT].weight, y, q.rows, q.out, q.in, q.x_pitch,
                  q.out, q.out, false, false, 0, kind_of<T>(), kind_of<T>() });
}

template <class T>
static void weight_gradient(struct pass *p, const struct product &q, const void *dy,
                            bool add)
{
    cudaDataType kind = p->c->plan.wide ? CUDA_R_32F : kind_of<T>();

    multiply(p, { q.x, dy, q.parameter[WEIGHT].gradient, q.in, q.out, q.rows, q.x_pitch,
                  q.out, q.out, true, false, add ? 1.0f : 0.0f, kind_of<T>(), kind });
}

template <class T>
static void input_gradient(struct pass *p, const struct product &q, const void *dy,
                           void *dx, size_t dx_pitch)
{
    multiply(p, { dy, q.parameter[WEIGHT].weight, dx, q.rows, q.in, q.out, q.out, q.out,
                  dx_pitch, false, true, 0, kind_of<T>(), kind_of<T>() });
}

/* -- layers ----------------------------------------------------------------------- */

/* A layer and what it works on; dy and dx in backward. */
struct work {
    const struct layer *l;
    struct gpu_trainer_parameter *parameter;
    void *x, *y, *dy = NULL, *dx = NULL;
};

template <class T> static struct product linear_product(struct pass *p, struct work &w)
{
    return { w.x, w.l->in, p->b->size, w.l->in, w.l->out, w.parameter };
}

template <class T> static void linear_forward(struct pass *p, struct work &w)
{
    product_forward<T>(p, linear_product<T>(p, w), w.y);
    add_bias<T>(p, w.y, w.parameter[BIAS].value, p->b->size, w.l->out,
                w.l->shape.rectify);
}

template <class T> static void linear_backward(struct pass *p, struct work &w)
{
    struct product q = linear_product<T>(p, w);

    bias_gradient<T>(p, w.dy, w.y, p->b->size, w.l->out, w.parameter[BIAS].gradient,
                     w.l->shape.rectify);
    weight_gradient<T>(p, q, w.dy, p->b->accumulate);
    if (w.dx)
        input_gradient<T>(p, q, w.dy, w.dx, w.l->in);
}

/* The input of some images as rows; whole 16 bytes at a time where a pixel is. */
template <class T>
static void unroll(struct pass *p, const struct layer_shape &s, const T *x,
                   size_t images)
{
    size_t in = s.in_channels, bytes = in * sizeof(T), pitch = pitch_of(&s);
    size_t count = images * pixels_of(&s) * TAPS * in, side = s.side;
    void *rows = p->c->unrolled;

    if (bytes % sizeof(uint4) == 0) {
        size_t part = sizeof(uint4) / sizeof(T), units = in / part;
        size_t row = pitch / part;

        LAUNCH_ALONE(unroll_kernel<uint4>, blocks_for(p, count / part), THREADS,
                     p->c->stream, (const uint4 *)x, (uint4 *)rows, images, side, units,
                     row);
    } else {
        LAUNCH_ALONE(unroll_kernel<T>, blocks_for(p, count), THREADS, p->c->stream, x,
                     (T *)rows, images, side, in, pitch);
    }
    note(p, "unrolling");
}

/* Some images at a time: from the first one, how many. */
struct slice {
    size_t first, images;
};

template <class T>
static struct product conv_product(struct pass *p, struct work &w,
                                   const struct slice &at)
{
    const struct layer_shape &s = w.l->shape;

    return { p->c->unrolled,       pitch_of(&s),   at.images * pixels_of(&s),
             TAPS * s.in_channels, s.out_channels, w.parameter };
}

static bool next_slice(const struct pass *p, const struct layer_shape &s,
                       struct slice *at)
{
    size_t most = images_at_once(p->c, &s);

    at->first += at->images;
    at->images = p->b->size - at->first < most ? p->b->size - at->first : most;
    return at->images > 0;
}

template <class T> static void conv_forward(struct pass *p, struct work &w)
{
    const struct layer_shape &s = w.l->shape;

    for (struct slice at = { 0, 0 }; next_slice(p, s, &at);) {
        unroll<T>(p, s, (const T *)w.x + at.first * w.l->in, at.images);
        product_forward<T>(p, conv_product<T>(p, w, at),
                           (T *)w.y + at.first * w.l->out);
    }
    add_bias<T>(p, w.y, w.parameter[BIAS].value, p->b->size * pixels_of(&s),
                s.out_channels, s.rectify);
}

template <class T> static void conv_backward(struct pass *p, struct work &w)
{
    const struct layer_shape &s = w.l->shape;
    size_t in = s.in_channels, side = s.side, pitch = pitch_of(&s);

    bias_gradient<T>(p, w.dy, w.y, p->b->size * pixels_of(&s), s.out_channels,
                     w.parameter[BIAS].gradient, s.rectify);
    for (struct slice at = { 0, 0 }; next_slice(p, s, &at);) {
        struct product q = conv_product<T>(p, w, at);
        const T *dy = (const T *)w.dy + at.first * w.l->out;
        size_t count = at.images * w.l->in, images = at.images;

        unroll<T>(p, s, (const T *)w.x + at.first * w.l->in, at.images);
        weight_gradient<T>(p, q, dy, p->b->accumulate || at.first > 0);
        if (!w.dx)
            continue;
        input_gradient<T>(p, q, dy, p->c->unrolled, pitch);
        LAUNCH_ALONE(roll_kernel<T>, blocks_for(p, count), THREADS, p->c->stream,
                     (const T *)p->c->unrolled, (T *)w.dx + at.first * w.l->in, images,
                     side, in, pitch);
        note(p, "the input's gradient");
    }
}

template <class T> static void pool_forward(struct pass *p, struct work &w)
{
    size_t count = p->b->size * w.l->out, side = w.l->shape.side;
    size_t channels = w.l->shape.in_channels;

    LAUNCH_ALONE(pool_kernel<T>, blocks_for(p, count), THREADS, p->c->stream,
                 (const T *)w.x, (T *)w.y, count, side, channels);
    note(p, "pool");
}

template <class T> static void pool_backward(struct pass *p, struct work &w)
{
    size_t count = p->b->size * w.l->out, side = w.l->shape.side;
    size_t channels = w.l->shape.in_channels;

    LAUNCH_ALONE(unpool_kernel<T>, blocks_for(p, count), THREADS, p->c->stream,
                 (const T *)w.x, (const T *)w.dy, (T *)w.dx, count, side, channels);
    note(p, "pool");
}

template <class T> static void drop(struct pass *p, struct work &w, void *data)
{
    size_t count = p->b->size * w.l->out, width = w.l->out;
    uint64_t which = w.l->shape.which;
    unsigned dropped = w.l->shape.dropped;
    const batch_head *head = p->c->head;

    LAUNCH_ALONE(drop_kernel<T>, blocks_for(p, count / DROP_BYTES), THREADS,
                 p->c->stream, head, (T *)data, count, width, which, dropped);
    note(p, "dropout");
}

template <class T> static void dropout_forward(struct pass *p, struct work &w)
{
    if (p->b->training)
        drop<T>(p, w, w.y);
}

template <class T> static void dropout_backward(struct pass *p, struct work &w)
{
    drop<T>(p, w, w.dy);
}

template <class T> struct card_calls {
    void (*forward)(struct pass *p, struct work &w);
    void (*backward)(struct pass *p, struct work &w);
};

template <class T> static card_calls<T> calls_of(enum layer_kind kind)
{
    /* in the order of enum layer_kind */
    static const card_calls<T> calls[] = {
        { linear_forward<T>, linear_backward<T> },
        { conv_forward<T>, conv_backward<T> },
        { pool_forward<T>, pool_backward<T> },
        { dropout_forward<T>, dropout_backward<T> },
    };

    return calls[kind];
}

/* -- the net ---------------------------------------------------------------------- */

template <class T> static void gather(struct pass *p)
{
    struct gpu_trainer *c = p->c;
    size_t count = p->b->size * IMAGE_PIXELS;
    const struct gpu_trainer_data *d = &c->set[p->b->set];

    LAUNCH_ALONE(gather_kernel<T>, blocks_for(p, count), THREADS, c->stream, c->head,
                 d->images, d->labels, (T *)c->data[0], c->label, count);
    note(p, "the samples");
}

template <class T> static void forward(struct pass *p)
{
    struct gpu_trainer *c = p->c;
    unsigned number = 0;

    for (unsigned i = 0; i < c->layers; i++) {
        const struct layer *l = net_layer(c->plan.net, i);
        struct work w = { l, &c->parameter[number], c->data[i], c->data[i + 1] };

        calls_of<T>(l->shape.kind).forward(p, w);
        number += l->parameters;
    }
}

template <class T> static void loss(struct pass *p)
{
    struct gpu_trainer *c = p->c;
    size_t size = p->b->size;
    const float *scale = p->b->training ? p->b->scale_there : NULL;
    unsigned blocks = (unsigned)((size + THREADS - 1) / THREADS);

    LAUNCH_ALONE(loss_kernel<T>, blocks, THREADS, c->stream, c->head, scale,
                 (T *)c->data[c->layers], c->label, c->sample_scores, size);
    note(p, "the loss");
    LAUNCH_TOGETHER(score_kernel, 1, SCORE_THREADS, c->stream, c->sample_scores, size,
                    c->score);
    note(p, "the loss");
}

template <class T>
static void backward(struct pass *p, void (*ready)(void *arg, unsigned parameter),
                     void *arg)
{
    struct gpu_trainer *c = p->c;
    unsigned number = net_parameters(c->plan.net), turn = 0;
    void *dy = c->data[c->layers];

    for (unsigned i = c->layers; i-- > 0;) {
        const struct layer *l = net_layer(c->plan.net, i);
        void *dx = l->in_place ? dy : c->spare[turn];
        struct gpu_trainer_parameter *own = &c->parameter[number - l->parameters];
        struct work w = { l, own, c->data[i], c->data[i + 1], dy, i ? dx : NULL };

        if (!l->in_place)
            turn = !turn;
        calls_of<T>(l->shape.kind).backward(p, w);
        for (unsigned k = l->parameters; k-- > 0;) {
            number--;
            if (ready)
                ready(arg, number);
        }
        dy = dx;
    }
}

template <class T>
static void compute(struct pass *p, void (*ready)(void *arg, unsigned parameter),
                    void *arg)
{
    gather<T>(p);
    forward<T>(p);
    loss<T>(p);
    if (p->b->training)
        backward<T>(p, ready, arg);
}

int gpu_trainer_compute(struct gpu_trainer *c, const struct gpu_trainer_batch *b,
                        void (*ready)(void *arg, unsigned parameter), void *arg,
                        struct err *e)
{
    struct pass p = { c, b, NULL };

    if (c->plan.type == CRUN_F32)
        compute<float>(&p, ready, arg);
    else if (c->plan.type == CRUN_BF16)
        compute<bf16>(&p, ready, arg);
    else
        compute<f16>(&p, ready, arg);
    return p.failed ? err_set(e, "the GPU: %s", p.failed) : 0;
}

int gpu_trainer_round(struct gpu_trainer *c, void *to, const float *from, size_t count,
                      struct err *e)
{
    struct pass p = { c, NULL, NULL };
    unsigned blocks = blocks_for(&p, count);

    if (c->plan.type == CRUN_BF16)
        LAUNCH_ALONE(membership_kernel<bf16>, blocks, THREADS, c->stream, (bf16 *)to,
                     from, count);
    else
        LAUNCH_ALONE(membership_kernel<f16>, blocks, THREADS, c->stream, (f16 *)to,
                     from, count);
    return gpu_trainer_check(cudaGetLastError(), "rounding", e);
}
