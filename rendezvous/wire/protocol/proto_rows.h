/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "rendezvous/wire/protocol/proto_fields.h"

/* The rows of the tables of fields, for proto_fields.c and job_settings.c only. */
#define NEED true
#define OPTIONAL false

#define FIELD(kind_, type, member, required_)                                          \
    .name = #member, .kind = kind_, .required = required_,                             \
    .offset = offsetof(struct type, member),                                           \
    .size = sizeof(((struct type *)0)->member)

#define U32(type, member, required, lowest, highest)                                   \
    {                                                                                  \
        FIELD(PROTO_U32, type, member, required), .min = lowest, .max = highest        \
    }
#define ANY_U32(type, member, required) U32(type, member, required, 0, UINT32_MAX)
#define I32(type, member, required, lowest, highest)                                   \
    {                                                                                  \
        FIELD(PROTO_I32, type, member, required), .min = lowest, .max = highest        \
    }
#define U64(type, member, required)                                                    \
    {                                                                                  \
        FIELD(PROTO_U64, type, member, required)                                       \
    }
#define ID(type, member, required)                                                     \
    {                                                                                  \
        FIELD(PROTO_ID, type, member, required)                                        \
    }
#define BOOL(type, member)                                                             \
    {                                                                                  \
        FIELD(PROTO_BOOL, type, member, OPTIONAL)                                      \
    }
#define TEXT(type, member, required)                                                   \
    {                                                                                  \
        FIELD(PROTO_TEXT, type, member, required)                                      \
    }
#define NAME(type, member, required)                                                   \
    {                                                                                  \
        FIELD(PROTO_NAME, type, member, required)                                      \
    }
#define ENUM(type, member, names_, lowest, count)                                      \
    {                                                                                  \
        FIELD(PROTO_ENUM, type, member, NEED), .min = lowest, .max = (count)-1,        \
                                               .names = names_                         \
    }
#define WORD(type, member, required, names_, count)                                    \
    {                                                                                  \
        FIELD(PROTO_WORD, type, member, required), .max = (count)-1, .names = names_   \
    }
#define OBJECT(type, member, required, table)                                          \
    {                                                                                  \
        FIELD(PROTO_OBJECT, type, member, required), .object = &(table)                \
    }
/* A field that a reader of less access is not shown. */
#define SHOWN_TO(access, kind, type, member, required)                                 \
    {                                                                                  \
        FIELD(kind, type, member, required), .max = UINT32_MAX, .least = access        \
    }
#define TABLE(fields)                                                                  \
    {                                                                                  \
        fields, sizeof(fields) / sizeof((fields)[0])                                   \
    }
