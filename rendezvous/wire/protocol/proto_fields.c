/* SPDX-License-Identifier: MIT */
/*
 * The tables of the control protocol. A field has the same name on the wire as in
 * message.h. A message outside these bounds is malformed and closes the connection.
 * Mistakes of a user (the configuration in a JOIN) have no bounds here: the rendezvous
 * refuses them with a helpful text.
 */
#include "rendezvous/wire/protocol/proto_fields.h"

#include "rendezvous/wire/protocol/message.h"
#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_rows.h"
#include "rendezvous/wire/protocol/proto_words.h"

#define RANKS_MAX ((int64_t)NODES_MAX * WORKERS_PER_NODE_MAX)

/* -- any peer to the rendezvous ------------------------------------------------ */

/* Versions come first: see decode_hello. */
static const struct proto_field hello[] = {
    U32(msg_hello, version_min, NEED, 1, UINT32_MAX),
    U32(msg_hello, version_max, NEED, 1, UINT32_MAX),
    ENUM(msg_hello, role, proto_peer_names, PEER_AGENT, PEER_KIND_COUNT),
    TEXT(msg_hello, software, OPTIONAL),
    BOOL(msg_hello, keepers),
    BOOL(msg_hello, flush),
};

/* -- agent to the rendezvous --------------------------------------------------- */

static const struct proto_field join[] = {
    NAME(msg_join, run_id, NEED),
    ID(msg_join, incarnation, NEED),
    NAME(msg_join, host, NEED),
    NAME(msg_join, address, OPTIONAL),
    ANY_U32(msg_join, pid, NEED),
    ANY_U32(msg_join, workers, NEED),
    I32(msg_join, node_rank, NEED, -1, INT32_MAX),
    TEXT(msg_join, containment, OPTIONAL),
    TEXT(msg_join, role, OPTIONAL),
    OBJECT(msg_join, config, NEED, proto_job_config),
    TEXT(msg_join, unfit, OPTIONAL),
    U32(msg_join, memory_port, OPTIONAL, 0, 65535),
};

static const struct proto_field resume[] = {
    NAME(msg_resume, run_id, NEED),
    ID(msg_resume, incarnation, NEED),
    ANY_U32(msg_resume, node, NEED),
    U32(msg_resume, memory_port, OPTIONAL, 0, 65535),
    TEXT(msg_resume, memory, OPTIONAL),
};

static const struct proto_field gpus[] = {
    U32(msg_gpus, count, NEED, 1, UINT32_MAX),
    I32(msg_gpus, percent, OPTIONAL, -1, 100),
    ANY_U32(msg_gpus, used_mib, OPTIONAL),
    ANY_U32(msg_gpus, total_mib, OPTIONAL),
    ANY_U32(msg_gpus, celsius, OPTIONAL),
    ANY_U32(msg_gpus, watts, OPTIONAL),
    TEXT(msg_gpus, each, OPTIONAL),
};
static const struct proto_table gpus_table = TABLE(gpus);

static const struct proto_field memory[] = {
    U64(msg_memory, step, OPTIONAL),       U64(msg_memory, copied, OPTIONAL),
    U64(msg_memory, restored, OPTIONAL),   U64(msg_memory, bytes, OPTIONAL),
    ANY_U32(msg_memory, age_ms, OPTIONAL),
};
static const struct proto_table memory_table = TABLE(memory);

static const struct proto_field heartbeat[] = {
    U64(msg_heartbeat, step, OPTIONAL),
    TEXT(msg_heartbeat, steps_per_s, OPTIONAL),
    TEXT(msg_heartbeat, loss, OPTIONAL),
    TEXT(msg_heartbeat, note, OPTIONAL),
    TEXT(msg_heartbeat, containment, OPTIONAL),
    ANY_U32(msg_heartbeat, silent_ms, OPTIONAL),
    U64(msg_heartbeat, first_step, OPTIONAL),
    ANY_U32(msg_heartbeat, first_ms, OPTIONAL),
    ANY_U32(msg_heartbeat, reached_ms, OPTIONAL),
    OBJECT(msg_heartbeat, gpus, OPTIONAL, gpus_table),
    U64(msg_heartbeat, steps, OPTIONAL),
    U32(msg_heartbeat, busy, OPTIONAL, 0, 1000),
    U32(msg_heartbeat, usual_busy, OPTIONAL, 0, 1000),
    ANY_U32(msg_heartbeat, xid, OPTIONAL),
    ANY_U32(msg_heartbeat, xids, OPTIONAL),
    ANY_U32(msg_heartbeat, checkpoint_ms, OPTIONAL),
    OBJECT(msg_heartbeat, memory, OPTIONAL, memory_table),
};
static const struct proto_table heartbeat_table = TABLE(heartbeat);

