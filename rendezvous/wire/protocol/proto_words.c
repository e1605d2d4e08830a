/* SPDX-License-Identifier: MIT */
#include "rendezvous/wire/protocol/proto_words.h"

#include <stdio.h>
#include <string.h>

#include "rendezvous/wire/protocol/proto.h"
#include "rendezvous/wire/protocol/proto_fields.h"

const char *const proto_refusal_names[REFUSED_COUNT] = {
    [REFUSED_NONE] = "none",           [REFUSED_VERSION] = "version",
    [REFUSED_MALFORMED] = "malformed", [REFUSED_CONFIG] = "config",
    [REFUSED_RUN_ID] = "run-id",       [REFUSED_SLOT] = "slot",
    [REFUSED_FULL] = "full",           [REFUSED_NO_SPACE] = "no-space",
    [REFUSED_FENCED] = "fenced",       [REFUSED_ENDED] = "ended",
    [REFUSED_UNKNOWN] = "unknown",     [REFUSED_MIN] = "min",
    [REFUSED_BUSY] = "busy",           [REFUSED_UNFIT] = "unfit",
    [REFUSED_ACCESS] = "access",
};

const char *const proto_failure_kind_names[FAILURE_KIND_COUNT] = {
    [FAILURE_NONE] = "none",   [FAILURE_EXIT] = "exit", [FAILURE_SIGNAL] = "signal",
    [FAILURE_EXEC] = "exec",   [FAILURE_LOST] = "lost", [FAILURE_HANG] = "hang",
    [FAILURE_AGENT] = "agent",
};

const char *const proto_origin_names[FAILURE_ORIGIN_COUNT + 1] = {
    [FAILURE_ORIGIN_OWN] = "own",
    [FAILURE_ORIGIN_PEER] = "peer",
    [FAILURE_ORIGIN_LATER] = "later",
    [FAILURE_ORIGIN_UNKNOWN] = "unknown",
};

const char *const proto_peer_names[PEER_KIND_COUNT] = {
    [PEER_NONE] = "none",
    [PEER_AGENT] = "agent",
    [PEER_CTL] = "ctl",
    [PEER_REPLICA] = "replica",
};

const char *const proto_state_names[JOB_STATE_COUNT + 1] = {
    [JOB_FORMING] = "forming",       [JOB_RUNNING] = "running",
    [JOB_STOPPING] = "stopping",     [JOB_DONE] = "done",
    [JOB_STATE_UNKNOWN] = "unknown",
};

const char *const proto_node_state_names[NODE_STATE_COUNT + 1] = {
    [NODE_WAITING] = "waiting",         [NODE_STARTING] = "starting",
    [NODE_RUNNING] = "running",         [NODE_FINISHED] = "finished",
    [NODE_STOPPING] = "stopping",       [NODE_STOPPED] = "stopped",
    [NODE_LEAVING] = "leaving",         [NODE_SPARE] = "spare",
    [NODE_QUARANTINED] = "quarantined", [NODE_DONE] = "done",
    [NODE_STATE_UNKNOWN] = "unknown",
};

const char *const proto_cause_names[JOB_CAUSE_COUNT + 1] = {
    [JOB_CAUSE_NONE] = "none",   [JOB_CAUSE_FAILURE] = "failure",
    [JOB_CAUSE_LOST] = "lost",   [JOB_CAUSE_SCALE_UP] = "scale-up",
    [JOB_CAUSE_DRAIN] = "drain", [JOB_CAUSE_USER] = "user",
    [JOB_CAUSE_FIRST] = "first", [JOB_CAUSE_UNKNOWN] = "unknown",
};

const char *const proto_reason_names[JOB_REASON_COUNT + 1] = {
    [JOB_REASON_NONE] = "none",
    [JOB_REASON_SUCCESS] = "success",
    [JOB_REASON_FAILURE] = "failure",
    [JOB_REASON_LOST] = "lost",
    [JOB_REASON_NOT_FORMED] = "not-formed",
    [JOB_REASON_USER] = "user",
    [JOB_REASON_RELEASED] = "released",
    [JOB_REASON_UNKNOWN] = "unknown",
};

