/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/access.h"
#include "rendezvous/common/base/err.h"
#include "rendezvous/common/security/key.h"
#include "rendezvous/common/security/tls.h"

struct key_ring;

/*
 * The keys of a process: those of a key file, the first of which is used and all of
 * which are accepted, or those of a folder of key files (--key-dir), one for each user
 * or team. They lie in memory that is locked, not dumped and not inherited, and are
 * wiped at the end.
 *
 * A separate thread looks whether files have changed: a home directory on a file server
 * that hangs must not stop a rendezvous. It starts at the first look. A changed file
 * that is not valid is reported in the log, and the earlier keys stay in use. All
 * functions may be called by any thread.
 */
struct key_ring *key_ring_open(const char *path, struct err *e) MUST_CHECK;
struct key_ring *key_ring_open_folder(const char *path, struct err *e) MUST_CHECK;
/* Of keys that are in no file; `name` names them in messages. TLS is made ready. */
struct key_ring *key_ring_open_text(const char *name, const char *text,
                                    struct err *e) MUST_CHECK;
/*
 * For a program that is about to connect, or to be connected to: TLS is made ready
 * meanwhile. The ring of the file that key_search finds; `named` as there. *ring is
 * NULL if there is no key, which is an error if one is required.
 */
int key_ring_open_own(const char *named, bool is_required, struct key_ring **ring,
                      struct err *e) MUST_CHECK;
void key_ring_close(struct key_ring *r); /* NULL is fine */

/*
 * Look whether files have changed; call it for each connection and by a timer. Waits
 * KEY_REFRESH_WAIT_MS at most, and looks once in KEY_REFRESH_EVERY_MS. True: since the
 * last call keys have changed, or one has ended, so ask key_ring_has about each
 * connection. No other function takes this answer away.
 */
bool key_ring_refresh(struct key_ring *r);
/* Look at once, however short ago the last time was (SIGHUP). */
void key_ring_reread(struct key_ring *r);

/*
 * For the connecting side: the first key that has not ended and allows `wanted`; if it
 * is an agent's and that is more than wanted, a derived one that allows just that. The
 * caller wipes out. Refreshes. The error says which key is missing.
 */
int key_ring_use(struct key_ring *r, enum access wanted, struct tls_psk *out,
                 struct err *e) MUST_CHECK;

/* For the accepting side, as the `find` of a tls_door, with the ring as arg: the secret
 * of an identity whose key is here and has not ended. */
bool key_ring_find(void *ring, const char *identity, uint8_t secret[TLS_SECRET_BYTES]);

/* Whether key_ring_find still has this identity; if not (its key has been retired, or
 * has ended), its connections end. */
bool key_ring_has(struct key_ring *r, const char *identity);

/* Why key_ring_find refuses it, for the log of the accepting side: "key
 * 9f2c5a1be07d4e83 is not in FILE (retired, or another's)", "... ended on ...". Returns
 * buf. */
char *key_ring_explain(struct key_ring *r, const char *identity, char *buf,
                       size_t size);

/*
 * The owner of jobs that are made with it: with a folder the name of the file that has
 * the key, so that a job outlives the rotation of its user's keys; "" with one file.
 * Returns buf,
 * "" also for an unknown identity.
 */
char *key_ring_owner(struct key_ring *r, const char *identity, char *buf, size_t size);

/*
 * A secret that each holder of an agent's key can compute: HKDF of that key's. key_id
 * names the key, or is "" for the first, and then becomes its id: while a new key comes
 * into use not all nodes have the same first one, so tell the others which it was.
 */
int key_ring_derive(struct key_ring *r, char key_id[KEY_ID_SIZE], const char *label,
                    const void *context, size_t size, uint8_t out[TLS_SECRET_BYTES],
                    struct err *e) MUST_CHECK;

/* Where the keys come from, for messages. */
const char *key_ring_path(const struct key_ring *r);
/* The highest access of any key: a rendezvous needs ACCESS_AGENT. */
enum access key_ring_access(struct key_ring *r);
