/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * How a failing preflight reports the reason to its agent: the worker's error file
 * (TORCHELASTIC_ERROR_FILE) holds "preflight": {"verdict": 1, "errno": 0} next to the
 * "message" for users. The numbers are those below, and an errno.
 */
#define PREFLIGHT_KEY "preflight"
#define PREFLIGHT_VERDICT_KEY "verdict"
#define PREFLIGHT_ERRNO_KEY "errno"

enum preflight_verdict {
    PREFLIGHT_NO_VERDICT,   /* also: no preflight */
    PREFLIGHT_UNFIT,        /* this node is at fault */
    PREFLIGHT_NOT_EXECUTED, /* the checks passed; execve of the program failed */
};
