/* SPDX-License-Identifier: MIT */
/*
 * Included once for each kind of processor, with KERNEL(name), which gives a function a
 * name of its own, TARGET, the attribute of its functions, LANES, the numbers of a
 * vector, and ROWS x VECTORS, the vectors of a tile of the result, which is held in
 * registers.
 */
#define TILE_FUNCTION static inline TARGET __attribute__((always_inline))
#define WIDTH (VECTORS * LANES)

typedef float KERNEL(vector)
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* `count` rows or columns, side by side; zeros where there are fewer than `width`. */
TILE_FUNCTION void KERNEL(pack_panel)(float *to, size_t width, const float *from,
                                      size_t along, size_t across, size_t depth,
                                      size_t count)
{
    if (count == width && across == 1) {
        for (size_t k = 0; k < depth; k++)
            memcpy(to + k * width, from + k * along, width * sizeof(*to));
        return;
    }
    if (count < width)
        memset(to, 0, depth * width * sizeof(*to));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < depth; k++)
            to[k * width + i] = from[k * along + i * across];
}

/* out += a * b for one tile, of which `rows` x `columns` are there. */
TILE_FUNCTION void KERNEL(add_tile)(float *out, size_t out_row, size_t rows,
                                    size_t columns, size_t depth, const float *a,
                                    const float *b)
{
    KERNEL(vector) sum[ROWS][VECTORS] = { 0 };
    float all[ROWS][WIDTH];

    for (size_t k = 0; k < depth; k++, a += ROWS, b += WIDTH) {
        KERNEL(vector) x[VECTORS];

        UNROLL for (int v = 0; v < VECTORS; v++)
            x[v] = *(const KERNEL(vector) *)(b + v * LANES);
        UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int v = 0; v < VECTORS; v++)
            sum[r][v] += a[r] * x[v];
    }
    if (rows == ROWS && columns == WIDTH) {
        UNROLL for (size_t r = 0; r < ROWS; r++)
                UNROLL for (int v = 0; v < VECTORS; v++) *
            (KERNEL(vector) *)(out + r * out_row + v * LANES) += sum[r][v];
        return;
    }
    UNROLL for (int r = 0; r < ROWS; r++) UNROLL for (int v = 0; v < VECTORS; v++) *
        (KERNEL(vector) *)(all[r] + v * LANES) = sum[r][v];
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[r * out_row + c] += all[r][c];
}

/* A block whose rows of a, packed, fit into the scratch memory. */
TARGET static void KERNEL(add_block)(struct matrix_scratch *s, float *out,
                                     size_t out_row, size_t rows, size_t columns,
                                     size_t depth, struct matrix a, struct matrix b)
{
    for (size_t r = 0; r < rows; r += ROWS)
        KERNEL(pack_panel)
        (s->a + r * depth, ROWS, a.at + r * a.row, a.column, a.row, depth,
         at_most(rows - r, ROWS));
    for (size_t c = 0; c < columns; c += WIDTH) {
        size_t width = at_most(columns - c, WIDTH);

        KERNEL(pack_panel)
        (s->b, WIDTH, b.at + c * b.column, b.row, b.column, depth, width);
        for (size_t r = 0; r < rows; r += ROWS)
            KERNEL(add_tile)
            (out + r * out_row + c, out_row, at_most(rows - r, ROWS), width, depth,
             s->a + r * depth, s->b);
    }
}

static void KERNEL(add_product)(struct matrix_scratch *s, float *out, size_t out_row,
                                size_t rows, size_t columns, size_t depth,
                                struct matrix a, struct matrix b)
{
    const size_t block = BLOCK_ROWS / ROWS * ROWS;

    for (size_t k = 0; k < depth; k += BLOCK_DEPTH)
        for (size_t r = 0; r < rows; r += block) {
            struct matrix of_a = a, of_b = b;

            of_a.at += r * a.row + k * a.column;
            of_b.at += k * b.row;
            KERNEL(add_block)
            (s, out + r * out_row, out_row, at_most(rows - r, block), columns,
             at_most(depth - k, BLOCK_DEPTH), of_a, of_b);
        }
}

#undef KERNEL
#undef TARGET
#undef LANES
#undef ROWS
#undef VECTORS
#undef WIDTH
#undef TILE_FUNCTION
