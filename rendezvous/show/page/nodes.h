/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_PAGE_NODES_H
#define RENDEZVOUS_SHOW_PAGE_NODES_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is to be said of a node first: the worst that holds, in this order. */
enum node_sign {
    NODE_SIGN_LOST, /* not connected, in the middle of the job */
    NODE_SIGN_QUARANTINED,
    NODE_SIGN_XID,
    NODE_SIGN_BEHIND,
    NODE_SIGN_SLOW,
    NODE_SIGN_UNKNOWN,
    NODE_SIGN_LEAVING,
    NODE_SIGN_STOPPING,
    NODE_SIGN_STARTING,
    NODE_SIGN_WAITING,
    NODE_SIGN_SPARE,
    NODE_SIGN_RUNNING,
    NODE_SIGN_FINISHED,
    NODE_SIGN_COUNT
};

/* A sign is a character, a word and a class of the style: colour alone says nothing. */
struct node_sign_row {
    const char *sign, *word, *class;
};
extern const struct node_sign_row node_signs[NODE_SIGN_COUNT];

struct node_list {
    struct node_view {
        const cJSON *json;
        enum node_sign sign;
        uint64_t step;   /* 0: it does not take part in the epoch, or tells none */
        double rate;     /* of those that take part, NaN: not known */
        uint64_t behind; /* steps, if it is worth a word */
    } * node;
    size_t count;
    size_t signs[NODE_SIGN_COUNT]; /* how many nodes have each */
};

void node_list_init(struct node_list *list, const cJSON *job);
void node_list_fini(struct node_list *list);

#endif