static const struct proto_field store_ready[] = {
    NAME(msg_store_ready, address, OPTIONAL),
    U32(msg_store_ready, port, NEED, 1, 65535),
    TEXT(msg_store_ready, free_ports, OPTIONAL),
};

static const struct proto_field failed[] = {
    ENUM(failure, kind, proto_failure_kind_names, FAILURE_EXIT, FAILURE_KIND_COUNT),
    ANY_U32(failure, rank, OPTIONAL),
    ANY_U32(failure, local_rank, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_U32, failure, pid, OPTIONAL),
    I32(failure, code, OPTIONAL, 0, 255),
    BOOL(failure, core_dumped),
    BOOL(failure, out_of_memory),
    BOOL(failure, final),
    U64(failure, at_ms, OPTIONAL),
    U64(failure, wall_ms, OPTIONAL),
    U64(failure, ran_ms, OPTIONAL),
    NAME(failure, host, OPTIONAL),
    TEXT(failure, what, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TAIL, failure, said, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TEXT, failure, log, OPTIONAL),
    WORD(failure, origin, OPTIONAL, proto_origin_names, FAILURE_ORIGIN_COUNT),
    ANY_U32(failure, age_ms, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TEXT, failure, error, OPTIONAL),
    ANY_U32(failure, still_ms, OPTIONAL),
    ANY_U32(failure, succeeded, OPTIONAL),
    ANY_U32(failure, succeeded_rank, OPTIONAL),
    BOOL(failure, again),
};
const struct proto_table proto_failure = TABLE(failed);

static const struct proto_field stopped[] = {
    U64(msg_stopped, step, OPTIONAL),
    U64(msg_stopped, first_step, OPTIONAL),
    TEXT(msg_stopped, memory, OPTIONAL),
};

static const struct proto_field leave[] = {
    TEXT(msg_leave, reason, OPTIONAL),
    I32(msg_leave, exit_code, NEED, 1, 255),
    BOOL(msg_leave, now),
    BOOL(msg_leave, checkpoint),
};

static const struct proto_field end[] = {
    TEXT(msg_end, reason, OPTIONAL),
    I32(msg_end, exit_code, NEED, 1, 255),
    BOOL(msg_end, now),
    BOOL(msg_end, checkpoint),
    ANY_U32(msg_end, within_ms, OPTIONAL),
};

static const struct proto_field flushed[] = {
    U64(msg_flushed, ask, OPTIONAL),   TEXT(msg_flushed, memory, OPTIONAL),
    BOOL(msg_flushed, failed),         BOOL(msg_flushed, in_files),
    TEXT(msg_flushed, text, OPTIONAL),
};

static const struct proto_field keeping[] = {
    U64(msg_keeping, id, NEED),
    U32(msg_keeping, port, OPTIONAL, 0, 65535),
};

static const struct proto_field claim[] = {
    U64(msg_claim, pair, NEED),
    U64(msg_claim, self, NEED),
};

static const struct proto_field claimed[] = {
    U64(msg_claimed, holder, NEED),
};

static const struct proto_field elsewhere[] = {
    NAME(msg_elsewhere, run_id, NEED),
    TEXT(msg_elsewhere, endpoints, NEED),
    TEXT(msg_elsewhere, arguments_hash, OPTIONAL),
};

static const struct proto_field replicate[] = {
    BOOL(msg_replicate, last),
    TEXT(msg_replicate, text, NEED),
};

static const struct proto_field note[] = {
    WORD(msg_note, kind, NEED, proto_note_names, NOTE_KIND_COUNT),
    TEXT(msg_note, text, NEED),
};

