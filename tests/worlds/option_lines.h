/* SPDX-License-Identifier: MIT */
#pragma once

#include "launcher/plan/config_build.h"

/* Command lines of crun, written as one text, and the machine that they are read on. */
#define WORDS_MAX 32
#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

extern uint32_t cpus, gpus;
extern struct machine machine;

/* Words separated by blanks, as argv with crun in front; a word of "''" is empty. */
struct line {
    char text[512];
    char *argv[WORDS_MAX + 1];
    int argc;
};

/* A checked fixture: six cores, no GPU, and nothing in the environment. */
void option_lines_setup(void);

int read_line(struct line *l, const char *text, struct options *o, struct config *c,
              struct err *e);
void accept_line(const char *text, struct options *o, struct config *c);
