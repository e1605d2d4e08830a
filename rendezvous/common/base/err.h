/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * A description of an error. A function that can fail for a reason outside the program
 * takes a `struct err *` (never NULL) as its last argument, fills it and returns -1.
 * The text is for users: callers add to it, and the caller that decides what to do
 * shows it once. No code reads the text: a caller decides by the code, whose values are
 * defined where it is set.
 */
struct err {
    int code;      /* 0: there is only the text */
    unsigned rank; /* the rank that the code is about, if any */
    char text[512];
};

/* Set the text; code and rank become 0. Always returns -1, so `return err_set(e, ...)`
 * reads well. */
int err_set(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* As err_set, followed by ": " and the text of errno value `errnum`. Returns -1. */
int err_set_errno(struct err *e, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* After err_set. Returns -1. */
int err_set_code(struct err *e, int code, unsigned rank);

/* Put "context: " in front of the text that is there; code and rank stay.
 * Returns -1. */
int err_wrap(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define MUST_CHECK __attribute__((warn_unused_result))
