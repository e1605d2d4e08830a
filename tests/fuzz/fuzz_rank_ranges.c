/* SPDX-License-Identifier: MIT */
/*
 * rank_ranges_parse, with a list of ranks as a peer sends it. The parsed ranks are in
 * order, printing and parsing them again gives the same list, and any part of the list
 * fits in the text that is shown.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/wire/protocol/rank_ranges.h"

static void check_ranges(int holds)
{
    if (!holds)
        abort();
}

static void check_order(const struct rank_ranges *r)
{
    for (unsigned i = 0; i < r->count; i++) {
        check_ranges(r->range[i].first <= r->range[i].last);
        check_ranges(i == 0 || r->range[i].first > (uint64_t)r->range[i - 1].last + 1);
    }
}

static void check_printed(const struct rank_ranges *r, size_t size)
{
    struct rank_ranges again = { .count = 0 };
    char text[256];

    for (unsigned from = 0, end; from < r->count; from = end) {
        end = rank_ranges_print(r, from, text, size);
        check_ranges(end > from && rank_ranges_parse(&again, text));
    }
    check_ranges(again.count == r->count);
    for (unsigned i = 0; i < r->count; i++)
        check_ranges(again.range[i].first == r->range[i].first &&
                     again.range[i].last == r->range[i].last);
    rank_ranges_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rank_ranges ranks = { .count = 0 };
    char *text, shown[64];

    if (size < 1 || size > 512)
        return 0;
    text = xmalloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (rank_ranges_parse(&ranks, text)) {
        check_order(&ranks);
        check_printed(&ranks, 24u + data[0] % 200);
        rank_ranges_describe(&ranks, shown, sizeof(shown));
        check_ranges(strnlen(shown, sizeof(shown)) < sizeof(shown));
    }
    rank_ranges_fini(&ranks);
    free(text);
    return 0;
}
