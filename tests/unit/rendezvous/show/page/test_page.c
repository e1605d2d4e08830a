/* SPDX-License-Identifier: MIT */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "rendezvous/common/base/xalloc.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/page.h"
#include "rendezvous/wire/protocol/base64.h"
#include "rendezvous/common/tls/sha256.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/html_check.h"

#define NOW 1763820000000ull /* 2025-11-22 14:00:00 */
#define PAGE_BYTES_MAX (200 * 1024)

static const struct page_reader reader = {
    .now_ms = NOW, .server = "-e h:1", .sees_output = true, .has_list = true
};

/* -- a job ------------------------------------------------------------------------ */

static const char job_text[] =
    "{\"job\":\"resnet\",\"name\":\"resnet\",\"state\":\"running\",\"cause\":"
    "\"failure\","
    "\"result\":\"none\",\"text\":\"a text\",\"notice\":\"a notice\","
    "\"program\":\"train.py\",\"epoch\":2,\"node_count\":2,\"spare_count\":1,"
    "\"worker_count\":16,\"min_nodes\":1,\"max_nodes\":3,\"restarts\":1,"
    "\"max_restarts\":3,\"goodput\":0.9,\"exit_code\":null,\"step\":18230,"
    "\"steps\":50000,\"age_ms\":7200000,\"state_ms\":60000,"
    "\"started_ms\":1763812800000,"
    "\"time\":{\"productive_ms\":6480000,\"detect_ms\":1000,\"stop_ms\":2000,"
    "\"form_ms\":3000,\"start_ms\":4000,\"first_step_ms\":5000,\"rework_ms\":600000,"
    "\"steps_again\":120},"
    "\"last_restart\":{\"productive_ms\":0,\"detect_ms\":1000,\"stop_ms\":2000,"
    "\"form_ms\":1000,\"start_ms\":1000,\"first_step_ms\":1000,\"rework_ms\":600000,"
    "\"steps_again\":120},"
    "\"failure\":{\"kind\":\"exit\",\"host\":\"n1\",\"rank\":5,\"local_rank\":1,"
    "\"pid\":42,\"code\":85,\"time_ms\":1763819930000,\"said\":"
    "\"Traceback\\nError\\n\","
    "\"log\":\"logs/1/stderr.log\"},\"report\":\"a report\","
    "\"nodes\":[{\"host\":\"n0\",\"state\":\"running\",\"connected\":true,"
    "\"slot\":0,\"group_rank\":0,\"first_rank\":0,\"workers\":8,\"heard_ms_ago\":300,"
    "\"step\":18230,\"steps_per_s\":11.2,\"loss\":1.832,\"note\":\"a note\","
    "\"gpus\":{\"count\":8,\"percent\":97,\"used_mib\":73728,\"total_mib\":81920,"
    "\"celsius\":66,\"watts\":5000},\"slowness\":1.01,\"xid\":79,\"xids\":2,"
    "\"checkpoint_age_ms\":60000}],"
    "\"history\":{\"curve\":{\"time_ms\":[1763812860000,1763815000000,1763819990000],"
    "\"step\":[1,9000,18230],\"steps_per_s\":[11.2,null,11.3],\"loss\":[900,9,1.8]},"
    "\"epochs\":[{\"epoch\":1,\"cause\":\"first\",\"text\":\"\","
    "\"begun_ms\":1763812800000,\"ended_ms\":1763819930000,\"nodes\":2,\"workers\":16,"
    "\"productive_ms\":6400000,\"lost\":{\"form_ms\":2000,\"start_ms\":3000,"
    "\"first_step_ms\":4000}},"
    "{\"epoch\":2,\"cause\":\"failure\",\"text\":\"rank 5 on n1 exited with code 85\","
    "\"begun_ms\":1763819930000,\"ended_ms\":null,\"nodes\":2,\"workers\":16,"
    "\"productive_ms\":50000,\"lost\":{\"detect_ms\":1000,\"stop_ms\":2000,"
    "\"form_ms\":1000,\"start_ms\":1000,\"first_step_ms\":1000,\"rework_ms\":600000,"
    "\"steps_again\":120}}],\"epochs_left_out\":3,"
    "\"events\":[{\"time_ms\":1763812800000,\"kind\":\"formed\",\"node\":null,"
    "\"text\":\"epoch 1 formed\"},{\"time_ms\":1763819930000,\"kind\":\"failure\","
    "\"node\":\"n1\",\"text\":\"rank 5 exited\"}]}}";

static cJSON *job;

