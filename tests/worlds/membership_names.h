/* SPDX-License-Identifier: MIT */
#ifndef TESTS_WORLDS_MEMBERSHIP_NAMES_H
#define TESTS_WORLDS_MEMBERSHIP_NAMES_H

#include "rendezvous/job/membership/membership.h"

const char *membership_event_name(enum membership_event_type t);

#endif
