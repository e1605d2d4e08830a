/* SPDX-License-Identifier: MIT */
#pragma once

#define NOTIFY_QUEUE_MAX 256    /* events that wait */
#define NOTIFY_COMMAND_MS 30000 /* that a command may take */
#define NOTIFY_LAST_MS 5000     /* that the end of the program may be delayed */
