/* SPDX-License-Identifier: MIT */
#pragma once

#define KEY_FILE_BYTES_MAX 65536
#define KEYS_PER_FILE_MAX 64
#define KEY_FILES_MAX 4096 /* in a folder */

/* links and folders on the way to a key file */
#define KEY_PATH_LINKS_MAX 40

/* a file server that hangs delays one new connection by this time */
#define KEY_REFRESH_WAIT_MS 20
/* and an agent that connects again, which an outdated key would delay for longer */
#define KEY_USE_WAIT_MS 200
/* however many connections come, the file is looked at no more often; at once for a key
 * that is not known, because it may have been added just now */
#define KEY_REFRESH_EVERY_MS 100
#define KEY_REFRESH_UNKNOWN_MS 2
/* looking takes no more than this share of the time, as a divisor */
#define KEY_REFRESH_SHARE 10

#define TLS_HANDSHAKE_BYTES_MAX 4096 /* taken from a peer before it is done */
/* A peer of this project changes its keys every TLS_RECORDS_PER_KEY records: more
 * changes than these, and one for every TLS_RECORDS_PER_UPDATE_MIN records, end the
 * session. */
#define TLS_UPDATES_MAX 32
#define TLS_RECORDS_PER_UPDATE_MIN 4096
/* RFC 8446, 5.5: AES-GCM allows 2^24.5 of the longest records */
#define TLS_RECORDS_PER_KEY (UINT64_C(1) << 23)
