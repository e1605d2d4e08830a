/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_FOLLOWERS_H
#define AGENT_LOGS_LOG_FOLLOWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_FOLLOWERS_MAX 16

/* A stream of a question, as far as its answer has come. */
struct log_position {
    uint64_t epoch, offset;
    uint32_t local_rank;
    int which;
};

/*
 * Those who follow the output and are expected to ask again soon: each is known by the
 * position where its last answer ended, which is that of its next question.
 * Zero-initialise.
 */
struct log_followers {
    unsigned count;
    struct log_follower {
        struct log_position at;
        bool has_all; /* of that epoch */
        uint64_t until_ms;
    } follower[LOG_FOLLOWERS_MAX];
};

/* A question of a follower was answered. More than LOG_FOLLOWERS_MAX are not kept. */
void log_followers_add(struct log_followers *f, const struct log_position *at,
                       bool has_all, uint64_t now_ms);
/* A follower asks for these positions: if one of them is known, it is expected no
 * more. count 0: it asks for the beginning of the epoch that runs. */
void log_followers_remove(struct log_followers *f, const struct log_position *list,
                          size_t count);
/* Until when one that does not have all of this epoch may ask; 0: there is none. */
uint64_t log_followers_until(const struct log_followers *f, uint64_t epoch,
                             uint64_t now_ms);

#endif
