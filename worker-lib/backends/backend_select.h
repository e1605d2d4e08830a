/* SPDX-License-Identifier: MIT */
#pragma once

#include "worker-lib/engine/backend.h"

/* The requested backend: by the program (`option`, NULL if it has none), by
 * $CRUN_BACKEND, or else "auto". An unknown name is an error. */
crun_status backend_check_name(const char *option, const char **name, struct err *e);

/* The backend of that name for this team. "auto" is nccl if a device is requested and
 * every rank has a GPU, else the backend for the ranks' hosts. All ranks call this. */
crun_status backend_select(const struct team *team, const char *name,
                           uint64_t deadline_ms, const struct backend_calls **calls,
                           struct err *e);

/* For memory of the hosts: shm on one node, tcp for nodes of one rank, or both. */
const struct backend_calls *backend_for_hosts(const struct team *team);