static void begin_page(void)
{
    setenv("TZ", "UTC", 1);
    job = cJSON_Parse(job_text);
    ck_assert_ptr_nonnull(job);
}

static void end_page(void)
{
    cJSON_Delete(job);
}

static void set_text(cJSON *o, const char *name, const char *text)
{
    cJSON_DeleteItemFromObject(o, name);
    cJSON_AddStringToObject(o, name, text);
}

static void set_number(cJSON *o, const char *name, double value)
{
    cJSON_DeleteItemFromObject(o, name);
    cJSON_AddNumberToObject(o, name, value);
}

static cJSON *nodes_of_job(void)
{
    return cJSON_GetObjectItem(job, "nodes");
}

/* Copies of the first node: n0, n1, ... */
static void make_nodes(int count)
{
    cJSON *first = cJSON_GetArrayItem(nodes_of_job(), 0), *node;
    char host[32];

    set_number(first, "xid", 0);
    set_text(first, "note", "");
    for (int i = cJSON_GetArraySize(nodes_of_job()); i < count; i++) {
        node = cJSON_Duplicate(first, true);
        snprintf(host, sizeof(host), "a100-%04d", i);
        set_text(node, "host", host);
        set_number(node, "group_rank", i);
        set_number(node, "first_rank", 8 * i);
        cJSON_AddItemToArray(nodes_of_job(), node);
    }
}

static cJSON *node_of_job(int i)
{
    return cJSON_GetArrayItem(nodes_of_job(), i);
}

/* -- pages ------------------------------------------------------------------------ */

enum page_kind { KIND_JOB, KIND_REPORT, KIND_LIST, KIND_RANK, KIND_ERROR, KIND_COUNT };

static const char *hostile_text; /* in what is no part of the job */

static char *render_page(enum page_kind kind, const struct page_reader *r)
{
    struct page_rank rank = {
        5, hostile_text, hostile_text, hostile_text, hostile_text, hostile_text
    };
    cJSON *list = cJSON_CreateArray();
    char *html;
    size_t size;
    FILE *out = open_memstream(&html, &size);

    cJSON_AddItemReferenceToArray(list, job);
    if (kind == KIND_JOB)
        page_write_job(out, job, r);
    else if (kind == KIND_REPORT)
        page_write_report(out, job, r);
    else if (kind == KIND_LIST)
        page_write_list(out, list, r);
    else if (kind == KIND_RANK)
        page_write_rank(out, job, &rank, r);
    else
        page_write_error(out, 404, hostile_text ? hostile_text : "gone", r);
    fclose(out);
    cJSON_Delete(list);
    return html;
}

static void check_document(const char *html)
{
    const char *at, *wrong = html_check_document(html, &at);

    ck_assert_msg(!wrong, "%s at \"%.80s\"", wrong, at);
}

static void check_each_page(void)
{
    for (enum page_kind kind = 0; kind < KIND_COUNT; kind++) {
        char *html = render_page(kind, &reader);

        check_document(html);
        free(html);
    }
}

static void expect_in_page(enum page_kind kind, const char *text, bool is_there)
{
    char *html = render_page(kind, &reader);
    bool found = strstr(html, text) != NULL;

    ck_assert_msg(found == is_there, "\"%s\" is %sthere", text, found ? "" : "not ");
    free(html);
}

/* -- sections --------------------------------------------------------------------- */

#define SECTIONS_MAX 64

struct kept_sections {
    char *id[SECTIONS_MAX], *html[SECTIONS_MAX];
    unsigned count;
};

static void keep_section(void *arg, const char *id, const char *html, size_t size)
{
    struct kept_sections *s = arg;

    ck_assert_uint_eq(strlen(html), size);
    ck_assert_uint_lt(s->count, SECTIONS_MAX);
    s->id[s->count] = xstrdup(id);
    s->html[s->count++] = xstrdup(html);
}

static struct kept_sections keep_sections(const struct page_reader *r)
{
    struct kept_sections s = { .count = 0 };

    page_each_section(job, r, keep_section, &s);
    return s;
}

static void free_sections(struct kept_sections *s)
{
    for (unsigned i = 0; i < s->count; i++) {
        free(s->id[i]);
        free(s->html[i]);
    }
}

/* The ids of the sections that differ, each with a blank after it. */
static void list_changes(const struct kept_sections *a, const struct kept_sections *b,
                         char *text, size_t size)
{
    *text = '\0';
    ck_assert_uint_eq(a->count, b->count);
    for (unsigned i = 0; i < a->count; i++)
        if (strcmp(a->html[i], b->html[i]) != 0)
            snprintf(text + strlen(text), size - strlen(text), "%s ", a->id[i]);
}

