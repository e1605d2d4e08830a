/* SPDX-License-Identifier: MIT */
#ifndef RENDEZVOUS_NOTIFY_LIMITS_H
#define RENDEZVOUS_NOTIFY_LIMITS_H

#define NOTIFY_QUEUE_MAX 256    /* events that wait, of each flag */
#define NOTIFY_COMMAND_MS 30000 /* that a command may take */
#define NOTIFY_REQUEST_MS 10000 /* that a request to a server may take */
#define NOTIFY_TRIES 4          /* of one event, if the server fails */
#define NOTIFY_RETRY_MS 1000    /* before the second try; thrice that before the next */
#define NOTIFY_LAST_RETRY_MS 300 /* when the program ends */
#define NOTIFY_LAST_MS 5000      /* that the end of the program may be delayed */

#endif