/* RANK_STACKS has the same fields. */
static const struct proto_field stacks[] = {
    U64(msg_stacks, ask, OPTIONAL),
    BOOL(msg_stacks, last),
    WORD(msg_stacks, kind, OPTIONAL, proto_stacks_names, STACKS_KIND_COUNT),
    BOOL(msg_stacks, waits),
    NAME(msg_stacks, host, OPTIONAL),
    TEXT(msg_stacks, ranks, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_U32, msg_stacks, pid, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TEXT, msg_stacks, log, OPTIONAL),
    TEXT(msg_stacks, brief, OPTIONAL),
    TEXT(msg_stacks, threads, OPTIONAL),
};

/* RANK_LOGS has the same fields. */
static const struct proto_field logs[] = {
    U64(msg_logs, ask, OPTIONAL),
    BOOL(msg_logs, last),
    WORD(msg_logs, kind, OPTIONAL, proto_logs_names, LOGS_KIND_COUNT),
    NAME(msg_logs, host, OPTIONAL),
    ANY_U32(msg_logs, rank, OPTIONAL),
    WORD(msg_logs, stream, OPTIONAL, proto_stream_names, OUTPUT_STREAM_COUNT),
    U64(msg_logs, of_epoch, OPTIONAL),
    U64(msg_logs, offset, OPTIONAL),
    U64(msg_logs, next, OPTIONAL),
    U64(msg_logs, size, OPTIONAL),
    BOOL(msg_logs, ended),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TEXT, msg_logs, where, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_TEXT, msg_logs, text, OPTIONAL),
};

/* FIND_OWNERS has the same fields. */
static const struct proto_field ask_owners[] = {
    U64(msg_ask_owners, ask, OPTIONAL),
    NAME(msg_ask_owners, host, NEED),
    BOOL(msg_ask_owners, rendezvous),
    NAME(msg_ask_owners, store, NEED),
    U32(msg_ask_owners, store_port, NEED, 1, 65535),
    TEXT(msg_ask_owners, ports, NEED),
};

