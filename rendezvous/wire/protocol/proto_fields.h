/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/common/base/access.h"

/*
 * The fields of each message: the tables that encoding, decoding, the tests and
 * PROTOCOL.md follow, and the records of a job in the journal.
 */
enum proto_kind {
    PROTO_U32,  /* a number, min to max */
    PROTO_I32,  /* a number, min to max */
    PROTO_U64,  /* 1 to 16 lower-case hex digits in a string */
    PROTO_ID,   /* 32 lower-case hex digits in a string */
    PROTO_BOOL, /* true or false */
    PROTO_TEXT, /* any UTF-8 without NUL, shorter than size bytes */
    PROTO_TAIL, /* the same; where it must be cut, its end is kept */
    PROTO_NAME, /* a text of letters, digits and . _ : @ % + - only */
    PROTO_ENUM, /* one of names[min..max] */
    PROTO_WORD, /* names[0..max], never left out; any other is max + 1 */
    PROTO_OBJECT
};

struct proto_table;

/* A setting of a job, as users know it. settings_check.c compares them. */
struct proto_setting {
    const char *name;     /* "--max-restarts" */
    int64_t min, max;     /* of a number: the limits of a job */
    const char *words[2]; /* of a bool: the names of false and true */
    bool is_ms;           /* of a number: a time, which people read in seconds */
};

struct proto_field {
    const char *name;
    enum proto_kind kind;
    bool required;         /* if not: left out when zero or empty */
    uint16_t offset, size; /* in the struct that the table describes */
    int64_t min, max;
    const char *const *names;
    const struct proto_table *object;
    const struct proto_setting *setting; /* NULL: it is none */
    enum access least;                   /* what a reader needs to be shown it */
};

struct proto_table {
    const struct proto_field *field;
    unsigned count;
};

struct proto_message {
    const char *name;  /* NULL: no message has this number */
    unsigned phases;   /* in which the rendezvous takes it: 1u << phase */
    enum access least; /* that its sender needs; ACCESS_NONE: the rendezvous sends it */
    struct proto_table body;
};

/* Kept in the journal in the form of the protocol. */
extern const struct proto_field proto_job_config_fields[];
extern const struct proto_table proto_job_config, proto_failure;

/* The index of a word among count names, or count. */
unsigned proto_word(const char *const *names, unsigned count, const char *word);

/* By number; an unused number has no name. */
extern const struct proto_message proto_messages[];
