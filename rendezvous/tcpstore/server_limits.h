/* SPDX-License-Identifier: MIT */
#pragma once

/* All of one store. */
#define STORE_KEYS_MAX (4u << 20)
#define STORE_BYTES_MAX (1ull << 30)
#define STORE_WAITERS_MAX (4u << 20)
#define STORE_CONNS_MAX 65536
#define STORE_REQUEST_MAX (256u << 20)
#define STORE_HELD_MAX (512u << 20)    /* all requests that have arrived in part */
#define STORE_OUT_MAX (64u << 20)      /* of answers that one client has not read */
#define STORE_ALL_OUT_MAX (128u << 20) /* of those of all clients */
#define STORE_HANDSHAKES_PER_TURN 8
#define STORE_HELLO_DEADLINE_MS 5000
