/* SPDX-License-Identifier: MIT */
#pragma once

#include "agent/config.h"
#include "launcher/flags/options.h"
#include "rendezvous/common/environment/scheduler.h"

/*
 * Turns the flags into a job: combines them, refuses contradictions, and applies them
 * to this machine.
 */
struct machine {
    uint32_t (*cpus)(void); /* CPUs that this process may run on */
    uint32_t (*gpus)(void);
    const char *cuda_visible_devices; /* NULL: not set */
    const char *hip_visible_devices;
    struct scheduler_batch batch;
    int64_t now_s; /* the wall clock */
};

/* words: the program and its arguments, as typed, NULL-ended. config->argv is left to
 * command.h, config->bootstrap to bootstrap.h. The texts of o and words must outlive
 * config. */
int config_build(const struct options *o, const char *const *words,
                 const struct machine *machine, struct config *config,
                 struct err *e) MUST_CHECK;

/* Frees what config_build has allocated, and argv. */
void config_build_release(struct config *config);
