/* SPDX-License-Identifier: MIT */
/*
 * The tables of the control protocol. A field has the same name on the wire as in
 * message.h. A message outside these bounds is malformed and closes the connection.
 * What a user may get wrong (the configuration in a JOIN) has no bounds here: the
 * rendezvous refuses it with a text that helps.
 */
#include "rendezvous/protocol/proto_fields.h"

#include <stddef.h>
#include <string.h>

#include "rendezvous/protocol/message.h"
#include "rendezvous/protocol/proto.h"

#define NEED true
#define OPTIONAL false
#define RANKS_MAX ((int64_t)NODES_MAX * WORKERS_PER_NODE_MAX)

#define FIELD(kind_, type, member, required_)                                          \
    .name = #member, .kind = kind_, .required = required_,                             \
    .offset = offsetof(struct type, member),                                           \
    .size = sizeof(((struct type *)0)->member)

#define U32(type, member, required, lowest, highest)                                   \
    {                                                                                  \
        FIELD(PROTO_U32, type, member, required), .min = lowest, .max = highest        \
    }
#define ANY_U32(type, member, required) U32(type, member, required, 0, UINT32_MAX)
#define I32(type, member, required, lowest, highest)                                   \
    {                                                                                  \
        FIELD(PROTO_I32, type, member, required), .min = lowest, .max = highest        \
    }
#define ANY_I32(type, member, required)                                                \
    I32(type, member, required, INT32_MIN, INT32_MAX)
#define U64(type, member, required)                                                    \
    {                                                                                  \
        FIELD(PROTO_U64, type, member, required)                                       \
    }
#define ID(type, member)                                                               \
    {                                                                                  \
        FIELD(PROTO_ID, type, member, NEED)                                            \
    }
#define BOOL(type, member)                                                             \
    {                                                                                  \
        FIELD(PROTO_BOOL, type, member, OPTIONAL)                                      \
    }
#define TEXT(type, member, required)                                                   \
    {                                                                                  \
        FIELD(PROTO_TEXT, type, member, required)                                      \
    }
#define TAIL(type, member, required)                                                   \
    {                                                                                  \
        FIELD(PROTO_TAIL, type, member, required)                                      \
    }
#define NAME(type, member, required)                                                   \
    {                                                                                  \
        FIELD(PROTO_NAME, type, member, required)                                      \
    }
#define ENUM(type, member, names_, lowest, count)                                      \
    {                                                                                  \
        FIELD(PROTO_ENUM, type, member, NEED), .min = lowest, .max = (count)-1,        \
                                               .names = names_                         \
    }
#define WORD(type, member, required, names_, count)                                    \
    {                                                                                  \
        FIELD(PROTO_WORD, type, member, required), .max = (count)-1, .names = names_   \
    }
#define OBJECT(type, member, required, table)                                          \
    {                                                                                  \
        FIELD(PROTO_OBJECT, type, member, required), .object = &(table)                \
    }
/* Settings of a job: the name that users know, and the bounds. */
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
#define BOOL_SETTING(member, name_, no, yes)                                           \
    {                                                                                  \
        FIELD(PROTO_BOOL, job_config, member, OPTIONAL),                               \
            SETTING_OF(.name = name_, .words = { no, yes })                            \
    }
#define TEXT_SETTING(member, name_)                                                    \
    {                                                                                  \
        FIELD(PROTO_TEXT, job_config, member, OPTIONAL), SETTING_OF(.name = name_)     \
    }
#define TABLE(fields)                                                                  \
    {                                                                                  \
        fields, sizeof(fields) / sizeof((fields)[0])                                   \
    }

/* -- names --------------------------------------------------------------------- */

static const char *const refusal_names[REFUSED_COUNT] = {
    [REFUSED_NONE] = "none",           [REFUSED_VERSION] = "version",
    [REFUSED_MALFORMED] = "malformed", [REFUSED_CONFIG] = "config",
    [REFUSED_RUN_ID] = "run-id",       [REFUSED_SLOT] = "slot",
    [REFUSED_FULL] = "full",           [REFUSED_NO_SPACE] = "no-space",
    [REFUSED_FENCED] = "fenced",       [REFUSED_ENDED] = "ended",
    [REFUSED_UNKNOWN] = "unknown",     [REFUSED_MIN] = "min",
    [REFUSED_BUSY] = "busy",           [REFUSED_UNFIT] = "unfit",
};

