/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/registry/job_records.h"
#include "rendezvous/wire/protocol/proto_fields.h"

/* Shared by job_records.c, which writes records, and job_records_read.c. */

/* Numbers on disk: never reused. */
enum record_type {
    RECORD_JOB = 1,
    RECORD_STATE,
    RECORD_FAILURE,
    RECORD_NODE,
    RECORD_DROP = 6,
    RECORD_END,
    RECORD_SLOT,
    RECORD_PAST,
    RECORD_OWNER,
    RECORD_PLACE,
    RECORD_RENDEZVOUS,
    RECORD_CLAIM,
    RECORD_ENDED_BY,
    RECORD_TYPE_COUNT
};

extern const struct proto_table job_record_state, job_record_owner;
extern const struct proto_table job_record_node, job_record_place;

/* A journal of any version holds so many fields of a state, of the settings and of a
 * failure. Later ones keep their default if the record is shorter; those of a failure
 * follow the text of other failures. */
#define STATE_FIELDS_ALWAYS 22
#define CONFIG_FIELDS_ALWAYS 18
#define FAILURE_FIELDS_ALWAYS 15
