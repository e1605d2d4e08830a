/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/err.h"
#include "worker-lib/crun/worker.h"

/* The codes of a struct err in this library. */
enum error_code {
    ERROR_LATE_RANK = 1, /* a wait for `rank` timed out */
    ERROR_TOLD,          /* the text is from `rank`: "rank 12: ..." */
    ERROR_ABORTED        /* the text begins with the abort word's reason; no rank */
};

/*
 * The reason why everything ends. It is set once, and every wait checks it. Each world
 * has one; a failure that another rank reports is set in it as well, and
 * backend_calls.abort passes it on to the other ranks.
 */
#define ABORT_REASON_SIZE 256
#define ABORT_OWN (-1)
struct abort_word {
    _Atomic uint32_t set; /* 0, ABORT_CLAIMED, or a crun_status */
    int32_t rank;         /* that reported the reason, named in its text; or OWN */
    char reason[ABORT_REASON_SIZE];
};
#define ABORT_CLAIMED UINT32_MAX /* the reason is being written */

/* The message about the end from one rank to another, in the store or in a frame. */
struct abort_notice {
    uint32_t status;
    int32_t rank; /* as above; ABORT_OWN: all ranks report the same text */
    char reason[ABORT_REASON_SIZE];
};

/* The first call wins and returns true. Safe in a signal handler. */
bool abort_set(struct abort_word *a, crun_status s, const char *reason);
/* With the error's text. */
bool abort_set_error(struct abort_word *a, crun_status s, const struct err *e);
bool abort_set_notice(struct abort_word *a, const struct abort_notice *n);

/* CRUN_OK: not set. */
crun_status abort_get(const struct abort_word *a);
/* The same; e has the reason, and ERROR_ABORTED. */
crun_status abort_error(const struct abort_word *a, struct err *e);

/* The word as a message of `rank`: its own reason is preceded by "rank 12: ".
 * Safe in a signal handler. */
struct abort_notice abort_notice(const struct abort_word *a, unsigned rank);
struct abort_notice abort_notice_of_error(crun_status s, const struct err *e);
/* False: it is not from abort_notice. */
bool abort_notice_is_valid(const struct abort_notice *n);
/* The error of another rank's notice. Returns its status, or CRUN_PEER_LOST. */
crun_status abort_notice_error(const struct abort_notice *n, struct err *e);