static const char *const failure_kind_names[FAILURE_KIND_COUNT] = {
    [FAILURE_NONE] = "none",   [FAILURE_EXIT] = "exit", [FAILURE_SIGNAL] = "signal",
    [FAILURE_EXEC] = "exec",   [FAILURE_LOST] = "lost", [FAILURE_HANG] = "hang",
    [FAILURE_AGENT] = "agent",
};

static const char *const role_names[PEER_ROLE_COUNT] = {
    [PEER_NONE] = "none",
    [PEER_AGENT] = "agent",
    [PEER_CTL] = "ctl",
};

static const char *const state_names[JOB_STATE_COUNT + 1] = {
    [JOB_FORMING] = "forming",       [JOB_RUNNING] = "running",
    [JOB_STOPPING] = "stopping",     [JOB_DONE] = "done",
    [JOB_STATE_UNKNOWN] = "unknown",
};

static const char *const node_state_names[NODE_STATE_COUNT + 1] = {
    [NODE_WAITING] = "waiting",         [NODE_STARTING] = "starting",
    [NODE_RUNNING] = "running",         [NODE_FINISHED] = "finished",
    [NODE_STOPPING] = "stopping",       [NODE_STOPPED] = "stopped",
    [NODE_LEAVING] = "leaving",         [NODE_SPARE] = "spare",
    [NODE_QUARANTINED] = "quarantined", [NODE_DONE] = "done",
    [NODE_STATE_UNKNOWN] = "unknown",
};

static const char *const cause_names[JOB_CAUSE_COUNT + 1] = {
    [JOB_CAUSE_NONE] = "none",   [JOB_CAUSE_FAILURE] = "failure",
    [JOB_CAUSE_LOST] = "lost",   [JOB_CAUSE_SCALE_UP] = "scale-up",
    [JOB_CAUSE_DRAIN] = "drain", [JOB_CAUSE_USER] = "user",
    [JOB_CAUSE_FIRST] = "first", [JOB_CAUSE_UNKNOWN] = "unknown",
};

static const char *const reason_names[JOB_REASON_COUNT + 1] = {
    [JOB_REASON_NONE] = "none",
    [JOB_REASON_SUCCESS] = "success",
    [JOB_REASON_FAILURE] = "failure",
    [JOB_REASON_LOST] = "lost",
    [JOB_REASON_NOT_FORMED] = "not-formed",
    [JOB_REASON_USER] = "user",
    [JOB_REASON_RELEASED] = "released",
    [JOB_REASON_UNKNOWN] = "unknown",
};

static const char *const scale_names[JOB_SCALE_COUNT + 1] = {
    [JOB_SCALE_NOW] = "now",
    [JOB_SCALE_CHECKPOINT] = "checkpoint",
    [JOB_SCALE_NEVER] = "never",
    [JOB_SCALE_UNKNOWN] = "unknown",
};

static const char *const note_names[NOTE_KIND_COUNT + 1] = {
    [NOTE_RANK] = "rank",
    [NOTE_STRAGGLER] = "straggler",
    [NOTE_XID] = "xid",
    [NOTE_ECC] = "ecc",
    [NOTE_GPU] = "gpu",
    [NOTE_PREFLIGHT] = "preflight",
    [NOTE_KIND_UNKNOWN] = "unknown",
};

const char *proto_refusal_name(enum refusal why)
{
    return refusal_names[why];
}

const char *proto_failure_kind_name(enum failure_kind kind)
{
    return failure_kind_names[kind];
}

const char *proto_state_name(enum job_state state)
{
    return state_names[state];
}

const char *proto_node_state_name(enum node_state state)
{
    return node_state_names[state];
}

const char *proto_cause_name(enum job_cause cause)
{
    return cause_names[cause];
}

const char *proto_reason_name(enum job_reason reason)
{
    return reason_names[reason];
}

const char *proto_scale_name(enum job_scale scale)
{
    return scale_names[scale];
}

unsigned proto_word(const char *const *names, unsigned count, const char *word)
{
    unsigned i = 0;

    while (i < count && strcmp(names[i], word) != 0)
        i++;
    return i;
}

enum job_scale proto_scale(const char *name)
{
    return (enum job_scale)proto_word(scale_names, JOB_SCALE_COUNT, name);
}

const char *proto_note_name(enum note_kind kind)
{
    return note_names[kind];
}

/* -- any peer to the rendezvous ------------------------------------------------ */

