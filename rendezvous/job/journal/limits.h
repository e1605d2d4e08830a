/* SPDX-License-Identifier: MIT */
#pragma once

/* Sizes of the journal, and when a snapshot replaces it. */
#define JOURNAL_RECORD_MAX 65536
#define JOURNAL_BATCH_MAX (64u << 20)
#define JOURNAL_SNAPSHOT_BYTES (16u << 20)
#define JOURNAL_RESERVE_BYTES (1u << 20)
