/* SPDX-License-Identifier: MIT */
#pragma once

/* What this build is, for peers: "crun 1.0.0 (6328e48b)". A message has room for 31
 * bytes. */
extern const char own_build_crun[], own_build_crund[];

/* The line of --version: the name that the program was called by, "1.0.0 (6328e48b,
 * 2026-11-23)", and what it is. Without a commit where make knew none. */
int own_build_print(const char *program, const char *what);