static void check_section(void *arg, const char *id, const char *html, size_t size)
{
    const char *at, *wrong = html_check_element(html, id, &at);

    ck_assert_msg(!wrong, "%s: %s: %s at \"%.80s\"", (const char *)arg, id, wrong, at);
}

/* -- cases ------------------------------------------------------------------------ */

START_TEST(each_page_is_well_formed)
{
    check_each_page();
    page_each_section(job, &reader, check_section, "as it is");
    make_nodes(120);
    check_each_page();
    page_each_section(job, &reader, check_section, "120 nodes");
}
END_TEST

static void poison_texts(cJSON *item)
{
    for (cJSON *child = item->child; child; child = child->next)
        poison_texts(child);
    if (cJSON_IsString(item))
        cJSON_SetValuestring(item, hostile_text);
}

START_TEST(texts_are_escaped_wherever_they_are)
{
    hostile_text = "\"'/></title></style></script><script>alert(1)</script>"
                   "<img src=x onerror=alert(1)>&lt;&\xe2\x80\xae\x1b[31m\xff%s%n";
    poison_texts(job);
    check_each_page();
    page_each_section(job, &reader, check_section, "hostile");
    make_nodes(40);
    poison_texts(job);
    page_each_section(job, &reader, check_section, "hostile, 40 nodes");
    for (enum page_kind kind = 0; kind < KIND_COUNT; kind++)
        expect_in_page(kind, "<script>alert", false);
    expect_in_page(KIND_ERROR, "&lt;script&gt;alert(1)", true);
    expect_in_page(KIND_ERROR, "%s%n", true);
    hostile_text = NULL;
}
END_TEST

START_TEST(texts_keep_what_is_printable_and_lines)
{
    char *html;
    size_t size;
    FILE *out = open_memstream(&html, &size);

    html_print(out, "<%s|%u|%5.1f|%c|%zu|%d%%>", "a\tb\nü\x01\xe2\x80\xae\xc3", 7u,
               2.25, '<', (size_t)9, -3);
    html_path_segment(out, "a/b ü.1");
    fclose(out);
    ck_assert_str_eq(html, "<a\tb\nü\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                           "\xef\xbf\xbd|7|  2.2|&lt;|9|-3%>a%2Fb%20%C3%BC.1");
    free(html);
}
END_TEST

/* The n-th item of a tree, from *n down. */
static cJSON *find_nth_item(cJSON *item, unsigned *n)
{
    if ((*n)-- == 0)
        return item;
    for (cJSON *child = item->child; child; child = child->next) {
        cJSON *found = find_nth_item(child, n);

        if (found)
            return found;
    }
    return NULL;
}

/* The value of an item becomes another; it keeps its name and its place. */
static void replace_value(cJSON *item, const char *json)
{
    cJSON *value = cJSON_Parse(json);

    if (item->child)
        cJSON_Delete(item->child);
    free(item->valuestring);
    item->child = value->child;
    item->type = value->type;
    item->valuestring = value->valuestring;
    item->valuedouble = value->valuedouble;
    item->valueint = value->valueint;
    value->child = NULL;
    value->valuestring = NULL;
    cJSON_Delete(value);
}

START_TEST(damaged_jobs_are_shown_as_far_as_they_go)
{
    static const char *const values[] = { "null",  "true",   "\"text\"",  "-1",
                                          "1e308", "[1,{}]", "{\"a\":[]}" };
    cJSON *whole = job, *item;

    for (unsigned n = 1; n < 1000; n++) {
        unsigned left = n;

        job = cJSON_Duplicate(whole, true);
        item = find_nth_item(job, &left);
        if (item)
            replace_value(item, values[_i]);
        page_each_section(job, &reader, check_section, (void *)values[_i]);
        cJSON_Delete(job);
        if (!item)
            break;
        ck_assert_uint_lt(n, 999);
    }
    job = whole;
}
END_TEST

START_TEST(what_is_no_object_is_an_unknown_job)
{
    static const char *const values[] = { "null", "[]", "{}", "1", "\"a\"" };

    for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        cJSON_Delete(job);
        job = cJSON_Parse(values[i]);
        check_each_page();
        expect_in_page(KIND_JOB, "unknown", true);
    }
}
END_TEST

