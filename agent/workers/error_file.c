/* SPDX-License-Identifier: MIT */
/* The file TORCHELASTIC_ERROR_FILE: a worker's, and crun's own. */
#include "agent/workers/failure.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/job/registry/exit_code.h"

#define ERROR_FILE_MAX_BYTES (1 << 20)

/* The whole file as text, or NULL. Does not follow a symbolic link. */
static char *read_error_file(const char *path)
{
    int fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    char *text;

    if (fd < 0)
        return NULL;
    text = xmalloc(ERROR_FILE_MAX_BYTES + 1);
    fd_read_all(fd, text, ERROR_FILE_MAX_BYTES + 1);
    close(fd);
    return text;
}

uint64_t failure_error_file_time(const char *path)
{
    struct stat st;

    if (!*path || lstat(path, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    return (uint64_t)st.st_mtim.tv_sec * 1000 + (uint64_t)st.st_mtim.tv_nsec / 1000000;
}

static const char *get_json_text(const cJSON *o, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));

    return text ? text : "";
}

/* The end of a long text matters most: cuts the front, at a line. */
static void copy_end(char *out, size_t size, const char *text)
{
    size_t len = strlen(text);
    const char *start = len < size ? text : text + len - (size - 1);
    const char *line = start == text ? start : strchr(start, '\n');

    snprintf(out, size, "%s", line && line > text && line[1] ? line + 1 : start);
}

/* Either form: {"message": {"message": ..., "extraInfo": ...}} or {"message": ...}. */
static bool read_message(const cJSON *root, struct error_file *t)
{
    const cJSON *message = cJSON_GetObjectItemCaseSensitive(root, "message");
    const cJSON *time = cJSON_GetObjectItemCaseSensitive(root, "timestamp");
    const cJSON *extra;
    const char *error;

    if (cJSON_IsString(message)) {
        copy_end(t->text, sizeof(t->text), message->valuestring);
        t->time_ms = cJSON_IsNumber(time) ? (uint64_t)(time->valuedouble * 1000) : 0;
        return true;
    }
    if (!cJSON_IsObject(message))
        return false;
    extra = cJSON_GetObjectItemCaseSensitive(message, "extraInfo");
    t->time_ms = strtoull(get_json_text(extra, "timestamp"), NULL, 10) * 1000;
    error = get_json_text(message, "message");
    snprintf(t->message, sizeof(t->message), "%.*s", (int)strcspn(error, "\n"), error);
    copy_end(t->text, sizeof(t->text),
             *get_json_text(extra, "py_callstack")
                 ? get_json_text(extra, "py_callstack")
                 : error);
    return true;
}

static void read_verdict(const cJSON *root, struct error_file *file)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, PREFLIGHT_KEY);
    const cJSON *verdict = cJSON_GetObjectItemCaseSensitive(o, PREFLIGHT_VERDICT_KEY);
    const cJSON *errnum = cJSON_GetObjectItemCaseSensitive(o, PREFLIGHT_ERRNO_KEY);

    if (!cJSON_IsNumber(verdict))
        return;
    if (verdict->valueint == PREFLIGHT_UNFIT) {
        file->verdict = PREFLIGHT_UNFIT;
    } else if (verdict->valueint == PREFLIGHT_NOT_EXECUTED && cJSON_IsNumber(errnum)) {
        file->verdict = PREFLIGHT_NOT_EXECUTED;
        file->exec_errno = errnum->valueint;
    }
}

/* The time in the file has whole seconds; that of the file itself may be another
 * machine's. */
static void refine_time(const char *path, struct error_file *file)
{
    uint64_t written = failure_error_file_time(path);

    if (file->time_ms <= written && written < file->time_ms + 2000)
        file->time_ms = written;
}

bool failure_read_error_file(const char *path, struct error_file *file)
{
    char *raw = read_error_file(path);
    cJSON *root = raw ? cJSON_Parse(raw) : NULL;
    bool understood;

    *file = (struct error_file){ 0 };
    understood = root && read_message(root, file) && *file->text;
    if (understood) {
        read_verdict(root, file);
        refine_time(path, file);
    }
    cJSON_Delete(root);
    free(raw);
    return understood;
}

/* The worker's own description of its error, or how it ended. */
static const char *find_own_message(const struct failure *f)
{
    char end[64];
    size_t length = strlen(failure_format_end(f, end, sizeof(end)));

    if ((f->kind == FAILURE_EXIT || f->kind == FAILURE_SIGNAL) &&
        strncmp(f->what, end, length) == 0 && strncmp(f->what + length, ": ", 2) == 0)
        return f->what + length + 2;
    return f->what;
}

void failure_write_error_file(const char *path, const struct failure *f)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *message = cJSON_AddObjectToObject(root, "message");
    cJSON *extra;
    char *text, seconds[32];
    int fd;

    cJSON_AddStringToObject(message, "message", find_own_message(f));
    extra = cJSON_AddObjectToObject(message, "extraInfo");
    cJSON_AddStringToObject(extra, "py_callstack", f->said);
    snprintf(seconds, sizeof(seconds), "%" PRIu64, f->wall_ms / 1000);
    cJSON_AddStringToObject(extra, "timestamp", seconds);
    cJSON_AddNumberToObject(message, "errorCode", job_exit_code(f));
    text = text_printable_json(cJSON_PrintUnformatted(root));
    fd = text ? fd_create_file(path, O_TRUNC, 0600) : -1;
    if (fd >= 0) {
        size_t size = strlen(text);

        fd_write_all(fd, text, &size);
        close(fd);
    }
    free(text);
    cJSON_Delete(root);
}
