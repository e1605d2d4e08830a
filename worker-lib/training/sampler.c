/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <stdlib.h>

#include "worker-lib/core/status.h"
#include "worker-lib/training/train_state.h"

/*
 * A pass is a sequence of places: place p goes to rank (p - base) % size, where base is
 * the number of places that were dealt before this world began. So one number, `dealt`,
 * describes the position in a pass, and a world of another size can continue from it.
 * The sample at a place is computed by a permutation, which needs no memory.
 */
struct crun_sampler {
    crun_sampler_options options;
    uint64_t pass;
    uint64_t base;  /* places dealt before the restart */
    uint64_t drawn; /* by this rank since then */
    unsigned half_bits;
};

/*
 * The permutation: a Feistel network on the smallest even number of bits that can hold
 * all samples. A result beyond them goes through the network again, which ends because
 * the network is a permutation. It takes less than four rounds on average.
 */
#define ROUNDS 8

static uint64_t mix_bits(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t round_key(const crun_sampler *s, unsigned round)
{
    return mix_bits(mix_bits(s->options.seed + 0x9e3779b97f4a7c15u) +
                    mix_bits(s->pass * ROUNDS + round + 1));
}

static uint64_t feistel_network(const crun_sampler *s, const uint64_t *key, uint64_t x)
{
    uint64_t mask = (UINT64_C(1) << s->half_bits) - 1;
    uint64_t left = x >> s->half_bits, right = x & mask;

    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t next = left ^ (mix_bits(right + key[i]) & mask);

        left = right;
        right = next;
    }
    return left << s->half_bits | right;
}

static uint64_t sample_at(const crun_sampler *s, const uint64_t *key, uint64_t place)
{
    place %= s->options.samples; /* padding repeats from the start */
    if (s->options.in_order)
        return place;
    do
        place = feistel_network(s, key, place);
    while (place >= s->options.samples);
    return place;
}

/* The number of places that this world deals to all ranks in the rest of the pass. */
static uint64_t places_to_deal(const crun_sampler *s)
{
    uint64_t size = (uint64_t)s->options.size, left = s->options.samples - s->base;

    switch (s->options.remainder) {
    case CRUN_PAD:
        return (left + size - 1) / size * size;
    case CRUN_DROP:
        return left / size * size;
    case CRUN_EXACT:
        break;
    }
    return left;
}

static uint64_t places_of_rank(const crun_sampler *s)
{
    uint64_t places = places_to_deal(s), size = (uint64_t)s->options.size;

    return places / size + ((uint64_t)s->options.rank < places % size);
}

crun_status crun_sampler_create(crun_sampler **sampler,
                                const crun_sampler_options *options)
{
    const crun_sampler_options *o = options;
    crun_sampler *s;

    *sampler = NULL;
    if (!o->samples || o->samples > UINT64_C(1) << 62)
        return status_fail(CRUN_BAD_ARGUMENT, "a sampler of %" PRIu64 " samples",
                           o->samples);
    if (o->size < 1 || o->rank < 0 || o->rank >= o->size)
        return status_fail(CRUN_BAD_ARGUMENT, "a sampler for rank %d of %d", o->rank,
                           o->size);
    s = calloc(1, sizeof(*s));
    if (!s)
        return status_fail(CRUN_NO_MEMORY, "no memory for a sampler");
    s->options = *o;
    s->half_bits = 1;
    while (UINT64_C(1) << 2 * s->half_bits < o->samples)
        s->half_bits++;
    *sampler = s;
    return CRUN_OK;
}

void crun_sampler_destroy(crun_sampler *s)
{
    free(s);
}

void crun_sampler_set_pass(crun_sampler *s, uint64_t pass)
{
    s->pass = pass;
    s->base = s->drawn = 0;
}

size_t crun_sampler_next(crun_sampler *s, uint64_t *index, size_t count)
{
    uint64_t key[ROUNDS], left = crun_sampler_left(s);

    if (count > left)
        count = (size_t)left;
    for (unsigned i = 0; i < ROUNDS; i++)
        key[i] = round_key(s, i);
    for (size_t i = 0; i < count; i++, s->drawn++)
        index[i] = sample_at(s, key,
                             s->base + s->drawn * (uint64_t)s->options.size +
                                 (uint64_t)s->options.rank);
    return count;
}

uint64_t crun_sampler_left(const crun_sampler *s)
{
    return places_of_rank(s) - s->drawn;
}

void crun_sampler_save(const crun_sampler *s, crun_sampler_state *state)
{
    uint64_t dealt = s->base + s->drawn * (uint64_t)s->options.size;

    *state = (crun_sampler_state){
        .samples = s->options.samples,
        .seed = s->options.seed,
        .pass = s->pass,
        .dealt = dealt < s->options.samples ? dealt : s->options.samples,
    };
}

crun_status sampler_fits(const crun_sampler *s, const crun_sampler_state *state)
{
    if (state->samples != s->options.samples)
        return status_fail(CRUN_MISMATCH,
                           "the saved sampler deals %" PRIu64
                           " samples, this one %" PRIu64,
                           state->samples, s->options.samples);
    if (state->seed != s->options.seed)
        return status_fail(CRUN_MISMATCH,
                           "the saved sampler has seed %" PRIu64 ", this one %" PRIu64,
                           state->seed, s->options.seed);
    if (state->dealt > state->samples)
        return status_fail(CRUN_CORRUPT,
                           "a saved sampler has dealt %" PRIu64 " of %" PRIu64,
                           state->dealt, state->samples);
    return CRUN_OK;
}

crun_status crun_sampler_restore(crun_sampler *s, const crun_sampler_state *state)
{
    crun_status status = sampler_fits(s, state);

    if (status != CRUN_OK)
        return status;
    s->pass = state->pass;
    s->base = state->dealt;
    s->drawn = 0;
    return CRUN_OK;
}