static void make_long_history(void)
{
    cJSON *history = cJSON_GetObjectItem(job, "history");
    cJSON *epochs = cJSON_GetObjectItem(history, "epochs");
    cJSON *events = cJSON_GetObjectItem(history, "events");
    cJSON *curve = cJSON_GetObjectItem(history, "curve");

    while (cJSON_GetArraySize(epochs) < 64)
        cJSON_AddItemToArray(epochs,
                             cJSON_Duplicate(cJSON_GetArrayItem(epochs, 1), true));
    while (cJSON_GetArraySize(events) < 64)
        cJSON_AddItemToArray(events,
                             cJSON_Duplicate(cJSON_GetArrayItem(events, 1), true));
    for (int i = 0; i < 253; i++) {
        cJSON_AddItemToArray(cJSON_GetObjectItem(curve, "time_ms"),
                             cJSON_CreateNumber(1763819990000.0 + 30 * i));
        cJSON_AddItemToArray(cJSON_GetObjectItem(curve, "step"),
                             cJSON_CreateNumber(18230));
        cJSON_AddItemToArray(cJSON_GetObjectItem(curve, "steps_per_s"),
                             cJSON_CreateNumber(11.3 + i % 7));
        cJSON_AddItemToArray(cJSON_GetObjectItem(curve, "loss"),
                             cJSON_CreateNumber(1.8 + i % 5));
    }
}

START_TEST(a_page_of_1000_nodes_is_200_kib_at_most)
{
    char *html;

    make_nodes(1000);
    make_long_history();
    for (enum page_kind kind = KIND_JOB; kind <= KIND_REPORT; kind++) {
        html = render_page(kind, &reader);
        check_document(html);
        ck_assert_uint_lt(strlen(html), PAGE_BYTES_MAX);
        free(html);
    }
    set_text(job, "job", "a-long-run-id-of-a-scheduler-with-a-date-2026-11-22-7f3a9c");
    html = render_page(KIND_JOB, &reader);
    ck_assert_uint_lt(strlen(html), PAGE_BYTES_MAX);
    free(html);
}
END_TEST

START_TEST(sections_change_only_with_what_they_show)
{
    struct page_reader later = reader;
    struct kept_sections before, after;
    char changes[256];

    make_nodes(120);
    before = keep_sections(&reader);
    /* 700 ms pass: everything is that much older, and nodes were heard again */
    later.now_ms += 700;
    set_number(job, "state_ms", 60700);
    for (int i = 0; i < 120; i++) {
        set_number(node_of_job(i), "heard_ms_ago", i * 7);
        set_number(node_of_job(i), "checkpoint_age_ms", 60700);
        set_number(node_of_job(i), "steps_per_s", 11.2 + i * 0.001);
        set_number(cJSON_GetObjectItem(node_of_job(i), "gpus"), "percent", 90 + i % 9);
    }
    after = keep_sections(&later);
    list_changes(&before, &after, changes, sizeof(changes));
    ck_assert_str_eq(changes, "");
    free_sections(&before);
    /* a step is in the figures alone; a lost node in its block and in the summary */
    set_number(job, "step", 18231);
    set_text(node_of_job(70), "state", "quarantined");
    before = keep_sections(&later);
    list_changes(&after, &before, changes, sizeof(changes));
    ck_assert_str_eq(changes, "figures nodes nodes-1 ");
    free_sections(&before);
    free_sections(&after);
}
END_TEST

START_TEST(a_job_says_its_state_in_one_word)
{
    static const char *const rows[][4] = {
        { "running", "none", "failure", "● running" },
        { "forming", "none", "none", "○ waiting" },
        { "stopping", "none", "failure", "◐ restarting" },
        { "stopping", "none", "user", "◐ stopping" },
        { "stopping", "failure", "failure", "◐ stopping" },
        { "done", "success", "none", "✓ finished" },
        { "done", "failure", "failure", "✗ failed" },
        { "done", "lost", "lost", "✗ failed" },
        { "done", "not-formed", "none", "✗ not started" },
        { "done", "user", "user", "■ stopped" },
        { "killed", "none", "none", "✗ killed" },
    };

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        set_text(job, "state", rows[i][0]);
        set_text(job, "result", rows[i][1]);
        set_text(job, "cause", rows[i][2]);
        expect_in_page(KIND_LIST, rows[i][3], true);
    }
}
END_TEST

static void expect_sign(const char *sign, const char *word)
{
    char text[128];

    snprintf(text, sizeof(text), "\" aria-hidden=\"true\">%s</b> 1 %s</li>", sign,
             word);
    expect_in_page(KIND_JOB, text, true);
}

