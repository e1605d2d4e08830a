/* SPDX-License-Identifier: MIT */
#include "agent/progress/step_pattern.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"

/* \d is not POSIX. Within brackets it is a digit, too. */
static char *translate_pattern(const char *pattern)
{
    char *out = xmalloc(5 * strlen(pattern) + 1), *at = out;
    bool in_brackets = false;

    for (; *pattern; pattern++) {
        if (pattern[0] == '\\' && pattern[1] == 'd') {
            at = stpcpy(at, in_brackets ? "0-9" : "[0-9]");
            pattern++;
        } else if (pattern[0] == '\\' && pattern[1] && !in_brackets) {
            *at++ = *pattern++;
            *at++ = *pattern;
        } else {
            if (*pattern == '[' || *pattern == ']')
                in_brackets = *pattern == '[';
            *at++ = *pattern;
        }
    }
    *at = '\0';
    return out;
}

int step_pattern_compile(regex_t *regex, const char *pattern, struct err *e)
{
    char *posix = translate_pattern(pattern), why[128];
    int rc = regcomp(regex, posix, REG_EXTENDED);

    free(posix);
    if (rc != 0) {
        regerror(rc, regex, why, sizeof(why));
        return err_set(e, "\"%s\" is not a regular expression: %s", pattern, why);
    }
    if (regex->re_nsub > 0)
        return 0;
    regfree(regex);
    return err_set(e, "\"%s\" has no group for the step, as in 'step[ =]+(\\d+)'",
                   pattern);
}

bool step_pattern_match(const regex_t *regex, const char *line, uint64_t *step)
{
    regmatch_t match[2];

    if (regexec(regex, line, 2, match, 0) != 0 || match[1].rm_so < 0 ||
        !isdigit((unsigned char)line[match[1].rm_so]))
        return false;
    errno = 0;
    *step = strtoull(line + match[1].rm_so, NULL, 10);
    return errno == 0;
}