/* Versions come first: see decode_hello. */
static const struct proto_field hello[] = {
    U32(msg_hello, version_min, NEED, 1, UINT32_MAX),
    U32(msg_hello, version_max, NEED, 1, UINT32_MAX),
    ENUM(msg_hello, role, role_names, PEER_AGENT, PEER_ROLE_COUNT),
    TEXT(msg_hello, software, OPTIONAL),
};

/* -- agent to the rendezvous --------------------------------------------------- */

/*
 * All that the rendezvous knows of a setting: this table drives the wire, the journal
 * (append new settings), validation, and the comparison of a JOIN with the job.
 */
const struct proto_field proto_job_config_fields[] = {
    NUMBER_SETTING(min_nodes, NEED, "the smallest number of nodes", 1, NODES_MAX),
    NUMBER_SETTING(max_nodes, NEED, "the largest number of nodes", 1, NODES_MAX),
    NUMBER_SETTING(max_restarts, NEED, "--max-restarts", 0, RESTARTS_MAX),
    NUMBER_SETTING(lease_ms, NEED, "the lease (ms)", LEASE_MS_MIN, LEASE_MS_MAX),
    NUMBER_SETTING(join_timeout_ms, NEED, "the join timeout (ms)", 1, UINT32_MAX),
    NUMBER_SETTING(last_call_ms, NEED, "the last call (ms)", 0, UINT32_MAX),
    NUMBER_SETTING(shutdown_grace_ms, NEED, "--shutdown-timeout (ms)", 0, UINT32_MAX),
    NUMBER_SETTING(failure_grace_ms, NEED, "--failure-grace (ms)", 0, UINT32_MAX),
    NUMBER_SETTING(restart_min_uptime_ms, OPTIONAL, "--restart-min-uptime (ms)", 0,
                   UINT32_MAX),
    NUMBER_SETTING(restart_backoff_ms, OPTIONAL, "--restart-backoff (ms)", 0,
                   UINT32_MAX),
    NUMBER_SETTING(quarantine, OPTIONAL, "quarantine", 0, QUARANTINE_MAX),
    BOOL(job_config, limit_spares),
    NUMBER_SETTING(spares, OPTIONAL, "--spares", 0, NODES_MAX),
    BOOL_SETTING(strict_fence, "--fence", "grace", "strict"),
    { FIELD(PROTO_WORD, job_config, scale, NEED), .max = JOB_SCALE_COUNT - 1,
      .names = scale_names, SETTING_OF(.name = "the scale-up policy") },
    TEXT_SETTING(no_restart_on, "--no-restart-on"),
    TEXT_SETTING(program, "the program"),
    TEXT(job_config, arguments_hash, OPTIONAL),
    BOOL_SETTING(preflight, "--preflight", "not given", "given"),
};
const struct proto_table proto_job_config = TABLE(proto_job_config_fields);

static const struct proto_field join[] = {
    NAME(msg_join, run_id, NEED),
    ID(msg_join, incarnation),
    NAME(msg_join, host, NEED),
    NAME(msg_join, address, OPTIONAL),
    ANY_U32(msg_join, pid, NEED),
    ANY_U32(msg_join, workers, NEED),
    I32(msg_join, node_rank, NEED, -1, INT32_MAX),
    TEXT(msg_join, containment, OPTIONAL),
    TEXT(msg_join, role, OPTIONAL),
    OBJECT(msg_join, config, NEED, proto_job_config),
    TEXT(msg_join, unfit, OPTIONAL),
};

static const struct proto_field resume[] = {
    NAME(msg_resume, run_id, NEED),
    ID(msg_resume, incarnation),
    ANY_U32(msg_resume, node, NEED),
};

static const struct proto_field gpus[] = {
    U32(msg_gpus, count, NEED, 1, UINT32_MAX),
    I32(msg_gpus, percent, OPTIONAL, -1, 100),
    ANY_U32(msg_gpus, used_mib, OPTIONAL),
    ANY_U32(msg_gpus, total_mib, OPTIONAL),
    ANY_U32(msg_gpus, celsius, OPTIONAL),
    ANY_U32(msg_gpus, watts, OPTIONAL),
};
static const struct proto_table gpus_table = TABLE(gpus);

static const struct proto_field heartbeat[] = {
    U64(msg_heartbeat, step, OPTIONAL),
    TEXT(msg_heartbeat, steps_per_s, OPTIONAL),
    TEXT(msg_heartbeat, loss, OPTIONAL),
    TEXT(msg_heartbeat, note, OPTIONAL),
    TEXT(msg_heartbeat, containment, OPTIONAL),
    OBJECT(msg_heartbeat, gpus, OPTIONAL, gpus_table),
};
static const struct proto_table heartbeat_table = TABLE(heartbeat);

