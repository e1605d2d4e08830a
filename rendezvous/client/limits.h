/* SPDX-License-Identifier: MIT */
#pragma once

/* How a client connects: the time until its next try, while one is not answered. It
 * doubles after each. */
#define CONNECT_AGAIN_MS 100
#define CONNECT_TRIES_MAX 4
/* with several addresses: for the next one, after a connection without an answer */
#define CONNECT_ANSWER_MS 500
/* after that time the first connection is the one, whether or not it has answered */
#define CONNECT_RACE_MS 4000

/* An unanswered connection: another server may be there. */
#define FOREIGN_SILENCE_MS 5000
