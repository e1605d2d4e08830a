/* SPDX-License-Identifier: MIT */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* Base64 as in RFC 4648, with padding. */
#define BASE64_SIZE(bytes) (((bytes) + 2) / 3 * 4 + 1)

/* text has BASE64_SIZE(size) bytes. Returns text. */
char *base64_encode(const void *data, size_t size, char *text);

/* Returns how many bytes it is, or -1: the text is no base64, or longer than size. */
ssize_t base64_decode(const char *text, void *data, size_t size);
