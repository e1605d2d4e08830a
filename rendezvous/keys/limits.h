/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_KEYS_LIMITS_H
#define RENDEZVOUS_KEYS_LIMITS_H

#define KEY_FILE_BYTES_MAX 65536
#define KEYS_PER_FILE_MAX 64
#define KEY_FILES_MAX 4096 /* in a folder */

/* links and folders on the way to a key file */
#define KEY_PATH_LINKS_MAX 40

/* a file server that hangs delays a new connection by so much, once */
#define KEY_REFRESH_WAIT_MS 20
/* a stranger who connects again and again makes the file looked at no more often */
#define KEY_REFRESH_EVERY_MS 100

#endif
