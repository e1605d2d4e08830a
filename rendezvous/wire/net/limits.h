/* SPDX-License-Identifier: MIT */
#pragma once

/* One connection, and one look-up of a name. */
#define CONTROL_OUT_MAX (4u << 20)
#define CONTROL_UNSENT_MAX (64u << 10) /* of that, in the kernel */
#define HELLO_DEADLINE_MS 5000
/* A rendezvous that many join at once answers them in turn. */
#define HANDSHAKE_ANSWER_MS 15000
#define TLS_WRITE_BYTES 16384 /* the longest record */
#define FRAME_DEADLINE_MS 10000
#define SEND_DEADLINE_MS 30000 /* a peer that reads nothing of the data sent to it */
#define HANG_UP_MS 1000        /* for the last answer to arrive */
#define READ_SHARE_BYTES 8192  /* of one connection in one turn */
#define KEEPALIVE_S 60
#define LISTEN_BACKLOG 4096
#define ACCEPT_PAUSE_MS 100   /* while there are no descriptors */
#define ACCEPT_SHARE 64       /* connections in one turn */
#define FIRST_BYTES_SHARE 256 /* connections whose first bytes are read in one turn */
#define ADDRESSES_PER_NAME_MAX 8
#define OWN_ADDRESSES_KNOWN 256 /* whether an address is of this machine */
#define OWN_ADDRESSES_KEPT_MS 1000
