/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * The name of a job for people: its run id, or, if a program has chosen that, the name
 * of its program without ".py".
 */
#define JOB_NAME_SIZE 256

/* Returns buf. */
char *job_name(const char *run_id, const char *program, char *buf, size_t size);

/* Whether nobody has typed it: "none", a UUID, or what job_name_make_id has made. */
bool job_name_is_generated(const char *run_id);

/* A short run id of random hex digits (RUN_ID of a launcher), 9 bytes with its NUL, of
 * at least 8 random ones. */
void job_name_make_id(const char *random_hex, char id[9]);
