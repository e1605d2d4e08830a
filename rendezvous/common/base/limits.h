/* SPDX-License-Identifier: MIT */
#pragma once

/*
 * Caps that several folders share. Every other cap and every deadline is in the
 * limits.h of the lowest folder that uses it: every queue and every wait has a limit. A
 * number that a user may change is the default of a flag: launcher/flags/limits.h.
 */

/* names */
#define RUN_ID_MAX 128
#define HOST_NAME_MAX_BYTES 255
#define ADDRESS_MAX_BYTES 255
#define ERROR_TEXT_MAX_BYTES 511

/* a job */
#define NODES_MAX 16384
#define WORKERS_PER_NODE_MAX 4096
#define QUARANTINE_MAX 8
