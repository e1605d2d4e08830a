/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_SCHEDULE_H
#define WORKER_LIB_TRAIN_NET_SCHEDULE_H

/*
 * The learning rate when the fraction `done` of the training is done: it rises to
 * `peak` in the first twentieth, then falls along half a cosine to nearly zero. It
 * depends on samples, not steps, so it does not change with the number of ranks.
 */
float schedule_rate(float peak, double done);

#endif
