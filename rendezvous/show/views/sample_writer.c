/* SPDX-License-Identifier: MIT */
#include "rendezvous/show/views/sample_writer.h"

#include <math.h>
#include <string.h>

#include "rendezvous/common/base/text.h"

#define LABEL_VALUE_MAX 1024

/* -- text -------------------------------------------------------------------------- */

static void write_buffered(struct sample_writer *w)
{
    fwrite(w->buf, 1, w->used, w->out);
    w->used = 0;
}

static void value_put_bytes(struct sample_writer *w, const char *bytes, size_t size)
{
    if (w->used + size > sizeof(w->buf))
        write_buffered(w);
    if (size > sizeof(w->buf)) {
        fwrite(bytes, 1, size, w->out);
        return;
    }
    memcpy(w->buf + w->used, bytes, size);
    w->used += size;
}

static void value_put_text(struct sample_writer *w, const char *text)
{
    value_put_bytes(w, text, strlen(text));
}

static void value_put_number(struct sample_writer *w, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);

    do
        digits[--at] = (char)('0' + value % 10);
    while (value /= 10);
    value_put_bytes(w, digits + at, sizeof(digits) - at);
}

static void value_put_thousandths(struct sample_writer *w, uint64_t value)
{
    const char fraction[4] = { '.', (char)('0' + value / 100 % 10),
                               (char)('0' + value / 10 % 10),
                               (char)('0' + value % 10) };

    value_put_number(w, value / 1000);
    if (value % 1000)
        value_put_bytes(w, fraction, sizeof(fraction));
}

static void value_put_real(struct sample_writer *w, double value)
{
    char text[32];

    if (isnan(value))
        snprintf(text, sizeof(text), "NaN");
    else if (isinf(value))
        snprintf(text, sizeof(text), "%cInf", value > 0 ? '+' : '-');
    else
        snprintf(text, sizeof(text), "%.9g", value);
    value_put_text(w, text);
}

/* UTF-8 only; a backslash before what would end the value. */
static size_t escape_value(const char *value, char *buf)
{
    size_t left = strlen(value), used = 0, size;

    for (; left && used + 5 < LABEL_VALUE_MAX; value += size, left -= size) {
        size = text_printable_size(value, left);
        if (size == 0) {
            buf[used++] = '?';
            size = 1;
            continue;
        }
        if (*value == '"' || *value == '\\')
            buf[used++] = '\\';
        memcpy(buf + used, value, size);
        used += size;
    }
    buf[used] = '\0';
    return used;
}

size_t sample_add_label(char *buf, size_t size, const char *name, const char *value)
{
    char escaped[LABEL_VALUE_MAX + 1];
    size_t used = strlen(buf);

    if (used + strlen(name) + escape_value(value, escaped) + 5 > size)
        return used;
    return used + (size_t)snprintf(buf + used, size - used, "%s%s=\"%s\"",
                                   used ? "," : "", name, escaped);
}

/* -- samples ----------------------------------------------------------------------- */

static const char *suffix_of(enum metric_type type)
{
    return type == METRIC_COUNTER ? "_total" : type == METRIC_INFO ? "_info" : "";
}

void sample_begin_family(struct sample_writer *w, const char *name,
                         enum metric_type type, const char *help)
{
    static const char *const types[] = { [METRIC_COUNTER] = "counter",
                                         [METRIC_GAUGE] = "gauge",
                                         [METRIC_INFO] = "gauge",
                                         [METRIC_HISTOGRAM] = "histogram" };
    const char *suffix = suffix_of(type);

    w->name = name;
    w->type = type;
    write_buffered(w);
    fprintf(w->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name,
            suffix, types[type]);
}

void sample_end(struct sample_writer *w)
{
    write_buffered(w);
}

/* Up to the value. The last label is optional. */
static void begin_sample(struct sample_writer *w, const char *suffix, const char *label,
                         const char *word)
{
    value_put_text(w, w->name);
    value_put_text(w, suffix);
    if (*w->labels || label) {
        value_put_text(w, "{");
        value_put_text(w, w->labels);
        if (label) {
            value_put_text(w, *w->labels ? "," : "");
            value_put_text(w, label);
            value_put_text(w, "=\"");
            value_put_text(w, word);
            value_put_text(w, "\"");
        }
        value_put_text(w, "}");
    }
    value_put_text(w, " ");
}

static void end_sample(struct sample_writer *w)
{
    value_put_text(w, "\n");
}

static void put_sample(struct sample_writer *w, const char *word, uint64_t value,
                       void (*put)(struct sample_writer *w, uint64_t value))
{
    const char *label = word ? w->label : NULL;

    begin_sample(w, suffix_of(w->type), label, word);
    put(w, value);
    end_sample(w);
}

void sample_put(struct sample_writer *w, const char *word, uint64_t value)
{
    put_sample(w, word, value, value_put_number);
}

void sample_put_ms(struct sample_writer *w, const char *word, uint64_t ms)
{
    put_sample(w, word, ms, value_put_thousandths);
}

void sample_put_real(struct sample_writer *w, double value)
{
    begin_sample(w, suffix_of(w->type), NULL, NULL);
    value_put_real(w, value);
    end_sample(w);
}

void sample_put_info(struct sample_writer *w, const char *more)
{
    value_put_text(w, w->name);
    value_put_text(w, "_info{");
    value_put_text(w, w->labels);
    value_put_text(w, *w->labels ? "," : "");
    value_put_text(w, more);
    value_put_text(w, "} 1\n");
}

void sample_put_histogram(struct sample_writer *w, const struct histogram *h,
                          uint64_t unit_us)
{
    uint64_t count = 0;
    char end[32];

    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        count += h->count[i];
        snprintf(end, sizeof(end), "%g", (double)(histogram_end[i] * unit_us) / 1e6);
        if (!strpbrk(end, ".e")) /* as Prometheus writes it */
            strcat(end, ".0");
        begin_sample(w, "_bucket", "le", end);
        value_put_number(w, count);
        end_sample(w);
    }
    count += h->count[HISTOGRAM_BUCKETS];
    begin_sample(w, "_bucket", "le", "+Inf");
    value_put_number(w, count);
    end_sample(w);
    begin_sample(w, "_sum", NULL, NULL);
    value_put_real(w, (double)h->sum_us / 1e6);
    end_sample(w);
    begin_sample(w, "_count", NULL, NULL);
    value_put_number(w, count);
    end_sample(w);
}