static const struct proto_field store_ready[] = {
    NAME(msg_store_ready, address, OPTIONAL),
    U32(msg_store_ready, port, NEED, 1, 65535),
};

static const struct proto_field failure[] = {
    ENUM(failure, kind, failure_kind_names, FAILURE_EXIT, FAILURE_KIND_COUNT),
    ANY_U32(failure, rank, OPTIONAL),
    ANY_U32(failure, local_rank, OPTIONAL),
    ANY_U32(failure, pid, OPTIONAL),
    ANY_I32(failure, code, OPTIONAL),
    BOOL(failure, core_dumped),
    BOOL(failure, out_of_memory),
    BOOL(failure, final),
    U64(failure, at_ms, OPTIONAL),
    U64(failure, wall_ms, OPTIONAL),
    U64(failure, ran_ms, OPTIONAL),
    NAME(failure, host, OPTIONAL),
    TEXT(failure, what, OPTIONAL),
    TAIL(failure, said, OPTIONAL),
    TEXT(failure, log, OPTIONAL),
};
const struct proto_table proto_failure = TABLE(failure);

static const struct proto_field leave[] = {
    TEXT(msg_leave, reason, OPTIONAL),
    I32(msg_leave, exit_code, NEED, 1, 255),
    BOOL(msg_leave, now),
};

static const struct proto_field end[] = {
    TEXT(msg_end, reason, OPTIONAL),
    I32(msg_end, exit_code, NEED, 1, 255),
    BOOL(msg_end, now),
};

static const struct proto_field note[] = {
    WORD(msg_note, kind, NEED, note_names, NOTE_KIND_COUNT),
    TEXT(msg_note, text, NEED),
};

/* -- crunctl to the rendezvous ------------------------------------------------- */

static const struct proto_field status[] = {
    NAME(msg_status, run_id, OPTIONAL),
    U32(msg_status, from, OPTIONAL, 0, INT32_MAX),
};

static const struct proto_field events[] = {
    NAME(msg_events, run_id, OPTIONAL),
    U64(msg_events, since, OPTIONAL),
    BOOL(msg_events, follow),
};

static const struct proto_field stop_job[] = {
    NAME(msg_stop_job, run_id, OPTIONAL),
    BOOL(msg_stop_job, now),
};

static const struct proto_field drain[] = {
    NAME(msg_drain, run_id, OPTIONAL),
    NAME(msg_drain, node, NEED),
};

/* -- the rendezvous to any peer ------------------------------------------------ */

static const struct proto_field welcome[] = {
    U32(msg_welcome, version, NEED, 1, UINT32_MAX),
    TEXT(msg_welcome, software, OPTIONAL),
    BOOL(msg_welcome, durable),
};

static const struct proto_field refused[] = {
    ENUM(msg_refused, why, refusal_names, REFUSED_VERSION, REFUSED_COUNT),
    BOOL(msg_refused, retry),
    TEXT(msg_refused, text, OPTIONAL),
};

static const struct proto_field ack[] = {
    TEXT(msg_ack, text, OPTIONAL),
};

/* -- the rendezvous to an agent ------------------------------------------------ */

static const struct proto_field joined[] = {
    ANY_U32(msg_joined, node, NEED),
    I32(msg_joined, slot, NEED, -1, NODES_MAX - 1),
    BOOL(msg_joined, spare),
    U32(msg_joined, lease_ms, NEED, LEASE_MS_MIN, LEASE_MS_MAX),
    NAME(msg_joined, host, OPTIONAL),
};

static const struct proto_field beat[] = {
    BOOL(msg_beat, waiting),
    ANY_U32(msg_beat, present, OPTIONAL),
    ANY_U32(msg_beat, wanted, OPTIONAL),
    U64(msg_beat, left_ms, OPTIONAL),
    TEXT(msg_beat, missing, OPTIONAL),
    TEXT(msg_beat, refused, OPTIONAL),
};

