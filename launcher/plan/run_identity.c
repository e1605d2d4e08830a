/* SPDX-License-Identifier: MIT */
#include "launcher/plan/run_identity.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "rendezvous/common/base/id128.h"
#include "rendezvous/common/base/proc.h"

/* A job of one local node gets a new UUID each time, as with torchrun. */
static void draw_run_id(struct config *c)
{
    struct id128 id = id128_random();
    char hex[ID128_HEX_SIZE];

    id.byte[6] = (uint8_t)((id.byte[6] & 0x0f) | 0x40); /* a random UUID, version 4 */
    id.byte[8] = (uint8_t)((id.byte[8] & 0x3f) | 0x80);
    id128_format(&id, hex);
    snprintf(c->run_id, sizeof(c->run_id), "%.8s-%.4s-%.4s-%.4s-%s", hex, hex + 8,
             hex + 12, hex + 16, hex + 20);
}

void run_identity_fill(struct config *c, const char *batch_job)
{
    struct job_config *j = &c->job;

    if (c->rendezvous == CONFIG_LOCAL) {
        if (!*c->run_id)
            draw_run_id(c);
        return;
    }
    snprintf(j->batch_job, sizeof(j->batch_job), "%s", batch_job);
    snprintf(j->uid, sizeof(j->uid), "%u", (unsigned)geteuid());
    if (!proc_user_name(geteuid(), j->user, sizeof(j->user)))
        *j->user = '\0';
    if (!*c->run_id)
        snprintf(c->run_id, sizeof(c->run_id), RUN_ID_DEFAULT);
}

/* -- arguments -------------------------------------------------------------------- */

static bool is_flag_of_node(const char *word, size_t length)
{
    static const char *const names[] = { "node-rank",  "machine-rank", "node-id",
                                         "node-index", "node-name",    "hostname" };
    char name[16] = "";

    for (; length > 0 && *word == '-'; word++)
        length--;
    if (length >= sizeof(name))
        return false;
    for (size_t i = 0; i < length; i++)
        name[i] = (char)(word[i] == '_' ? '-' : word[i]);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

bool run_identity_hash_word(unsigned long *crc, const char *word, bool value,
                            const char *host)
{
    size_t length = strcspn(word, "="), host_length = strlen(host);
    bool is_flag = *word == '-' && is_flag_of_node(word, length);
    const char *found;

    if (value && *word != '-') {
        word = "";
    } else if (is_flag && word[length] == '=') {
        *crc = crc32_z(*crc, (const Bytef *)word, length + 1);
        word = "";
        is_flag = false;
    }
    while (host_length > 0 && (found = strstr(word, host)) != NULL) {
        *crc = crc32_z(*crc, (const Bytef *)word, (size_t)(found - word));
        word = found + host_length;
    }
    *crc = crc32_z(*crc, (const Bytef *)word, strlen(word) + 1);
    return is_flag;
}
