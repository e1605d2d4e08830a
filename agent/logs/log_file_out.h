/* SPDX-License-Identifier: MIT */
#ifndef AGENT_LOGS_LOG_FILE_OUT_H
#define AGENT_LOGS_LOG_FILE_OUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/logs/log_file_reads.h"

/* Writes a stream to its descriptor, and knows where it is in a file. */
struct log_file_out {
    int fd;
    bool is_file;
    struct log_place at;
};

/* *size becomes what was not written. Returns an errno. */
int log_file_out_write(struct log_file_out *f, const char *data, size_t *size,
                       uint64_t *written);
/* A mark, which is no output. */
int log_file_out_mark(struct log_file_out *f, const char *mark, size_t *size);

#endif
