/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/protocol/message.h"

/*
 * The words of the control protocol: how the values of an enum are written on the wire
 * and on the screen. Within the program only the enums are used.
 */
extern const char *const proto_refusal_names[REFUSED_COUNT];
extern const char *const proto_failure_kind_names[FAILURE_KIND_COUNT];
extern const char *const proto_origin_names[FAILURE_ORIGIN_COUNT + 1];
extern const char *const proto_peer_names[PEER_KIND_COUNT];
extern const char *const proto_state_names[JOB_STATE_COUNT + 1];
extern const char *const proto_node_state_names[NODE_STATE_COUNT + 1];
extern const char *const proto_cause_names[JOB_CAUSE_COUNT + 1];
extern const char *const proto_reason_names[JOB_REASON_COUNT + 1];
extern const char *const proto_scale_names[JOB_SCALE_COUNT + 1];
extern const char *const proto_store_auth_names[STORE_AUTH_COUNT + 1];
extern const char *const proto_note_names[NOTE_KIND_COUNT + 1];
extern const char *const proto_stacks_names[STACKS_KIND_COUNT + 1];
extern const char *const proto_logs_names[LOGS_KIND_COUNT + 1];
extern const char *const proto_stream_names[OUTPUT_STREAM_COUNT + 1];
