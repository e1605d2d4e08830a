/* SPDX-License-Identifier: MIT */
#ifndef WORKER_LIB_TRAIN_NET_SCHEDULE_H
#define WORKER_LIB_TRAIN_NET_SCHEDULE_H

/*
 * The learning rate where `done`, from 0 to 1, of the training is behind us: it rises
 * to `peak` in the first twentieth, then falls along half a cosine to nearly nothing.
 * What counts is the part of the samples seen, not steps: so it does not change with
 * the number of ranks.
 */
float schedule_rate(float peak, double done);

#endif
