/* SPDX-License-Identifier: MIT */
#pragma once

#include "rendezvous/job/membership/membership.h"

const char *membership_event_name(enum membership_event_type t);