START_TEST(an_odd_node_has_a_sign_and_stands_above_the_grid)
{
    make_nodes(40);
    cJSON_ReplaceItemInObject(node_of_job(1), "connected", cJSON_CreateFalse());
    set_number(node_of_job(2), "xid", 79);
    set_number(node_of_job(3), "slowness", 1.43);
    set_number(node_of_job(4), "step", 17000);
    set_number(node_of_job(5), "step", 18200); /* less than five seconds behind */
    set_number(node_of_job(7), "step", 17000); /* told long ago */
    set_number(node_of_job(7), "heard_ms_ago", 109000);
    set_text(node_of_job(6), "state", "spare");
    expect_sign("!", "lost");
    expect_sign("x", "with a GPU error");
    expect_sign("▲", "slow");
    expect_sign("&lt;", "behind");
    expect_sign("+", "spare");
    expect_in_page(KIND_JOB, "> 35 running</li>", true);
    expect_in_page(KIND_JOB, "<tr><th scope=\"row\">a100-0001</th>", true);
    expect_in_page(KIND_JOB, "1,230 behind", true);
    expect_in_page(KIND_JOB, "<tr><th scope=\"row\">a100-0005</th>", false);
    expect_in_page(KIND_JOB, "<tr><th scope=\"row\">a100-0006</th>", false);
    expect_in_page(KIND_JOB, "<tr><th scope=\"row\">a100-0007</th>", false);
}
END_TEST

START_TEST(a_report_needs_nothing_and_leads_nowhere)
{
    expect_in_page(KIND_REPORT, "<script", false);
    expect_in_page(KIND_REPORT, "href=\"/", false);
    expect_in_page(KIND_REPORT, "data-ms", false);
    expect_in_page(KIND_REPORT, "http-equiv=\"refresh\"", false);
    expect_in_page(KIND_REPORT, "http-equiv=\"Content-Security-Policy\"", true);
    expect_in_page(KIND_REPORT, "<time>2025-11-22 13:58:50</time>", true);
    expect_in_page(KIND_JOB, "<time>13:58:50</time>", true);
}
END_TEST

START_TEST(without_a_script_a_page_is_loaded_again)
{
    expect_in_page(KIND_JOB, "<noscript><meta http-equiv=\"refresh\"", true);
    expect_in_page(KIND_JOB, "data-live=\"/jobs/resnet/live\"", true);
    expect_in_page(KIND_JOB, "data-age=\"60 s\"", true);
}
END_TEST

START_TEST(ranks_have_links_for_readers_of_their_output)
{
    struct page_reader other = reader;
    char *html;

    expect_in_page(KIND_JOB, "<a href=\"/jobs/resnet/ranks/7\">7</a>", true);
    expect_in_page(KIND_JOB, "crunctl -e h:1 page resnet", false);
    expect_in_page(KIND_RANK, "<a href=\"/jobs/resnet/ranks/4\">rank 4</a>", true);
    expect_in_page(KIND_RANK, "<a href=\"/jobs/resnet/ranks/6\">rank 6</a>", true);
    set_number(job, "worker_count", 6);
    expect_in_page(KIND_RANK, "/ranks/6", false);
    expect_in_page(KIND_RANK, "There is no rank", false);
    expect_in_page(KIND_RANK, "There is none.", true);
    expect_in_page(
        KIND_RANK,
        "<a href=\"/jobs/resnet/ranks/5?stacks=1\">Show what the rank does now", true);
    set_number(job, "worker_count", 5);
    expect_in_page(KIND_RANK, "There is no rank 5: the job has 5 workers.", true);
    other.sees_output = false;
    html = render_page(KIND_JOB, &other);
    ck_assert_ptr_null(strstr(html, "/ranks/"));
    ck_assert_ptr_nonnull(strstr(html, "crunctl -e h:1 page resnet"));
    free(html);
}
END_TEST

START_TEST(commands_can_be_pasted_whatever_the_name_of_the_job)
{
    expect_in_page(KIND_JOB, "<code>crunctl -e h:1 logs -f resnet 5</code>", true);
    set_text(job, "name", "$(rm -r ~)'; x");
    expect_in_page(KIND_JOB, "stop &#39;$(rm -r ~)&#39;\\&#39;&#39;; x&#39;</code>",
                   true);
    set_text(job, "name", "");
    expect_in_page(KIND_JOB, "stop resnet</code>", true);
    set_text(job, "job", "");
    expect_in_page(KIND_JOB, "stop &#39;&#39;</code>", true);
    set_text(job, "name", "resnet");
    set_text(job, "state", "done");
    expect_in_page(KIND_JOB, "crunctl -e h:1 stop", false);
}
END_TEST

