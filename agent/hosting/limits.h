/* SPDX-License-Identifier: MIT */
#pragma once

#define OWNER_QUESTIONS_MAX 128 /* to the rendezvous at a time, one for each host */
#define OWNER_CONNS_PER_HOST_MAX 4096   /* that wait for their turn */
#define OWNER_QUESTION_DEADLINE_MS 4500 /* the rendezvous itself answers before */
#define TUNNEL_CONNS_MAX 8192
#define TUNNEL_DEADLINE_MS 10000 /* to reach the store */
