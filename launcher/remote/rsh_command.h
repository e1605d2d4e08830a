/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>

/*
 * The command that connects to a host and executes `sh` there. NULL-ended; the caller
 * frees it with rsh_free.
 *
 *   (none)                  ssh FLAGS SSH_ARGS HOST sh
 *   docker exec -i          docker exec -i HOST sh
 *   kubectl exec -i         kubectl exec -i HOST -- sh
 *   any words with {}       {} is the host
 *
 * Without a program, this machine itself (localhost, or its own name) needs no ssh.
 */
char **rsh_command(const char *program, const char *ssh_args, const char *host);
void rsh_free(char **argv);

/* localhost, or its own name. */
bool rsh_is_this_machine(const char *host);
