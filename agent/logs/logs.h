/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/config.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/wire/protocol/message.h"

struct console;
struct logs;
struct loop;

/*
 * The output of the workers: reads their two streams from pipes or ptys and writes them
 * to files, to the console with or without a prefix, and keeps the last 64 KiB of
 * standard error for the failure report, and of both streams for those who ask.
 *
 * A worker never blocks or dies because of a full disk, a dead file server or a blocked
 * terminal, nor because of a closed pipe unless the output goes nowhere else: output
 * that cannot be written is dropped, counted, reported on standard error, and marked in
 * the file. A disk or a reader that is only slower than a worker slows the worker down,
 * as it would without crun, if it accepts at least 2 MiB a second.
 *
 * A worker gets crun's own standard output if crun does not have to read it, and crun's
 * is a device, or a file that no other stream reaches. If both streams of crun are the
 * same terminal, file or pipe, those of a worker are the same too, and keep their
 * order.
 */
struct logs_calls {
    /* Both streams of the worker have ended, or were given up (see logs_drain). */
    void (*ended)(void *arg, uint32_t local_rank);
    void *arg;
};

/* How the output has ended. */
struct logs_end {
    bool open_line; /* the last line on standard error has no end */
    bool has_lost;  /* some output could not be written, here or in files */
};

/* crun's own messages go through here too, until logs_destroy: they begin on a new
 * line, and a blocked terminal does not block the loop. */
struct logs *logs_create(struct loop *loop, const struct config *config,
                         const struct logs_calls *calls);
/* What a worker prints, as far as crun reads it; stream: 0 is standard output. */
void logs_on_output(struct logs *l,
                    void (*output)(void *arg, uint32_t local_rank, int stream,
                                   const char *data, size_t size),
                    void *arg);
/* Standard output was closed, and the job should end: see logs_need_reader. */
void logs_on_closed(struct logs *l, void (*closed)(void *arg), void *arg);
/* Whether nothing else keeps the output of this job of one node: no --log-dir, and
 * no --ignore-closed-output. */
bool logs_need_reader(const struct config *config);
/* Answers ASK_LOGS from what is kept, with LOGS. */
void logs_on_answer(struct logs *l, void (*answer)(void *arg, const struct msg *m),
                    void *arg);
void logs_ask(struct logs *l,
              const struct msg_ask_logs *ask); /* after logs_on_answer */
/* As log_answers_finish; also not called once the next attempt begins. */
bool logs_finish(struct logs *l, void (*shown)(void *arg), void *arg);
/* Flushes crun's streams; one that takes nothing for a second is given up. NULL is
 * fine. */
struct logs_end logs_destroy(struct logs *l);

/* As log_dirs_remove_empty. */
void logs_remove_empty_dirs(struct logs *l);

/* The destination of crun's own messages. */
struct console *logs_console(const struct logs *l);

/* The run's folder <log-dir>/<run-id>_<random>, and `latest-<host>` pointing to it.
 * Made at the first use. NULL with e if it cannot be, or if log-dir is /dev/null. */
const char *logs_directory(struct logs *l, struct err *e);

/* The same, if it has been made already; else NULL. */
const char *logs_made_directory(const struct logs *l);

/*
 * Begins attempt `attempt` (the epoch - 1): makes the folder attempt_<n>/<local_rank>
 * of each worker. Nothing is erased. The first attempt reports where logs are that have
 * a temporary folder. first_rank: global rank of local rank 0.
 */
int logs_begin(struct logs *l, uint64_t attempt, uint32_t first_rank,
               struct err *e) MUST_CHECK;

/*
 * The three descriptors for the worker's 0, 1 and 2, and whether its output is a
 * terminal. The caller closes them after the spawn, except crun's own 0 and 1.
 */
int logs_open(struct logs *l, uint32_t local_rank, int fd[3], bool *is_tty,
              struct err *e) MUST_CHECK;

/* The worker has exited: its streams are given up after grace_ms, even if a process
 * still holds them. */
void logs_drain(struct logs *l, uint32_t local_rank, uint32_t grace_ms);

/* The end of its standard error (or of its terminal) as plain text: see log_ring.h.
 * Whole lines, at most size - 1 bytes. Returns text. */
char *logs_tail(const struct logs *l, uint32_t local_rank, char *text, size_t size);

/* When something was last written there, and when the last traceback of Python began,
 * by clock_ms; 0: never. */
struct logs_error_times {
    uint64_t written_ms, traceback_ms;
};
struct logs_error_times logs_error_times(const struct logs *l, uint32_t local_rank);

/* The absolute path of the attempt's folder, with a slash at its end, which the caller
 * frees; NULL if there is none. */
char *logs_attempt_folder(const struct logs *l);

/* The paths of the worker's error file and of its file for standard error; "" if there
 * is none. */
const char *logs_error_file(const struct logs *l, uint32_t local_rank);
const char *logs_stderr_file(const struct logs *l, uint32_t local_rank);
