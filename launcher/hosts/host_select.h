/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_HOSTS_HOST_SELECT_H
#define LAUNCHER_HOSTS_HOST_SELECT_H

#include "launcher/hosts/hosts.h"

/*
 * --include and --exclude, as in DeepSpeed: "worker-0@worker-1:0,2" is all of worker-0,
 * and the slots 0 and 2 of worker-1, which are GPUs. A comma between names and ranges
 * in brackets are understood too. A name stands without the user of its host.
 */
int host_select_include(const char *text, struct hosts *h, struct err *e) MUST_CHECK;
int host_select_exclude(const char *text, struct hosts *h, struct err *e) MUST_CHECK;

#endif
