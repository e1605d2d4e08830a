/* SPDX-License-Identifier: MIT */
#pragma once

/* The socket of a crun. */
#define LOCAL_OPEN_AFTER_MS 50    /* of the start, which does not wait for it */
#define LOCAL_CHECK_MS 3000       /* whether socket and record are still there */
#define LOCAL_UNIDENTIFIED_MAX 16 /* connections that have sent nothing */
#define LOCAL_NAMES_MAX 9         /* for one pid, of several pid namespaces */

/* Connections of tools that go on to a rendezvous elsewhere. */
#define LOCAL_RELAYS_MAX 32
#define LOCAL_RELAY_OUT_WAIT (64u << 10) /* while more waits, nothing more is read */
#define LOCAL_RELAY_WAIT_MS 10
#define LOCAL_HELLO_MS 10000
