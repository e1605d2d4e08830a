/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_SHOW_NOTIFY_LIMITS_H
#define RENDEZVOUS_SHOW_NOTIFY_LIMITS_H

#define NOTIFY_QUEUE_MAX 256    /* events that wait */
#define NOTIFY_COMMAND_MS 30000 /* that a command may take */
#define NOTIFY_LAST_MS 5000     /* that the end of the program may be delayed */

#endif
