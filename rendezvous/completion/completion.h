/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_COMPLETION_COMPLETION_H
#define RENDEZVOUS_COMPLETION_COMPLETION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "rendezvous/base/opt.h"

/*
 * Completions for bash, zsh and fish. The script of a shell is short: it asks the
 * program itself, as in `crun --complete --fence=g`, whose last word is the one to
 * complete. The answer is a line for each word that it can become, with a tab and a
 * description after it. A line that begins with a tab is for the script: "files", if
 * the words are names of files, or "rest N", if word N and those after it are a command
 * line of their own.
 */
#define COMPLETION_QUESTION "--complete"

struct completion;

struct completion_rules {
    const struct opt *table;
    /* no flags after the first word that is none: it begins a command line */
    bool stop_at_word;
    /* Offers what the next word can be, after `count` words that are no flags. NULL:
     * nothing. */
    void (*offer_word)(struct completion *c, char *const *words, size_t count);
    /* Offers values of a flag and returns true; false or NULL: those that the form of
     * its argument names. */
    bool (*offer_value)(struct completion *c, const struct opt *opt);
};

/* Answers for words[0..count-1], of which the last one is to be completed. */
void completion_answer(const struct completion_rules *rules, char *const *words,
                       size_t count, FILE *out);

/* The first of these words that is no flag and no value of one, or count. */
size_t completion_find_word(const struct opt *table, char *const *words, size_t count);

/* If the text can become of the word. description: "" for none; its first sentence is
 * shown. */
void completion_offer(struct completion *c, const char *text, const char *description);

/* Each word of "a|b|c", except names of values, which are in capitals. */
void completion_offer_choices(struct completion *c, const char *choices);

/* The word is a list: what is before its last comma stays. */
void completion_begin_list(struct completion *c);

enum completion_files { COMPLETION_FILES, COMPLETION_FOLDERS, COMPLETION_PROGRAMS };

/* Programs: executable files and .py files here; if there is none, those of PATH. */
void completion_offer_files(struct completion *c, enum completion_files kind);

/* -- scripts ---------------------------------------------------------------------- */

enum completion_shell { SHELL_NONE, SHELL_BASH, SHELL_ZSH, SHELL_FISH };

/* For the table of a program whose settings have `enum completion_shell completion`. */
#define COMPLETION_FLAG(type, field)                                                   \
    {                                                                                  \
        .name = "print-completion", .arg = "bash|zsh|fish",                            \
        .help = "Print a script that completes the command line in this shell, and "   \
                "exit.",                                                               \
        .set = completion_set_shell, .offset = offsetof(type, field)                   \
    }
int completion_set_shell(void *target, const struct opt *opt, const char *value,
                         struct err *e);

/* command: what is typed to run the program. */
void completion_print_script(enum completion_shell shell, const char *command,
                             FILE *out);

#endif
