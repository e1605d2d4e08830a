/* SPDX-License-Identifier: MIT */
#ifndef LAUNCHER_OPTION_SETTERS_H
#define LAUNCHER_OPTION_SETTERS_H

#include "rendezvous/base/opt.h"

/*
 * The setters of crun's flags: each checks one value by itself and puts it into struct
 * options. Those named "take" are for flags that have no effect here.
 */
#define VALUE_SETTER(name)                                                             \
    int name(void *options, const struct opt *opt, const char *value, struct err *e)

VALUE_SETTER(value_set_nnodes);
VALUE_SETTER(value_set_nproc);
VALUE_SETTER(value_set_backend);
VALUE_SETTER(value_set_rdzv_conf);
VALUE_SETTER(value_set_run_id);
VALUE_SETTER(value_set_some_text);
VALUE_SETTER(value_set_local_addr);
VALUE_SETTER(value_set_numa);
VALUE_SETTER(value_set_stdin);
VALUE_SETTER(value_set_fence);
VALUE_SETTER(value_set_hang_timeout);
VALUE_SETTER(value_set_checkpoint_signal);
VALUE_SETTER(value_set_streams);
VALUE_SETTER(value_set_rank_filter);
VALUE_SETTER(value_set_exit_codes);
VALUE_SETTER(value_set_signals);
VALUE_SETTER(value_set_event_handler);
VALUE_SETTER(value_take_monitor_interval);
VALUE_SETTER(value_take_start_method);
VALUE_SETTER(value_take_logs_specs);
VALUE_SETTER(value_set_completion);

#undef VALUE_SETTER

#endif
