/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/logs/log_file_reads.h"

/*
 * Writes a stream to its descriptor. A file that has reached its size becomes file.1,
 * and a new one begins; which bytes of the stream each of them has is kept up to date.
 */
struct log_rotation {
    int fd;
    bool is_file;
    uint64_t max_size; /* 0: none */
    int folder;        /* with a size: of the file, and */
    const char *file;  /* its name there */
    struct log_parts at;
    uint64_t in_file; /* bytes in the file */
    bool in_line;     /* the last one in it ends no line */
};

/* *size becomes what was not written. Returns an errno. */
int log_rotation_write(struct log_rotation *f, const char *data, size_t *size,
                       uint64_t *written);
/* A mark, which is no part of a line. */
int log_rotation_mark(struct log_rotation *f, const char *mark, size_t *size);
