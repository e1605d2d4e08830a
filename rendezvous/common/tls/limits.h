/* SPDX-License-Identifier: MIT */
#pragma once

#define TLS_HANDSHAKE_BYTES_MAX 4096 /* taken from a peer before it is done */
/* A peer of this project changes its keys every TLS_RECORDS_PER_KEY records: more
 * changes than these, and one for every TLS_RECORDS_PER_UPDATE_MIN records, end the
 * session. */
#define TLS_UPDATES_MAX 32
#define TLS_RECORDS_PER_UPDATE_MIN 4096
/* RFC 8446, 5.5: AES-GCM allows 2^24.5 of the longest records */
#define TLS_RECORDS_PER_KEY (UINT64_C(1) << 23)
