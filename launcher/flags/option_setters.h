/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/common/base/opt.h"

/*
 * The setters of crun's flags: each checks one value by itself and stores it in struct
 * options. Flags of torchrun that have no effect here have an option_ignore_ one.
 */
#define OPTION_SETTER(name)                                                            \
    int name(void *options, const struct opt *opt, const char *value, struct err *e)

OPTION_SETTER(option_set_nnodes);
OPTION_SETTER(option_set_nproc);
OPTION_SETTER(option_add_hosts);
OPTION_SETTER(option_add_export);
OPTION_SETTER(option_set_spares);
OPTION_SETTER(option_set_backend);
OPTION_SETTER(option_set_rdzv_conf);
OPTION_SETTER(option_set_run_id);
OPTION_SETTER(option_set_some_text);
OPTION_SETTER(option_set_event_kinds);
OPTION_SETTER(option_set_page_address);
OPTION_SETTER(option_set_local_addr);
OPTION_SETTER(option_set_numa);
OPTION_SETTER(option_set_stdin);
OPTION_SETTER(option_set_fence);
OPTION_SETTER(option_set_failure_grace);
OPTION_SETTER(option_set_hang_timeout);
OPTION_SETTER(option_set_progress_pattern);
OPTION_SETTER(option_set_warm);
OPTION_SETTER(option_set_checkpoint_signal);
OPTION_SETTER(option_set_time_limit);
OPTION_SETTER(option_set_store_auth);
OPTION_SETTER(option_set_streams);
OPTION_SETTER(option_set_rank_filter);
OPTION_SETTER(option_set_size);
OPTION_SETTER(option_set_memory_limit);
OPTION_SETTER(option_set_log_mode);
OPTION_SETTER(option_set_exit_codes);
OPTION_SETTER(option_set_signals);
OPTION_SETTER(option_set_event_handler);
OPTION_SETTER(option_ignore_monitor_interval);
OPTION_SETTER(option_ignore_start_method);
OPTION_SETTER(option_check_logs_specs);

#undef OPTION_SETTER
