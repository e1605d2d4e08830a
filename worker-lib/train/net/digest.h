/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_DIGEST_H
#define WORKER_LIB_TRAIN_NET_DIGEST_H

#include "worker-lib/train/net/net.h"

#define DIGEST_TEXT_SIZE 65

/* SHA-256 of all parameters in their order, as hexadecimal digits. */
void digest_parameters(const struct net *n, char text[DIGEST_TEXT_SIZE]);

#endif
