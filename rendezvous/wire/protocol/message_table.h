/* SPDX-License-Identifier: MIT */
/*
 * Every message of the control protocol, a row each; numbers are never used again. To
 * be included where REQUEST and ANSWER, or MESSAGE for both, say what a row becomes.
 *
 *   REQUEST(number, NAME, body, phase, access, handler)   to the rendezvous
 *   ANSWER(number, NAME, body, event)                     from it
 *
 * body: the member of struct msg, a struct msg_BODY; its fields are the table of that
 * name in proto_fields.c. phase: in which the rendezvous takes it. access: what its
 * sender needs. handler: the registry's. event: what it is to an agent (session.c).
 * REQUEST_AS and ANSWER_AS: the body is declared already.
 */
#ifdef MESSAGE
#define REQUEST MESSAGE
#define ANSWER MESSAGE
#endif
#ifndef REQUEST_AS
#define REQUEST_AS REQUEST
#endif
#ifndef ANSWER_AS
#define ANSWER_AS ANSWER
#endif
#ifndef REQUEST
#define REQUEST(...)
#endif
#ifndef ANSWER
#define ANSWER(...)
#endif

/* any peer to the rendezvous */
REQUEST(1, HELLO, hello, NEW, VIEW, registry_on_hello)

/* agent to the rendezvous */
REQUEST(10, JOIN, join, AGENT, AGENT, registry_on_join)
REQUEST(11, RESUME, resume, AGENT, AGENT, registry_on_resume)
REQUEST(12, HEARTBEAT, heartbeat, JOINED, AGENT, registry_on_heartbeat)
REQUEST(13, STORE_READY, store_ready, JOINED, AGENT, registry_on_report)
REQUEST_AS(14, FAILED, failed, JOINED, AGENT, registry_on_report)
REQUEST_AS(15, FINISHED, nothing, JOINED, AGENT, registry_on_report)
REQUEST(16, STOPPED, stopped, JOINED, AGENT, registry_on_report)
REQUEST_AS(17, CHECKPOINTED, nothing, JOINED, AGENT, registry_on_report)
REQUEST(18, LEAVE, leave, JOINED, AGENT, registry_on_report)
REQUEST(19, END, end, JOINED, AGENT, registry_on_report)
REQUEST_AS(20, BYE, nothing, JOINED, AGENT, registry_on_bye)
REQUEST(21, NOTE, note, JOINED, AGENT, registry_on_report)
REQUEST(22, STACKS, stacks, JOINED, AGENT, registry_on_report)
REQUEST(23, ASK_OWNERS, ask_owners, JOINED, AGENT, registry_on_report)
REQUEST(24, OWNERS, owners, JOINED, AGENT, registry_on_report)
REQUEST(25, LOGS, logs, JOINED, AGENT, registry_on_report)
REQUEST(26, KEEPING, keeping, JOINED, AGENT, registry_on_report)
REQUEST(27, ELSEWHERE, elsewhere, AGENT, AGENT, registry_on_elsewhere)
REQUEST(28, CLAIM, claim, AGENT, AGENT, registry_on_claim)
REQUEST(29, FLUSHED, flushed, JOINED, AGENT, registry_on_report)

/* crunctl to the rendezvous */
REQUEST(30, STATUS, status, CTL, VIEW, registry_on_status)
REQUEST(31, EVENTS, events, CTL, VIEW, registry_on_events)
REQUEST(32, STOP_JOB, stop_job, CTL, OPERATE, registry_on_stop_job)
REQUEST(33, DRAIN, drain, CTL, OPERATE, registry_on_drain)
REQUEST(34, SHOW_STACKS, show_stacks, CTL, OPERATE, registry_on_show_stacks)
REQUEST(35, SHOW_LOGS, ask_logs, CTL, OPERATE, registry_on_show_logs)
REQUEST(36, SHOW_HISTORY, show_history, CTL, VIEW, registry_on_show_history)
REQUEST(37, ASK_PAGE, ask_page, CTL, VIEW, registry_on_ask_page)
REQUEST(39, FLUSH_JOB, flush_job, CTL, OPERATE, registry_on_flush_job)

/* one replica to another */
REQUEST(38, REPLICATE, replicate, REPLICA, AGENT, registry_on_replicate)

/* the rendezvous to any peer */
ANSWER(50, WELCOME, welcome, WELCOME)
ANSWER(51, REFUSED, refused, REFUSED)
ANSWER(52, ACK, ack, ACK)
ANSWER(53, CLAIMED, claimed, STRANGE)

/* the rendezvous to an agent */
ANSWER(60, JOINED, joined, JOINED)
ANSWER(61, BEAT, beat, BEAT)
ANSWER(62, START, start, ORDER)
ANSWER(63, MEMBERS, members, ORDER)
ANSWER(64, STOP, stop, ORDER)
ANSWER(65, ASK_CHECKPOINT, ask_checkpoint, ORDER)
ANSWER(66, DONE, done, ORDER)
ANSWER(67, NOTICE, notice, NOTICE)
ANSWER(68, ASK_STACKS, ask_stacks, NOTICE)
ANSWER_AS(69, FIND_OWNERS, ask_owners, ORDER)
ANSWER_AS(70, OWNERS_FOUND, owners, ORDER)
ANSWER_AS(71, ASK_LOGS, ask_logs, NOTICE)
ANSWER(72, MEMORY_AT, memory_at, ORDER)
ANSWER(73, KEEP, keep, NOTICE)
ANSWER(74, KEEPERS, keepers, NOTICE)
ANSWER(75, FLUSH, flush, NOTICE)

/* the rendezvous to crunctl */
ANSWER(80, JOB_STATUS, job_status, STRANGE)
ANSWER(81, NODE_STATUS, node_status, STRANGE)
ANSWER(82, EVENT, event, STRANGE)
ANSWER(83, END_OF_LIST, end_of_list, STRANGE)
ANSWER_AS(84, RANK_STACKS, stacks, STRANGE)
ANSWER_AS(85, RANK_LOGS, logs, STRANGE)
ANSWER(86, HISTORY, history, STRANGE)
ANSWER(87, PAGE, page, STRANGE)

#undef MESSAGE
#undef REQUEST
#undef REQUEST_AS
#undef ANSWER
#undef ANSWER_AS
