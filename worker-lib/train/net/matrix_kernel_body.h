/* SPDX-License-Identifier: MIT */
/*
 * Included once for each kind of processor, with KERNEL(name), which gives a function a
 * name of its own, TARGET, the attribute of its functions, LANES, the numbers of a
 * vector, and ROWS x VECTORS, the vectors of a tile of the result, which is held in
 * registers.
 */
#define TILE_FUNCTION static inline TARGET __attribute__((always_inline))
#define WIDTH (VECTORS * LANES)
#define VECTOR KERNEL(vector)
#define PACK_PANEL KERNEL(pack_panel)
#define ADD_TILE KERNEL(add_tile)
#define ADD_BLOCK KERNEL(add_block)
#define ADD_PRODUCT KERNEL(add_product)

typedef float VECTOR
    __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));

/* `count` rows or columns, side by side; zeros where there are fewer than `width`. */
TILE_FUNCTION void PACK_PANEL(float *to, size_t width, const float *from, size_t along,
                              size_t across, size_t depth, size_t count)
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
TILE_FUNCTION void ADD_TILE(float *out, size_t out_row, size_t rows, size_t columns,
                            size_t depth, const float *a, const float *b)
{
    VECTOR sum[ROWS][VECTORS] = { 0 };
    VECTOR all[ROWS][VECTORS];

    for (size_t k = 0; k < depth; k++, a += ROWS, b += WIDTH)
        UNROLL for (int r = 0; r < ROWS; r++)
        {
            UNROLL for (int v = 0; v < VECTORS; v++)
            {
                sum[r][v] += a[r] * ((const VECTOR *)b)[v];
            }
        }
    if (rows == ROWS && columns == WIDTH) {
        UNROLL for (size_t r = 0; r < ROWS; r++)
        {
            UNROLL for (int v = 0; v < VECTORS; v++)
            {
                ((VECTOR *)(out + r * out_row))[v] += sum[r][v];
            }
        }
        return;
    }
    memcpy(all, sum, sizeof(all));
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < columns; c++)
            out[r * out_row + c] += ((const float *)all[r])[c];
}

/* A block whose rows of a, packed, fit into the scratch memory. */
TARGET static void ADD_BLOCK(struct matrix_scratch *s, float *out, size_t out_row,
                             size_t rows, size_t columns, size_t depth, struct matrix a,
                             struct matrix b)
{
    for (size_t r = 0; r < rows; r += ROWS)
        PACK_PANEL(s->a + r * depth, ROWS, a.at + r * a.row, a.column, a.row, depth,
                   at_most(rows - r, ROWS));
    for (size_t c = 0; c < columns; c += WIDTH) {
        size_t width = at_most(columns - c, WIDTH);

        PACK_PANEL(s->b, WIDTH, b.at + c * b.column, b.row, b.column, depth, width);
        for (size_t r = 0; r < rows; r += ROWS)
            ADD_TILE(out + r * out_row + c, out_row, at_most(rows - r, ROWS), width,
                     depth, s->a + r * depth, s->b);
    }
}

static void ADD_PRODUCT(struct matrix_scratch *s, float *out, size_t out_row,
                        size_t rows, size_t columns, size_t depth, struct matrix a,
                        struct matrix b)
{
    const size_t block = BLOCK_ROWS / ROWS * ROWS;

    for (size_t k = 0; k < depth; k += BLOCK_DEPTH)
        for (size_t r = 0; r < rows; r += block) {
            struct matrix of_a = a, of_b = b;

            of_a.at += r * a.row + k * a.column;
            of_b.at += k * b.row;
            ADD_BLOCK(s, out + r * out_row, out_row, at_most(rows - r, block), columns,
                      at_most(depth - k, BLOCK_DEPTH), of_a, of_b);
        }
}

#undef KERNEL
#undef TARGET
#undef LANES
#undef ROWS
#undef VECTORS
#undef TILE_FUNCTION
#undef WIDTH
#undef VECTOR
#undef PACK_PANEL
#undef ADD_TILE
#undef ADD_BLOCK
#undef ADD_PRODUCT