const char *const proto_scale_names[JOB_SCALE_COUNT + 1] = {
    [JOB_SCALE_NOW] = "now",
    [JOB_SCALE_CHECKPOINT] = "checkpoint",
    [JOB_SCALE_NEVER] = "never",
    [JOB_SCALE_UNKNOWN] = "unknown",
};

const char *const proto_store_auth_names[STORE_AUTH_COUNT + 1] = {
    [STORE_AUTH_AUTO] = "auto",
    [STORE_AUTH_USER] = "user",
    [STORE_AUTH_ADDRESS] = "address",
    [STORE_AUTH_UNKNOWN] = "unknown",
};

const char *const proto_note_names[NOTE_KIND_COUNT + 1] = {
    [NOTE_RANK] = "rank",
    [NOTE_STRAGGLER] = "straggler",
    [NOTE_NAN] = "nan",
    [NOTE_XID] = "xid",
    [NOTE_ECC] = "ecc",
    [NOTE_GPU] = "gpu",
    [NOTE_PREFLIGHT] = "preflight",
    [NOTE_LEFTOVER] = "leftover",
    [NOTE_KIND_UNKNOWN] = "unknown",
};

const char *const proto_stacks_names[STACKS_KIND_COUNT + 1] = {
    [STACKS_PYTHON] = "python",   [STACKS_PAGE] = "page",
    [STACKS_SILENT] = "silent",   [STACKS_ENDED] = "ended",
    [STACKS_MISSING] = "missing", [STACKS_KIND_UNKNOWN] = "unknown",
};

const char *const proto_logs_names[LOGS_KIND_COUNT + 1] = {
    [LOGS_TEXT] = "text",
    [LOGS_PASSED] = "passed",
    [LOGS_NOWHERE] = "nowhere",
    [LOGS_MERGED] = "merged",
    [LOGS_FAILED] = "failed",
    [LOGS_MISSING] = "missing",
    [LOGS_KIND_UNKNOWN] = "unknown",
};

const char *const proto_stream_names[OUTPUT_STREAM_COUNT + 1] = {
    [OUTPUT_BOTH] = "both",
    [OUTPUT_STDOUT] = "stdout",
    [OUTPUT_STDERR] = "stderr",
    [OUTPUT_STREAM_UNKNOWN] = "unknown",
};

const char *proto_refusal_name(enum refusal why)
{
    return proto_refusal_names[why];
}

const char *proto_failure_kind_name(enum failure_kind kind)
{
    return proto_failure_kind_names[kind];
}

const char *proto_state_name(enum job_state state)
{
    return proto_state_names[state];
}

const char *proto_node_state_name(enum node_state state)
{
    return proto_node_state_names[state];
}

const char *proto_cause_name(enum job_cause cause)
{
    return proto_cause_names[cause];
}

const char *proto_reason_name(enum job_reason reason)
{
    return proto_reason_names[reason];
}

const char *proto_scale_name(enum job_scale scale)
{
    return proto_scale_names[scale];
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
    return (enum job_scale)proto_word(proto_scale_names, JOB_SCALE_COUNT, name);
}

const char *proto_stacks_name(enum stacks_kind kind)
{
    return proto_stacks_names[kind];
}

const char *proto_note_name(enum note_kind kind)
{
    return proto_note_names[kind];
}

void proto_keepers_moved(const struct msg_keepers *k, const char *host, char *text,
                         size_t size)
{
    snprintf(text, size, "%s%s%s hosts the rendezvous now", k->lost,
             !*k->lost   ? ""
             : k->silent ? " does not answer; "
                         : " was lost; ",
             host);
}

bool proto_keepers_are_several(const char *endpoints)
{
    const char *second = strchr(endpoints, ',');

    return second && strchr(second + 1, ',');
}
