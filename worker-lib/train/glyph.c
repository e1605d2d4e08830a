/* SPDX-License-Identifier: MIT */
#include <math.h>

#include "worker-lib/train/data.h"
#include "worker-lib/train/hash.h"

#define STROKES_MAX 3
#define ARC_PIECES 10
#define PI 3.14159265f

/*
 * In a box from 0 to 1, y downwards. A line from (a, b) to (c, d); or an arc around
 * (a, b) with radii c and d, from angle `from` to `to`, in degrees, 90 being down.
 */
struct stroke {
    enum { END, LINE, ARC } kind;
    float a, b, c, d, from, to;
};

static const struct stroke digits[CLASSES][STROKES_MAX + 1] = {
    { { ARC, .5f, .5f, .25f, .42f, -80, 290 } },
    { { LINE, .34f, .26f, .54f, .08f, 0, 0 }, { LINE, .54f, .08f, .54f, .92f, 0, 0 } },
    { { ARC, .5f, .32f, .25f, .24f, 190, 380 },
      { LINE, .735f, .40f, .24f, .92f, 0, 0 },
      { LINE, .24f, .92f, .78f, .92f, 0, 0 } },
    { { ARC, .47f, .29f, .25f, .21f, 200, 450 },
      { ARC, .47f, .71f, .28f, .21f, 270, 520 } },
    { { LINE, .62f, .08f, .2f, .62f, 0, 0 },
      { LINE, .2f, .62f, .82f, .62f, 0, 0 },
      { LINE, .62f, .08f, .62f, .92f, 0, 0 } },
    { { LINE, .74f, .08f, .34f, .08f, 0, 0 },
      { LINE, .34f, .08f, .3f, .46f, 0, 0 },
      { ARC, .48f, .66f, .28f, .26f, 230, 510 } },
    { { ARC, .72f, .66f, .46f, .58f, 262, 180 },
      { ARC, .49f, .68f, .23f, .24f, 0, 360 } },
    { { LINE, .24f, .1f, .76f, .1f, 0, 0 }, { LINE, .76f, .1f, .42f, .92f, 0, 0 } },
    { { ARC, .5f, .29f, .21f, .2f, 0, 360 }, { ARC, .5f, .7f, .26f, .22f, 0, 360 } },
    { { ARC, .5f, .32f, .23f, .24f, 0, 360 }, { LINE, .73f, .32f, .66f, .92f, 0, 0 } },
};

struct point {
    float x, y;
};

/* An image that is being drawn. */
struct hand {
    uint64_t key, used;           /* the next random number */
    float xx, xy, yx, yy, x0, y0; /* from the box to pixels */
    float radius;                 /* of the pen */
    float ink[IMAGE_PIXELS];
};

static float random_between(struct hand *h, float low, float high)
{
    return low + (high - low) * hash_uniform(h->key, h->used++);
}

/* About normal, with deviation 1: the sum of three numbers from -1 to 1. */
static float random_normal(struct hand *h)
{
    uint64_t random = hash_mix(h->key + h->used++);
    float sum = 0;

    for (unsigned i = 0; i < 3; i++, random >>= 21)
        sum += (float)(random & 0x1fffff) * 0x1p-20f - 1;
    return sum;
}

static void choose_pen(struct hand *h)
{
    float turn = random_between(h, -.26f, .26f), slant = random_between(h, -.3f, .3f);
    float width = random_between(h, 14, 23), height = random_between(h, 17, 23);

    h->xx = width * cosf(turn);
    h->yx = width * sinf(turn);
    h->xy = height * (-sinf(turn) - slant * cosf(turn));
    h->yy = height * (cosf(turn) - slant * sinf(turn));
    h->x0 = IMAGE_SIDE / 2.0f - .5f + random_between(h, -2.2f, 2.2f);
    h->y0 = IMAGE_SIDE / 2.0f - .5f + random_between(h, -2.2f, 2.2f);
    h->radius = random_between(h, .55f, 1.7f);
}

static struct point box_to_pixels(const struct hand *h, float x, float y)
{
    x -= .5f;
    y -= .5f;
    return (struct point){ h->x0 + h->xx * x + h->xy * y,
                           h->y0 + h->yx * x + h->yy * y };
}

static float distance_to_line(struct point p, struct point a, struct point b)
{
    float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    float t = length > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / length : 0;

    t = t < 0 ? 0 : t > 1 ? 1 : t;
    dx = a.x + t * dx - p.x;
    dy = a.y + t * dy - p.y;
    return sqrtf(dx * dx + dy * dy);
}

static void draw_line(struct hand *h, struct point a, struct point b)
{
    float reach = h->radius + 1, end = IMAGE_SIDE - 1;

    for (float y = ceilf(fmaxf(fminf(a.y, b.y) - reach, 0));
         y <= fminf(fmaxf(a.y, b.y) + reach, end); y++)
        for (float x = ceilf(fmaxf(fminf(a.x, b.x) - reach, 0));
             x <= fminf(fmaxf(a.x, b.x) + reach, end); x++) {
            float ink = h->radius + .5f -
                        distance_to_line((struct point){ x, y }, a, b);
            float *pixel = &h->ink[(int)y * IMAGE_SIDE + (int)x];

            *pixel = fmaxf(*pixel, fminf(ink, 1));
        }
}

/* Moves the stroke a little and draws it. */
static void draw_stroke(struct hand *h, struct stroke s)
{
    float *coordinate[] = { &s.a, &s.b, &s.c, &s.d };
    int pieces = s.kind == ARC ? ARC_PIECES : 1;
    struct point before = { 0, 0 };

    for (unsigned i = 0; i < 4; i++)
        *coordinate[i] += .025f * random_normal(h);
    if (s.kind == ARC) {
        s.from += 8 * random_normal(h);
        s.to += 8 * random_normal(h);
    }
    for (int i = 0; i <= pieces; i++) {
        float angle = (s.from + (s.to - s.from) * (float)i / ARC_PIECES) * PI / 180;
        struct point p = s.kind == ARC ? box_to_pixels(h, s.a + s.c * cosf(angle),
                                                       s.b + s.d * sinf(angle))
                         : i == 0      ? box_to_pixels(h, s.a, s.b)
                                       : box_to_pixels(h, s.c, s.d);

        if (i > 0)
            draw_line(h, before, p);
        before = p;
    }
}

unsigned glyph_draw(uint64_t seed, uint64_t number, uint8_t *pixels)
{
    struct hand h = { .key = hash_key(seed, 0x676c797068, number) };
    unsigned digit = (unsigned)random_between(&h, 0, CLASSES);
    float grain;

    choose_pen(&h);
    for (const struct stroke *s = digits[digit]; s->kind != END; s++)
        draw_stroke(&h, *s);
    grain = random_between(&h, 0, .13f);
    for (unsigned i = 0; i < IMAGE_PIXELS; i++) {
        float ink = h.ink[i] + grain * random_normal(&h);

        pixels[i] = (uint8_t)(255 * fminf(fmaxf(ink, 0), 1));
    }
    return digit;
}