static const struct proto_field start[] = {
    U32(msg_start, group_rank, NEED, 0, NODES_MAX - 1),
    U32(msg_start, group_size, NEED, 1, NODES_MAX),
    U32(msg_start, first_rank, NEED, 0, RANKS_MAX - 1),
    U32(msg_start, world_size, NEED, 1, RANKS_MAX),
    U32(msg_start, workers, NEED, 1, WORKERS_PER_NODE_MAX),
    U32(msg_start, role_first_rank, OPTIONAL, 0, RANKS_MAX - 1),
    U32(msg_start, role_world_size, OPTIONAL, 0, RANKS_MAX),
    U32(msg_start, slot, NEED, 0, NODES_MAX - 1),
    U32(msg_start, restarts, NEED, 0, RESTARTS_MAX),
    U32(msg_start, max_restarts, NEED, 0, RESTARTS_MAX),
    BOOL(msg_start, host_store),
    NAME(msg_start, address, OPTIONAL),
    U32(msg_start, port, OPTIONAL, 0, 65535),
    WORD(msg_start, cause, OPTIONAL, cause_names, JOB_CAUSE_COUNT),
};

static const struct proto_field members[] = {
    TEXT(msg_members, addresses, NEED),
};

static const struct proto_field stop[] = {
    ANY_U32(msg_stop, grace_ms, NEED),
    BOOL(msg_stop, last),
    BOOL(msg_stop, hang),
    WORD(msg_stop, cause, OPTIONAL, cause_names, JOB_CAUSE_COUNT),
    TEXT(msg_stop, text, OPTIONAL),
};

static const struct proto_field ask_checkpoint[] = {
    ANY_U32(msg_ask_checkpoint, within_ms, NEED),
    WORD(msg_ask_checkpoint, cause, OPTIONAL, cause_names, JOB_CAUSE_COUNT),
};

static const struct proto_field notice[] = {
    TEXT(msg_notice, text, NEED),
};

static const struct proto_field done[] = {
    I32(msg_done, exit_code, NEED, 0, 255),
    WORD(msg_done, reason, NEED, reason_names, JOB_REASON_COUNT),
    TEXT(msg_done, text, OPTIONAL),
    ANY_U32(msg_done, restarts, NEED),
    ANY_U32(msg_done, max_restarts, NEED),
    OBJECT(msg_done, failure, OPTIONAL, proto_failure),
    TEXT(msg_done, afterwards, OPTIONAL),
};

/* -- the rendezvous to crunctl ------------------------------------------------- */

static const struct proto_field job_status[] = {
    NAME(msg_job_status, run_id, NEED),
    WORD(msg_job_status, state, NEED, state_names, JOB_STATE_COUNT),
    WORD(msg_job_status, cause, OPTIONAL, cause_names, JOB_CAUSE_COUNT),
    WORD(msg_job_status, reason, OPTIONAL, reason_names, JOB_REASON_COUNT),
    TEXT(msg_job_status, program, OPTIONAL),
    ID(msg_job_status, instance),
    U64(msg_job_status, epoch, OPTIONAL),
    ANY_U32(msg_job_status, nodes, NEED),
    ANY_U32(msg_job_status, spares, NEED),
    ANY_U32(msg_job_status, workers, NEED),
    ANY_U32(msg_job_status, min_nodes, NEED),
    ANY_U32(msg_job_status, max_nodes, NEED),
    ANY_U32(msg_job_status, restarts, NEED),
    ANY_U32(msg_job_status, max_restarts, NEED),
    I32(msg_job_status, exit_code, NEED, 0, 255),
    U64(msg_job_status, age_ms, OPTIONAL),
    U64(msg_job_status, state_ms, OPTIONAL),
    TEXT(msg_job_status, text, OPTIONAL),
    TEXT(msg_job_status, notice, OPTIONAL),
    OBJECT(msg_job_status, failure, OPTIONAL, proto_failure),
};

static const struct proto_field node_status[] = {
    NAME(msg_node_status, run_id, NEED),
    NAME(msg_node_status, host, NEED),
    NAME(msg_node_status, address, OPTIONAL),
    ANY_U32(msg_node_status, pid, NEED),
    WORD(msg_node_status, state, NEED, node_state_names, NODE_STATE_COUNT),
    BOOL(msg_node_status, connected),
    I32(msg_node_status, slot, NEED, -1, NODES_MAX - 1),
    I32(msg_node_status, group_rank, NEED, -1, NODES_MAX - 1),
    ANY_U32(msg_node_status, first_rank, NEED),
    ANY_U32(msg_node_status, workers, NEED),
    U64(msg_node_status, heard_ms, OPTIONAL),
    TEXT(msg_node_status, containment, OPTIONAL),
    OBJECT(msg_node_status, progress, OPTIONAL, heartbeat_table),
};

