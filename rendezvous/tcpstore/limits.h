/* SPDX-License-Identifier: MIT */
#pragma once

/* One request to the store: PyTorch's own limits. */
#define STORE_KEY_MAX 8192
#define STORE_VALUE_MAX (8u << 20)
#define STORE_KEYS_PER_OP_MAX (128u * 1024)