START_TEST(a_loss_that_spans_decades_is_shown_by_its_logarithm)
{
    cJSON *curve = cJSON_GetObjectItem(cJSON_GetObjectItem(job, "history"), "curve");

    expect_in_page(KIND_JOB, ", logarithmic", true);
    expect_in_page(KIND_JOB, "<span>1000</span><span>100</span><span>10</span>", true);
    cJSON_ReplaceItemInObject(curve, "loss", cJSON_Parse("[3,2,1.8]"));
    expect_in_page(KIND_JOB, ", logarithmic", false);
    cJSON_ReplaceItemInObject(curve, "loss", cJSON_Parse("[-3,0,1.8]"));
    expect_in_page(KIND_JOB, "Loss over time", true);
    cJSON_ReplaceItemInObject(curve, "loss", cJSON_Parse("[null,null,null]"));
    expect_in_page(KIND_JOB, "Loss over time", false);
}
END_TEST

/* The digest of what is inside an element of a page. */
static void expect_digest(const char *html, const char *begin, const char *end,
                          const char *directive)
{
    char text[BASE64_SIZE(SHA256_BYTES)], wanted[96];
    const char *from = strstr(html, begin) + strlen(begin);
    uint8_t digest[SHA256_BYTES];
    struct sha256 h;

    sha256_init(&h);
    sha256_add(&h, from, (size_t)(strstr(from, end) - from));
    sha256_finish(&h, digest);
    snprintf(wanted, sizeof(wanted), "%s 'sha256-%s'", directive,
             base64_encode(digest, sizeof(digest), text));
    ck_assert_ptr_nonnull(strstr(page_policy(), wanted));
}

START_TEST(the_policy_has_the_digests_of_style_and_script)
{
    char *html = render_page(KIND_JOB, &reader);

    expect_digest(html, "<style>", "</style>", "style-src");
    expect_digest(html, "<script>", "</script>", "script-src");
    free(html);
}
END_TEST

START_TEST(figures_are_written_for_people)
{
    char text[FIGURE_SIZE];

    ck_assert_str_eq(figure_count(0, text), "0");
    ck_assert_str_eq(figure_count(999, text), "999");
    ck_assert_str_eq(figure_count(1234567, text), "1,234,567");
    ck_assert_str_eq(figure_number(11.2, text), "11.20");
    ck_assert_str_eq(figure_number(1.8324, text), "1.832");
    ck_assert_str_eq(figure_number(1.83e-7, text), "1.83e-07");
    ck_assert_str_eq(figure_number(NAN, text), "–");
    ck_assert_str_eq(figure_duration(12, text), "12 ms");
    ck_assert_str_eq(figure_duration(400, text), "0.4 s");
    ck_assert_str_eq(figure_age(1999, text), "1 s");
    ck_assert_str_eq(figure_age(150000, text), "2 min");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("page");
    TCase *tc = tcase_create("page");

    tcase_add_checked_fixture(tc, begin_page, end_page);
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, each_page_is_well_formed);
    tcase_add_test(tc, texts_are_escaped_wherever_they_are);
    tcase_add_test(tc, texts_keep_what_is_printable_and_lines);
    tcase_add_loop_test(tc, damaged_jobs_are_shown_as_far_as_they_go, 0, 7);
    tcase_add_test(tc, what_is_no_object_is_an_unknown_job);
    tcase_add_test(tc, a_page_of_1000_nodes_is_200_kib_at_most);
    tcase_add_test(tc, sections_change_only_with_what_they_show);
    tcase_add_test(tc, a_job_says_its_state_in_one_word);
    tcase_add_test(tc, an_odd_node_has_a_sign_and_stands_above_the_grid);
    tcase_add_test(tc, a_report_needs_nothing_and_leads_nowhere);
    tcase_add_test(tc, without_a_script_a_page_is_loaded_again);
    tcase_add_test(tc, ranks_have_links_for_readers_of_their_output);
    tcase_add_test(tc, commands_can_be_pasted_whatever_the_name_of_the_job);
    tcase_add_test(tc, a_loss_that_spans_decades_is_shown_by_its_logarithm);
    tcase_add_test(tc, the_policy_has_the_digests_of_style_and_script);
    tcase_add_test(tc, figures_are_written_for_people);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
