/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether a program is linked with a shared library whose file name begins with one of
 * the prefixes (NULL-ended); the name is copied to library. False also for a file that
 * is no program of this machine's kind, such as a script.
 */
bool elf_needs(const char *path, const char *const *prefixes, char *library,
               size_t size);
