/* SPDX-License-Identifier: MIT */
/*
 * The settings of a job, on which its nodes must agree but for those that
 * settings_check.c excepts. This one table drives the wire, the journal (append new
 * settings), validation, and the comparison of a JOIN with the job. A new setting takes
 * a field of struct job_config (message.h), a row here, and the row of its flag in
 * launcher/flags/option_table.c.
 */
#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/proto_rows.h"
#include "rendezvous/wire/protocol/proto_words.h"

#define SETTING_OF(...)                                                                \
    .setting = &(const struct proto_setting)                                           \
    {                                                                                  \
        __VA_ARGS__                                                                    \
    }
#define NUMBER_SETTING(member, required_, name_, lowest, highest)                      \
    {                                                                                  \
        FIELD(PROTO_U32, job_config, member, required_),                               \
            .max = UINT32_MAX,                                                         \
            SETTING_OF(.name = name_, .min = lowest, .max = highest)                   \
    }
#define TIME_SETTING(member, required_, name_, lowest, highest)                        \
    {                                                                                  \
        FIELD(PROTO_U32, job_config, member, required_),                               \
            .max = UINT32_MAX,                                                         \
            SETTING_OF(.name = name_, .min = lowest, .max = highest, .is_ms = true)    \
    }
#define BOOL_SETTING(member, name_, no, yes)                                           \
    {                                                                                  \
        FIELD(PROTO_BOOL, job_config, member, OPTIONAL),                               \
            SETTING_OF(.name = name_, .words = { no, yes })                            \
    }
#define TEXT_SETTING(member, name_)                                                    \
    {                                                                                  \
        FIELD(PROTO_TEXT, job_config, member, OPTIONAL), SETTING_OF(.name = name_)     \
    }

const struct proto_field proto_job_config_fields[] = {
    NUMBER_SETTING(min_nodes, NEED, "the smallest number of nodes", 1, NODES_MAX),
    NUMBER_SETTING(max_nodes, NEED, "the largest number of nodes", 1, NODES_MAX),
    NUMBER_SETTING(max_restarts, NEED, "--max-restarts", 0, RESTARTS_MAX),
    TIME_SETTING(lease_ms, NEED, "the lease", LEASE_MS_MIN, LEASE_MS_MAX),
    TIME_SETTING(join_timeout_ms, NEED, "the join timeout", 1, UINT32_MAX),
    TIME_SETTING(last_call_ms, NEED, "the last call", 0, UINT32_MAX),
    TIME_SETTING(shutdown_grace_ms, NEED, "--shutdown-timeout", 0, UINT32_MAX),
    TIME_SETTING(failure_grace_ms, NEED, "--failure-grace", 0, UINT32_MAX),
    TIME_SETTING(restart_min_uptime_ms, OPTIONAL, "--restart-min-uptime", 0,
                 UINT32_MAX),
    TIME_SETTING(restart_backoff_ms, OPTIONAL, "--restart-backoff", 0, UINT32_MAX),
    NUMBER_SETTING(quarantine, OPTIONAL, "quarantine", 0, QUARANTINE_MAX),
    BOOL(job_config, limit_spares),
    NUMBER_SETTING(spares, OPTIONAL, "--spares", 0, NODES_MAX),
    BOOL_SETTING(strict_fence, "--fence", "grace", "strict"),
    { FIELD(PROTO_WORD, job_config, scale, NEED), .max = JOB_SCALE_COUNT - 1,
      .names = proto_scale_names, SETTING_OF(.name = "the scale-up policy") },
    TEXT_SETTING(no_restart_on, "--no-restart-on"),
    TEXT_SETTING(program, "the program"),
    TEXT(job_config, arguments_hash, OPTIONAL),
    BOOL_SETTING(preflight, "--preflight", "not given", "given"),
    { FIELD(PROTO_WORD, job_config, store_auth, OPTIONAL), .max = STORE_AUTH_COUNT - 1,
      .names = proto_store_auth_names, SETTING_OF(.name = "--store-auth") },
    BOOL_SETTING(store_tunnel, "--store-tunnel", "not given", "given"),
    TEXT(job_config, user, OPTIONAL),
    TEXT(job_config, uid, OPTIONAL),
    TEXT(job_config, batch_job, OPTIONAL),
    NUMBER_SETTING(max_no_progress, OPTIONAL, "--max-no-progress", 0, RESTARTS_MAX),
};
const struct proto_table proto_job_config = TABLE(proto_job_config_fields);
