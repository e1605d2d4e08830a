/* SPDX-License-Identifier: MIT */
#include "agent/logs/log_followers.h"

#include "agent/logs/limits.h"

static void remove_follower(struct log_followers *f, unsigned i)
{
    f->follower[i] = f->follower[--f->count];
}

static void forget_late_followers(struct log_followers *f, uint64_t now_ms)
{
    for (unsigned i = 0; i < f->count;)
        if (f->follower[i].until_ms <= now_ms)
            remove_follower(f, i);
        else
            i++;
}

void log_followers_add(struct log_followers *f, const struct log_position *at,
                       bool has_all, uint64_t now_ms)
{
    forget_late_followers(f, now_ms);
    if (f->count < LOG_FOLLOWERS_MAX)
        f->follower[f->count++] = (struct log_follower){
            .at = *at, .has_all = has_all, .until_ms = now_ms + LOG_FOLLOWER_MS
        };
}

static bool follower_asks(const struct log_follower *f, const struct log_position *list,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (f->at.epoch == list[i].epoch && f->at.local_rank == list[i].local_rank &&
            f->at.which == list[i].which && f->at.offset == list[i].offset)
            return true;
    return count == 0 && f->has_all;
}

void log_followers_remove(struct log_followers *f, const struct log_position *list,
                          size_t count)
{
    for (unsigned i = 0; i < f->count; i++)
        if (follower_asks(&f->follower[i], list, count)) {
            remove_follower(f, i);
            return;
        }
}

uint64_t log_followers_until(const struct log_followers *f, uint64_t epoch,
                             uint64_t now_ms)
{
    uint64_t until = 0;

    for (unsigned i = 0; i < f->count; i++) {
        const struct log_follower *o = &f->follower[i];

        if (o->until_ms > now_ms && o->until_ms > until &&
            !(o->has_all && o->at.epoch == epoch))
            until = o->until_ms;
    }
    return until;
}
