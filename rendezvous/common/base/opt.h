/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "rendezvous/common/base/err.h"

/*
 * Command lines from one table per program: parsing, --help, environment defaults and
 * the manual's list all read it, so that they agree. Dashes and underscores are the
 * same in long names; unique prefixes are understood; a wrong name gets a suggestion;
 * --name=value and --name value are the same; "--" ends the flags.
 */
struct opt {
    const char *name; /* "state-dir"; NULL ends the table */
    char letter;      /* 'v' for -v, or 0 */
    const char *arg;  /* "DIR" as shown in --help; NULL: a switch */
    const char *help; /* one sentence, wrapped by --help; NULL: accepted, not shown */
    int (*set)(void *target, const struct opt *opt, const char *value, struct err *e);
    size_t offset;      /* of the field in target that the common setters write */
    size_t size;        /* of a number's field: 2, 4 or 8 bytes; 0 is 8 */
    long long min, max; /* for opt_set_int and opt_set_seconds */
    bool arg_optional;  /* only --name=value gives it a value; else set gets NULL */
    bool one_dash;      /* also -name, for names that other programs type so: -np 4 */
    bool adds;          /* each one adds to the field, a struct opt_texts */
};

/* The values of a flag that may be repeated. A flag replaces what a variable gave. */
#define OPT_TEXTS_MAX 128
struct opt_texts {
    const char *text[OPT_TEXTS_MAX + 1]; /* NULL-ended */
    unsigned count;
    bool from_variable;
};

/* Designated initialisers of a row whose common setter writes to that field. */
#define OPT_FIELD(type, field)                                                         \
    .offset = offsetof(type, field), .size = sizeof(((type *)0)->field)

/* Flags of every program: they set `bool help` and `bool version` of its settings. */
#define OPT_HELP(type)                                                                 \
    {                                                                                  \
        .name = "help", .letter = 'h', .help = "Print this and exit.",                 \
        .set = opt_set_true, .offset = offsetof(type, help)                            \
    }
/* The same of a program whose -h is shorter: it sets `bool short_help`. */
#define OPT_SHORT_HELP(type)                                                           \
    { .name = "help",                                                                  \
      .help = "Print this and exit; -h: the flags that are used most.",                \
      .set = opt_set_true,                                                             \
      .offset = offsetof(type, help) },                                                \
    {                                                                                  \
        .name = "h", .letter = 'h', .set = opt_set_true,                               \
        .offset = offsetof(type, short_help)                                           \
    }
#define OPT_VERSION(type)                                                              \
    {                                                                                  \
        .name = "version", .letter = 'V', .help = "Print the version and exit.",       \
        .set = opt_set_true, .offset = offsetof(type, version)                         \
    }

/* A flag that users know from other programs, and the one that they mean. */
struct opt_hint {
    const char *typed; /* without dashes; one letter is the flag -L and not --L */
    const char *flag;  /* "did you mean --flag=NUMBER?" */
    const char *text;  /* says more than a flag's name; or NULL */
    bool removed;      /* an earlier version had it: its variable is refused, too */
};

struct opt_rules {
    const struct opt *table;
    /* Defaults come from variable PREFIX_NAME_IN_CAPITALS, for each of these prefixes
     * (NULL-ended, weakest first; may be NULL). An empty variable counts as not set.
     * That of a switch is 1 or 0, which an optional value may also be. --help and
     * --version have none. */
    const char *const *env_prefixes;
    bool stop_at_word;            /* no flags after the first word that is not a flag */
    const struct opt_hint *hints; /* ended by .typed == NULL; may be NULL */
};

/* Parse argv[1..] into target. *first_word is the index of the first word in argv
 * (words are moved to the end, in order). */
int opt_parse(const struct opt_rules *rules, int argc, char **argv, void *target,
              int *first_word, struct err *e) MUST_CHECK;

/* In a message: the names of those flags of argv that were typed with underscores. */
void opt_spell_as_typed(int argc, char *const *argv, char *text);

/* The row whose name is most like `typed`, or NULL. hidden: also rows without help. */
const struct opt *opt_find_nearest(const struct opt *table, const char *typed,
                                   size_t length, bool hidden);

/* The list of flags for --help, wrapped to 80 columns. */
void opt_print(const struct opt *table, FILE *out);

/*
 * Common setters. The error of a setter is `"value" is not ...` with the allowed
 * values; opt_parse puts the name of the flag or of the variable in front.
 */
int opt_set_true(void *target, const struct opt *, const char *,
                 struct err *); /* bool */
int opt_set_text(void *target, const struct opt *, const char *,
                 struct err *); /* const char * */
int opt_add_text(void *target, const struct opt *, const char *,
                 struct err *); /* struct opt_texts; the row says .adds */
int opt_set_int(void *target, const struct opt *, const char *,
                struct err *); /* a whole number, of any width */
/* A time as clock_parse_duration reads it, into an unsigned number of milliseconds; min
 * and max are in milliseconds. */
int opt_set_seconds(void *target, const struct opt *, const char *, struct err *);
int opt_set_user(void *target, const struct opt *, const char *,
                 struct err *); /* uid_t: by name or number */
