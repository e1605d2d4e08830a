/* SPDX-License-Identifier: MIT */
#include "worker-lib/world/node_map.h"

#include <stdint.h>

#include "tests/worlds/check_main.h"

#define RANKS_MAX 8

static const struct {
    unsigned ranks, node[RANKS_MAX];
    size_t size; /* of the value */
} maps[] = {
    { 1, { 0 }, 8 },
    { 2, { 0, 0 }, 8 },
    { 2, { 0, 1 }, 8 },
    { 4, { 0, 0, 1, 1 }, 8 },
    { 6, { 0, 1, 0, 1, 0, 1 }, 8 },
    { 7, { 0, 0, 1, 1, 2, 2, 3 }, 8 },
    { 4, { 0, 1, 1, 1 }, 16 },
    { 5, { 0, 0, 1, 2, 1 }, 20 },
};

TEST_EACH(a_map_survives_the_store, maps)
{
    unsigned ranks = maps[_i].ranks, node[RANKS_MAX];
    uint8_t value[NODE_MAP_BYTES(RANKS_MAX)];
    size_t size = node_map_format(maps[_i].node, ranks, value);

    ck_assert_uint_eq(size, maps[_i].size);
    ck_assert(node_map_parse(value, size, ranks, node));
    ck_assert_mem_eq(node, maps[_i].node, ranks * sizeof(*node));
}

static const struct {
    unsigned ranks;
    size_t size;
    uint32_t value[RANKS_MAX];
} wrong[] = {
    { 4, 8, { 0, 0 } },        { 4, 8, { 0, 1 } },
    { 4, 8, { 2, 0 } },        { 2, 8, { 0, 0 } },
    { 4, 0, { 0 } },           { 4, 4, { 0 } },
    { 4, 15, { 0, 1, 1, 1 } }, { 4, 17, { 0, 1, 1, 1 } },
    { 4, 12, { 0, 1, 1 } },    { 4, 20, { 0, 1, 1, 1, 1 } },
    { 4, 16, { 0, 1, 1, 3 } }, { 4, 16, { 0, 1, 1, UINT32_MAX } },
    { 4, 16, { 1, 0, 1, 1 } }, { 4, 16, { 0, 2, 1, 1 } },
};

TEST_EACH(what_is_no_map_is_refused, wrong)
{
    unsigned node[RANKS_MAX];

    ck_assert(!node_map_parse(wrong[_i].value, wrong[_i].size, wrong[_i].ranks, node));
}
