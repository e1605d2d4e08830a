/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdio.h>

#include "rendezvous/common/base/preflight_verdict.h"
#include "rendezvous/wire/protocol/message.h"

/*
 * Failures for people and for programs: from a worker's exit to a description, from its
 * error file to the traceback, and the report at the end of a job.
 */

/* A worker's end: its exit code or signal. Returns buf. */
char *failure_format_end(const struct failure *f, char *buf, size_t size);
/* "exit code 85", "killed by SIGKILL, out of memory", "could not be started: ...". */
char *failure_what(const struct failure *f, char *buf, size_t size);

/* Sets f to the failure of a step ("execve") on the way to the program. */
void failure_set_not_executed(struct failure *f, const char *what, int errnum);

/* Describes a worker's end, with the program's own description of its error, or "". An
 * existing description stays. */
void failure_describe_end(struct failure *f, const char *message);

/*
 * A worker's TORCHELASTIC_ERROR_FILE, in either form that torch writes: its error in
 * one line ("" in the short form), the message or traceback, cut at the front; and the
 * fields of crun-preflight. True if the file exists and could be parsed.
 */
struct error_file {
    char message[256];
    char text[FAILURE_TEXT_MAX_BYTES + 1];
    uint64_t time_ms; /* of the error, since 1970 */
    enum preflight_verdict verdict;
    int exec_errno; /* of PREFLIGHT_NOT_EXECUTED */
};

bool failure_read_error_file(const char *path, struct error_file *file);
/* When the file was written, in ms since 1970; 0: there is none. */
uint64_t failure_error_file_time(const char *path);

/* Sets f to a failure of the agent itself, now. */
void failure_set_of_agent(struct failure *f, uint32_t rank, const char *why,
                          bool final);

/* Writes crun's own TORCHELASTIC_ERROR_FILE, as torchrun's agent does. Best effort. */
void failure_write_error_file(const char *path, const struct failure *f);

/* Whether the failure ends the job, even if restarts are left. */
bool failure_is_final(const struct failure *f, const struct job_config *job);

/* All failures of this node's workers, a line in the report for each but the first. */
struct failure_list {
    struct failure *item;
    unsigned count;
};

void failure_list_add(struct failure_list *l, const struct failure *f);
void failure_list_clear(struct failure_list *l);

/*
 * The report at the end: the first failure and its last output, then the others in a
 * line each, then the paths of the logs; see the launcher's manual for an example. In
 * colour if asked for.
 */
struct failure_report {
    const char *job; /* "job \"resnet\"", or "the job" */
    const struct msg_done *done;
    const struct failure_list *others;
    uint64_t epoch;
    const char *own_host;
    bool is_first_nodes; /* to tell, unless that node is lost: see msg_done */
    bool colour;
};

void failure_print_report(const struct failure_report *r, FILE *out);

/* Reports the end of a job: a report to standard error and to crun's own error file if
 * a worker or a node has failed, else one line. */
void failure_report_result(const struct failure_report *r, int exit_code);