static const struct proto_field event[] = {
    U64(msg_event, number, OPTIONAL),  U64(msg_event, wall_ms, OPTIONAL),
    NAME(msg_event, run_id, OPTIONAL), U64(msg_event, epoch, OPTIONAL),
    NAME(msg_event, kind, NEED),       NAME(msg_event, host, OPTIONAL),
    TEXT(msg_event, text, OPTIONAL),
};

static const struct proto_field end_of_list[] = {
    U64(msg_end_of_list, next, OPTIONAL),
};

/* -- all of them --------------------------------------------------------------- */

/* The phases in which a connection may send the message. */
#define FROM_NEW (1u << PROTO_NEW)
#define FROM_AGENT (1u << PROTO_AGENT)
#define FROM_JOINED (1u << PROTO_JOINED)
#define FROM_CTL (1u << PROTO_CTL)
#define TO_PEERS 0

#define MESSAGE(name, from, fields)                                                    \
    {                                                                                  \
        name, from, TABLE(fields)                                                      \
    }
#define EMPTY(name, from)                                                              \
    {                                                                                  \
        name, from,                                                                    \
        {                                                                              \
            NULL, 0                                                                    \
        }                                                                              \
    }

const struct proto_message proto_messages[MSG_TYPE_MAX] = {
    [MSG_HELLO] = MESSAGE("HELLO", FROM_NEW, hello),
    [MSG_JOIN] = MESSAGE("JOIN", FROM_AGENT, join),
    [MSG_RESUME] = MESSAGE("RESUME", FROM_AGENT, resume),
    [MSG_HEARTBEAT] = MESSAGE("HEARTBEAT", FROM_JOINED, heartbeat),
    [MSG_STORE_READY] = MESSAGE("STORE_READY", FROM_JOINED, store_ready),
    [MSG_FAILED] = MESSAGE("FAILED", FROM_JOINED, failure),
    [MSG_FINISHED] = EMPTY("FINISHED", FROM_JOINED),
    [MSG_STOPPED] = EMPTY("STOPPED", FROM_JOINED),
    [MSG_CHECKPOINTED] = EMPTY("CHECKPOINTED", FROM_JOINED),
    [MSG_LEAVE] = MESSAGE("LEAVE", FROM_JOINED, leave),
    [MSG_END] = MESSAGE("END", FROM_JOINED, end),
    [MSG_NOTE] = MESSAGE("NOTE", FROM_JOINED, note),
    [MSG_BYE] = EMPTY("BYE", FROM_JOINED),
    [MSG_STATUS] = MESSAGE("STATUS", FROM_CTL, status),
    [MSG_EVENTS] = MESSAGE("EVENTS", FROM_CTL, events),
    [MSG_STOP_JOB] = MESSAGE("STOP_JOB", FROM_CTL, stop_job),
    [MSG_DRAIN] = MESSAGE("DRAIN", FROM_CTL, drain),
    [MSG_WELCOME] = MESSAGE("WELCOME", TO_PEERS, welcome),
    [MSG_REFUSED] = MESSAGE("REFUSED", TO_PEERS, refused),
    [MSG_ACK] = MESSAGE("ACK", TO_PEERS, ack),
    [MSG_JOINED] = MESSAGE("JOINED", TO_PEERS, joined),
    [MSG_BEAT] = MESSAGE("BEAT", TO_PEERS, beat),
    [MSG_START] = MESSAGE("START", TO_PEERS, start),
    [MSG_MEMBERS] = MESSAGE("MEMBERS", TO_PEERS, members),
    [MSG_STOP] = MESSAGE("STOP", TO_PEERS, stop),
    [MSG_ASK_CHECKPOINT] = MESSAGE("ASK_CHECKPOINT", TO_PEERS, ask_checkpoint),
    [MSG_DONE] = MESSAGE("DONE", TO_PEERS, done),
    [MSG_NOTICE] = MESSAGE("NOTICE", TO_PEERS, notice),
    [MSG_JOB_STATUS] = MESSAGE("JOB_STATUS", TO_PEERS, job_status),
    [MSG_NODE_STATUS] = MESSAGE("NODE_STATUS", TO_PEERS, node_status),
    [MSG_EVENT] = MESSAGE("EVENT", TO_PEERS, event),
    [MSG_END_OF_LIST] = MESSAGE("END_OF_LIST", TO_PEERS, end_of_list),
};
