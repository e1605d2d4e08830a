/* SPDX-License-Identifier: MIT */
#include "rendezvous/client/backoff.h"

#include "rendezvous/wire/protocol/limits.h"

void backoff_init(struct backoff *b, uint64_t seed)
{
    *b = (struct backoff){ .random = seed };
}

/* splitmix64 */
uint64_t backoff_below(struct backoff *b, uint64_t limit)
{
    uint64_t z = b->random += 0x9e3779b97f4a7c15;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return limit ? z % limit : 0;
}

uint64_t backoff_delay_ms(struct backoff *b, uint64_t most)
{
    uint64_t least = RECONNECT_DELAY_MS_MIN;
    unsigned n = b->attempts++;

    if (n == 0)
        return 1 + backoff_below(b, least); /* never at once */
    if (n < 16 && least << n < most)
        most = least << n;
    return least + backoff_below(b, most - least + 1);
}

void backoff_reset(struct backoff *b)
{
    b->attempts = 0;
}
