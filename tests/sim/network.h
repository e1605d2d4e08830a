/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rendezvous/wire/protocol/message.h"

struct trace;
struct sim_world;

/*
 * Connections between machines and the rendezvous, as TCP gives them: frames arrive
 * whole, once and in order, until the connection breaks; then nothing that was under
 * way arrives. Connections do not wait for each other. A path that is cut in one
 * direction holds everything back until it heals. Frames are the real ones: proto's
 * bytes.
 */
struct network;
struct sim_link;
struct sim_parcel; /* a frame, or the end of a connection, to be posted */

enum link_end { LINK_CLIENT, LINK_SERVER };

/* Between one machine and the rendezvous. Embedded by the machine;
 * set it up by hand. */
struct path {
    const char *address; /* of the machine */
    bool local;          /* the rendezvous runs in the same process */
    bool cut[2];         /* in the direction towards that end */
    uint64_t delay_min_us, delay_max_us;
};

struct link_calls {
    void (*opened)(void *arg, struct sim_link *l);
    void (*message)(void *arg, struct sim_link *l, const struct msg *m);
    void (*closed)(void *arg, struct sim_link *l, const char *why);
    uint32_t (*body_max)(void *arg, struct sim_link *l);
    bool (*asleep)(void *arg); /* takes nothing now; network_wake comes later */
};

struct network *network_create(struct sim_world *w, struct trace *t);
void network_destroy(struct network *n);

/* The rendezvous: arg NULL: no program listens. */
void network_listen(struct network *n, const struct link_calls *calls, void *arg);

/* Ends in opened or closed, unless link_close comes first. */
struct sim_link *network_connect(struct network *n, struct path *path, const char *name,
                                 const struct link_calls *calls, void *arg);

/* A path has healed or an end woken up: what waited arrives. */
void network_wake(struct network *n);

void link_send(struct sim_link *l, enum link_end from, const struct msg *m);
struct sim_parcel *link_pack(struct sim_link *l, enum link_end from,
                             const struct msg *m);
void parcel_post(struct sim_parcel *p);
void parcel_drop(struct sim_parcel *p);
struct sim_parcel *parcel_next(const struct sim_parcel *p);
struct sim_parcel **
parcel_link(struct sim_parcel *p); /* where the next in a list goes */

/* In good order: what was sent before still arrives. No call to the end that closes. */
void link_close(struct sim_link *l, enum link_end from);
/* The end is gone, with its program. The other learns it at once, or never (quiet). */
void link_abandon(struct sim_link *l, enum link_end gone, bool quiet);
/* What is under way is lost, and both ends learn of it. */
void link_break(struct sim_link *l);
/* Send the last frame that the client sent again, perhaps forged. */
enum forgery { FORGE_NOTHING, FORGE_EPOCH, FORGE_INSTANCE };
void link_repeat(struct sim_link *l, enum link_end from, enum forgery forgery,
                 const struct id128 *instance);

/* For each connection the server has open. fn may close it. */
void network_each(struct network *n, void (*fn)(struct sim_link *l, void *arg),
                  void *arg);

bool link_is_open(const struct sim_link *l, enum link_end end);
bool link_is_tainted(const struct sim_link *l); /* a frame was repeated on it */
bool link_is_local(const struct sim_link *l);
const char *link_address(const struct sim_link *l);
const char *link_name(const struct sim_link *l);
void link_set_tag(struct sim_link *l, void *tag); /* the server's own */
void *link_tag(const struct sim_link *l);
void *link_client(const struct sim_link *l); /* arg of network_connect */
const struct link_calls *link_client_calls(const struct sim_link *l);