/* OWNERS_FOUND has the same fields. */
static const struct proto_field owners[] = {
    U64(msg_owners, ask, OPTIONAL),
    TEXT(msg_owners, ports, OPTIONAL),
    BOOL(msg_owners, last),
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

static const struct proto_field show_history[] = {
    NAME(msg_show_history, run_id, OPTIONAL),
    U32(msg_show_history, from, OPTIONAL, 0, INT32_MAX),
};

static const struct proto_field stop_job[] = {
    NAME(msg_stop_job, run_id, OPTIONAL),
    BOOL(msg_stop_job, now),
    TEXT(msg_stop_job, user, OPTIONAL),
};

static const struct proto_field drain[] = {
    NAME(msg_drain, run_id, OPTIONAL),
    NAME(msg_drain, node, NEED),
    TEXT(msg_drain, user, OPTIONAL),
};

static const struct proto_field flush_job[] = {
    NAME(msg_flush_job, run_id, OPTIONAL),
};

static const struct proto_field show_stacks[] = {
    NAME(msg_show_stacks, run_id, OPTIONAL),
    TEXT(msg_show_stacks, ranks, OPTIONAL),
};

/* ASK_LOGS has the same fields. */
static const struct proto_field ask_logs[] = {
    U64(msg_ask_logs, ask, OPTIONAL),
    NAME(msg_ask_logs, run_id, OPTIONAL),
    U64(msg_ask_logs, of_epoch, OPTIONAL),
    WORD(msg_ask_logs, stream, OPTIONAL, proto_stream_names, OUTPUT_STREAM_COUNT),
    TEXT(msg_ask_logs, ranks, OPTIONAL),
    TEXT(msg_ask_logs, offsets, OPTIONAL),
    ANY_U32(msg_ask_logs, tail, OPTIONAL),
    U32(msg_ask_logs, wait_ms, OPTIONAL, 0, LOGS_WAIT_MS_MAX),
    U64(msg_ask_logs, follower, OPTIONAL),
};

/* -- the rendezvous to any peer ------------------------------------------------ */

static const struct proto_field ask_page[] = {
    NAME(msg_ask_page, run_id, OPTIONAL),
};

static const struct proto_field page[] = {
    TEXT(msg_page, url, NEED),
};

static const struct proto_field welcome[] = {
    U32(msg_welcome, version, NEED, 1, UINT32_MAX),
    TEXT(msg_welcome, software, OPTIONAL),
    BOOL(msg_welcome, durable),
    BOOL(msg_welcome, daemon),
    BOOL(msg_welcome, witness),
    BOOL(msg_welcome, flush),
    ID(msg_welcome, rendezvous, OPTIONAL),
    TEXT(msg_welcome, confinement, OPTIONAL),
};

static const struct proto_field refused[] = {
    ENUM(msg_refused, why, proto_refusal_names, REFUSED_VERSION, REFUSED_COUNT),
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
    TEXT(msg_start, free_ports, OPTIONAL),
    WORD(msg_start, cause, OPTIONAL, proto_cause_names, JOB_CAUSE_COUNT),
    U64(msg_start, past_step, OPTIONAL),
    NAME(msg_start, host, OPTIONAL),
    NAME(msg_start, memory, OPTIONAL),
    TEXT(msg_start, memory_neighbour, OPTIONAL),
};

static const struct proto_field memory_at[] = {
    TEXT(msg_memory_at, holders, NEED),
};

static const struct proto_field members[] = {
    TEXT(msg_members, addresses, NEED),
};

static const struct proto_field stop[] = {
    ANY_U32(msg_stop, grace_ms, NEED),
    BOOL(msg_stop, last),
    BOOL(msg_stop, hang),
    WORD(msg_stop, cause, OPTIONAL, proto_cause_names, JOB_CAUSE_COUNT),
    TEXT(msg_stop, text, OPTIONAL),
};

static const struct proto_field ask_checkpoint[] = {
    ANY_U32(msg_ask_checkpoint, within_ms, NEED),
    WORD(msg_ask_checkpoint, cause, OPTIONAL, proto_cause_names, JOB_CAUSE_COUNT),
};

static const struct proto_field ask_stacks[] = {
    U64(msg_ask_stacks, ask, OPTIONAL),
    TEXT(msg_ask_stacks, ranks, OPTIONAL),
};

static const struct proto_field flush[] = {
    U64(msg_flush, ask, NEED),
    BOOL(msg_flush, hold),
    NAME(msg_flush, memory, OPTIONAL),
};

static const struct proto_field keep[] = {
    U64(msg_keep, id, NEED),
    U32(msg_keep, election_ms, NEED, 1, LEASE_MS_MAX),
    TEXT(msg_keep, witness, OPTIONAL),
    ID(msg_keep, witness_id, OPTIONAL),
    BOOL(msg_keep, alone),
};

static const struct proto_field keepers[] = {
    TEXT(msg_keepers, endpoints, NEED),
    TEXT(msg_keepers, hosts, OPTIONAL),
    BOOL(msg_keepers, safe),
    BOOL(msg_keepers, anew),
    NAME(msg_keepers, lost, OPTIONAL),
    BOOL(msg_keepers, silent),
};

static const struct proto_field notice[] = {
    TEXT(msg_notice, text, NEED),
    NAME(msg_notice, kind, OPTIONAL),
};

static const struct proto_field done[] = {
    I32(msg_done, exit_code, NEED, 0, 255),
    WORD(msg_done, reason, NEED, proto_reason_names, JOB_REASON_COUNT),
    TEXT(msg_done, text, OPTIONAL),
    ANY_U32(msg_done, restarts, NEED),
    ANY_U32(msg_done, max_restarts, NEED),
    OBJECT(msg_done, failure, OPTIONAL, proto_failure),
    TEXT(msg_done, afterwards, OPTIONAL),
    BOOL(msg_done, reports),
    NAME(msg_done, memory, OPTIONAL),
};

/* -- the rendezvous to crunctl ------------------------------------------------- */

static const struct proto_field job_time[] = {
    U64(msg_job_time, productive_ms, OPTIONAL),
    U64(msg_job_time, detect_ms, OPTIONAL),
    U64(msg_job_time, stop_ms, OPTIONAL),
    U64(msg_job_time, form_ms, OPTIONAL),
    U64(msg_job_time, start_ms, OPTIONAL),
    U64(msg_job_time, first_step_ms, OPTIONAL),
    U64(msg_job_time, rework_ms, OPTIONAL),
    U64(msg_job_time, steps_again, OPTIONAL),
    U64(msg_job_time, unplaced, OPTIONAL),
};
static const struct proto_table job_time_table = TABLE(job_time);

static const struct proto_field job_status[] = {
    NAME(msg_job_status, run_id, NEED),
    WORD(msg_job_status, state, NEED, proto_state_names, JOB_STATE_COUNT),
    WORD(msg_job_status, cause, OPTIONAL, proto_cause_names, JOB_CAUSE_COUNT),
    WORD(msg_job_status, reason, OPTIONAL, proto_reason_names, JOB_REASON_COUNT),
    TEXT(msg_job_status, program, OPTIONAL),
    SHOWN_TO(ACCESS_AGENT, PROTO_ID, msg_job_status, instance, NEED),
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
    TEXT(msg_job_status, keepers, OPTIONAL),
    BOOL(msg_job_status, kept_safely),
    OBJECT(msg_job_status, failure, OPTIONAL, proto_failure),
    OBJECT(msg_job_status, time, OPTIONAL, job_time_table),
    OBJECT(msg_job_status, last_restart, OPTIONAL, job_time_table),
};

static const struct proto_field node_status[] = {
    NAME(msg_node_status, run_id, NEED),
    NAME(msg_node_status, host, NEED),
    SHOWN_TO(ACCESS_OPERATE, PROTO_NAME, msg_node_status, address, OPTIONAL),
    SHOWN_TO(ACCESS_OPERATE, PROTO_U32, msg_node_status, pid, NEED),
    WORD(msg_node_status, state, NEED, proto_node_state_names, NODE_STATE_COUNT),
    BOOL(msg_node_status, connected),
    I32(msg_node_status, slot, NEED, -1, NODES_MAX - 1),
    I32(msg_node_status, group_rank, NEED, -1, NODES_MAX - 1),
    ANY_U32(msg_node_status, first_rank, NEED),
    ANY_U32(msg_node_status, workers, NEED),
    U64(msg_node_status, heard_ms, OPTIONAL),
    TEXT(msg_node_status, containment, OPTIONAL),
    OBJECT(msg_node_status, progress, OPTIONAL, heartbeat_table),
    ANY_U32(msg_node_status, slowness, OPTIONAL),
};

static const struct proto_field event[] = {
    U64(msg_event, number, OPTIONAL),
    U64(msg_event, wall_ms, OPTIONAL),
    NAME(msg_event, run_id, OPTIONAL),
    U64(msg_event, epoch, OPTIONAL),
    NAME(msg_event, kind, NEED),
    NAME(msg_event, host, OPTIONAL),
    TEXT(msg_event, text, OPTIONAL),
    U64(msg_event, monotonic_ms, OPTIONAL),
    SHOWN_TO(ACCESS_AGENT, PROTO_ID, msg_event, instance, OPTIONAL),
    BOOL(msg_event, of_rank),
    ANY_U32(msg_event, rank, OPTIONAL),
    TEXT(msg_event, name, OPTIONAL),
};

static const struct proto_field history[] = {
    TEXT(msg_history, text, NEED),
};

static const struct proto_field end_of_list[] = {
    U64(msg_end_of_list, next, OPTIONAL),
};

/* -- all of them --------------------------------------------------------------- */

static const struct proto_field nothing[] = {};

const struct proto_message proto_messages[MSG_TYPE_MAX] = {
#define REQUEST(number, name, body, phase, access, handler)                            \
    [MSG_##name] = { #name, 1u << PROTO_##phase, ACCESS_##access, TABLE(body) },
#define ANSWER(number, name, body, event)                                              \
    [MSG_##name] = { #name, 0, ACCESS_NONE, TABLE(body) },
#include "rendezvous/wire/protocol/message_table.h"
};
