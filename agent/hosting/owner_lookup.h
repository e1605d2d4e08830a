/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/wire/protocol/message.h"

/* Looks the sockets of a question up on this machine: the answer lists those of this
 * process's user and of root. */
void owner_lookup_answer(const struct msg_ask_owners *question,
                         struct msg_owners *answer);
