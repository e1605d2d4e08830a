/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_WIRE_PROTOCOL_SOFTWARE_H
#define RENDEZVOUS_WIRE_PROTOCOL_SOFTWARE_H

/* What this build is, for peers: "crun 0.1.0 (6328e48b)". A message has room for 31
 * bytes. */
extern const char software_crun[], software_crund[];

/* The line of --version: the name that the program was called by, "0.1.0 (6328e48b,
 * 2026-11-23)", and what it is. Without a commit where make knew none. */
int software_print(const char *program, const char *what);

#endif
