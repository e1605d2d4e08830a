/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/logs/kept_output.h"
#include "rendezvous/wire/protocol/message.h"

/* What a question asks of one stream. */
struct wanted_stream {
    uint32_t local_rank;
    int which;
    uint64_t offset;
    uint32_t lines; /* of its file: begin so many before its end; 0: at the offset */
    bool is_new;    /* crunctl knows nothing of it: answered in any case */
    bool is_read;   /* from its file */
};

struct log_question {
    uint64_t number, epoch, follower, until_ms;
    size_t share; /* the most of one stream */
    bool follows; /* another one comes soon after the answer */
    struct wanted_stream *stream;
    unsigned count;
};

/* Of the ranks that this node has. */
struct log_question *log_question_make(const struct kept_output *kept,
                                       const struct msg_ask_logs *ask);
void log_question_free(struct log_question *q); /* NULL is fine */
