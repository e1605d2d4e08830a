/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Messages of a program on standard error, one line each: "crund: message" for users,
 * or one JSON object per line. Messages are lower case, without a full stop, values
 * last (rank=3 pid=411). Bytes that are not printable are escaped: a text that a peer
 * sends must not control the terminal.
 */
enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG, LOG_LEVEL_COUNT };
enum log_format { LOG_TEXT, LOG_JSON };

void log_init(const char *program, enum log_level level, enum log_format format);
/* The name that messages begin with. */
const char *log_program(void);
/* The file name of argv[0], with which the program was called; `otherwise` if that is
 * empty. */
const char *log_name_of(const char *argv0, const char *otherwise);

/* Give finished lines to `sink`, not to standard error; NULL undoes it. */
void log_set_sink(void (*sink)(void *arg, enum log_level level, const char *line),
                  void *arg);

bool log_enabled(enum log_level level);
void log_at(enum log_level level, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...) log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...) log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                 \
    do {                                                                               \
        if (log_enabled(LOG_DEBUG))                                                    \
            log_at(LOG_DEBUG, __VA_ARGS__);                                            \
    } while (0)

/*
 * At most one line a second for each source. Zero-initialise. log_limit_pass is true if
 * a line may be written now, and then returns how many were held back before it.
 */
struct log_limit {
    struct {
        uint64_t last_ms;
        unsigned held_back;
    } slot[64];
};

bool log_limit_pass(struct log_limit *limit, uint64_t source, uint64_t now_ms,
                    unsigned *held_back);

/*
 * The same for sources that may write many lines at once: LOG_BURST_LINES, and then one
 * each LOG_BURST_INTERVAL_MS.
 */
#define LOG_BURST_LINES 1000
#define LOG_BURST_INTERVAL_MS 100

struct log_bursts {
    struct {
        uint64_t full_at_ms; /* when it may write that many lines again */
        unsigned held_back;
    } slot[1024];
};

bool log_bursts_pass(struct log_bursts *bursts, uint64_t source, uint64_t now_ms,
                     unsigned *held_back);
