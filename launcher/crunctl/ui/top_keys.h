/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* A key that is a character is that byte. */
enum top_key {
    TOP_KEY_ESC = 27,
    TOP_KEY_UP = 0x100,
    TOP_KEY_DOWN,
    TOP_KEY_PAGE_UP,
    TOP_KEY_PAGE_DOWN,
    TOP_KEY_HOME,
    TOP_KEY_END,
    TOP_KEY_OTHER /* a sequence that means nothing here */
};

/*
 * The first key of what was typed; it takes `*used` bytes. 0: more bytes may come.
 * is_all: nothing came for a while, so that ESC is the key and begins no sequence.
 */
int top_key_next(const char *typed, size_t size, bool is_all, size_t *used);
