/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <string.h>

#include "rendezvous/common/base/real.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/show/page/fields.h"
#include "rendezvous/show/page/html.h"
#include "rendezvous/show/page/sections.h"

#define NODES_IN_TABLE 32 /* of more nodes there is a grid, and a table of odd ones */
#define ODD_NODES_SHOWN 16
#define NODES_PER_BLOCK 50
#define RANK_LINKS_PER_NODE 16
#define RANK_LINK_BYTES_MAX 32768 /* of all links of a grid together */
#define SILENT_MS 5000
#define MIB_PER_GIB 1024

/* -- ranks ------------------------------------------------------------------------ */

bool page_has_rank_links(const struct page_view *v)
{
    return v->reader->sees_output && !v->is_report;
}

void page_write_rank_link(FILE *out, uint64_t rank, const struct page_view *v)
{
    if (!page_has_rank_links(v)) {
        html_print(out, "%lu", (unsigned long)rank);
        return;
    }
    fputs("<a href=\"/jobs/", out);
    html_path_segment(out, field_text(v->job, "job"));
    html_print(out, "/ranks/%lu\">%lu</a>", (unsigned long)rank, (unsigned long)rank);
}

/* Each with a link, or the first and the last one. */
static void write_ranks(FILE *out, const cJSON *node, bool each,
                        const struct page_view *v)
{
    uint64_t first = field_count(node, "first_rank");
    uint64_t workers = field_count(node, "workers");

    if (isnan(field_number(node, "first_rank")) || !workers) {
        fputs("–", out);
        return;
    }
    if (each && page_has_rank_links(v) && workers <= RANK_LINKS_PER_NODE) {
        for (uint64_t i = 0; i < workers; i++) {
            fputs(i ? " " : "", out);
            page_write_rank_link(out, first + i, v);
        }
        return;
    }
    page_write_rank_link(out, first, v);
    if (workers > 1)
        html_print(out, "-%lu", (unsigned long)(first + workers - 1));
}

/* -- the table -------------------------------------------------------------------- */

static void write_state_cell(FILE *out, const struct node_view *n,
                             const struct page_view *v)
{
    const struct node_sign_row *sign = &node_signs[n->sign];
    const char *state = field_text(n->json, "state");
    uint64_t heard = field_count(n->json, "heard_ms_ago");

    html_print(out, "<td><b class=\"cell %s\" aria-hidden=\"true\">%s</b> %s",
               sign->class, sign->sign, *state ? state : "unknown");
    if (n->sign == NODE_SIGN_LOST)
        fputs(", lost", out);
    if ((n->sign == NODE_SIGN_LOST || heard >= SILENT_MS) &&
        n->sign != NODE_SIGN_FINISHED && heard < v->reader->now_ms) {
        fputs(" <small>heard ", out);
        page_write_aged_time(out, v->reader->now_ms - heard, v);
        fputs("</small>", out);
    }
    fputs("</td>", out);
}

static void write_step_cells(FILE *out, const struct node_view *n)
{
    uint64_t step = field_count(n->json, "step");
    double slowness = field_number(n->json, "slowness");

    html_print(out, "<td class=\"num\">%s", step ? COUNT(step) : "–");
    if (n->behind)
        html_print(out, " <small>%s behind</small>", COUNT(n->behind));
    html_print(out, "</td><td class=\"num\">%s</td>",
               NUMBER(field_number(n->json, "steps_per_s")));
    if (isnan(slowness))
        fputs("<td class=\"num\">–</td>", out);
    else
        html_print(out, "<td class=\"num\">%.2f&#160;×</td>", slowness);
}

static void write_gpu_cells(FILE *out, const cJSON *node)
{
    const cJSON *g = field_object(node, "gpus");
    uint64_t xid = field_count(node, "xid"), xids = field_count(node, "xids");
    double percent = field_number(g, "percent");

    if (g && !isnan(percent))
        html_print(out, "<td class=\"num\">%.0f&#160;%%</td>",
                   real_min(real_max(percent, 0), 100));
    else
        fputs("<td class=\"num\">–</td>", out);
    if (g)
        html_print(out,
                   "<td class=\"num\">%lu/%lu&#160;GiB</td>"
                   "<td class=\"num\">%lu&#160;°C, %lu&#160;W</td>",
                   (unsigned long)field_count(g, "used_mib") / MIB_PER_GIB,
                   (unsigned long)field_count(g, "total_mib") / MIB_PER_GIB,
                   (unsigned long)field_count(g, "celsius"),
                   (unsigned long)field_count(g, "watts"));
    else
        fputs("<td class=\"num\">–</td><td class=\"num\">–</td>", out);
    if (xid && xids > 1)
        html_print(out, "<td class=\"num\">%lu <small>of %s</small></td>",
                   (unsigned long)xid, COUNT(xids));
    else
        html_print(out, "<td class=\"num\">%s</td>", xid ? COUNT(xid) : "–");
}

static void write_node_row(FILE *out, const struct node_view *n,
                           const struct page_view *v)
{
    const char *note = field_text(n->json, "note"), *host = field_text(n->json, "host");

    html_print(out, "<tr><th scope=\"row\">%s</th>", *host ? host : "–");
    write_state_cell(out, n, v);
    fputs("<td>", out);
    write_ranks(out, n->json, v->nodes.count <= NODES_IN_TABLE, v);
    fputs("</td>", out);
    write_step_cells(out, n);
    write_gpu_cells(out, n->json);
    html_print(out, "<td>%s</td></tr>\n", note);
}

static void begin_node_table(FILE *out, const char *label)
{
    html_print(out,
               "<div class=\"scroll\" tabindex=\"0\" role=\"region\" "
               "aria-label=\"%s\"><table class=\"nodes\"><thead><tr>",
               label);
    fputs("<th scope=\"col\">Node</th><th scope=\"col\">State</th>"
          "<th scope=\"col\">Ranks</th><th scope=\"col\" class=\"num\">Step</th>"
          "<th scope=\"col\" class=\"num\">Steps/s</th>"
          "<th scope=\"col\" class=\"num\">Time per step</th>"
          "<th scope=\"col\" class=\"num\">GPU</th>"
          "<th scope=\"col\" class=\"num\">Memory</th>"
          "<th scope=\"col\" class=\"num\">Heat</th>"
          "<th scope=\"col\" class=\"num\">Last XID</th><th scope=\"col\">Note</th>"
          "</tr></thead><tbody>\n",
          out);
}

/* -- all nodes in short ----------------------------------------------------------- */

static void write_node_counts(FILE *out, const struct node_list *list)
{
    fputs("<ul class=\"legend\">", out);
    for (int i = NODE_SIGN_COUNT - 1; i >= 0; i--)
        if (list->signs[i])
            html_print(out,
                       "<li><b class=\"cell %s\" aria-hidden=\"true\">%s</b> "
                       "%s %s</li>",
                       node_signs[i].class, node_signs[i].sign, COUNT(list->signs[i]),
                       node_signs[i].word);
    fputs("</ul>", out);
}

/* The worst nodes, in the order of their signs. */
static void write_odd_nodes(FILE *out, const struct page_view *v)
{
    size_t shown = 0, odd = 0;

    for (int sign = 0; sign <= NODE_SIGN_LEAVING; sign++)
        odd += v->nodes.signs[sign];
    if (!odd)
        return;
    begin_node_table(out, "Nodes to look at");
    for (int sign = 0; sign <= NODE_SIGN_LEAVING; sign++)
        for (size_t i = 0; i < v->nodes.count && shown < ODD_NODES_SHOWN; i++)
            if ((int)v->nodes.node[i].sign == sign) {
                write_node_row(out, &v->nodes.node[i], v);
                shown++;
            }
    fputs("</tbody></table></div>", out);
    if (odd > shown)
        html_print(out, "<p class=\"note\">%s more like these are in the grid.</p>",
                   COUNT(odd - shown));
}

void write_nodes_section(FILE *out, const struct page_view *v)
{
    if (!v->nodes.count) {
        fputs("<section id=\"nodes\" hidden=\"hidden\"></section>\n", out);
        return;
    }
    html_print(out,
               "<section id=\"nodes\" aria-labelledby=\"nodes-t\">"
               "<h2 id=\"nodes-t\">%s node%s</h2>",
               COUNT(v->nodes.count), text_plural(v->nodes.count));
    write_node_counts(out, &v->nodes);
    if (page_has_rank_links(v)) {
        fputs("<form class=\"go\" data-go=\"/jobs/", out);
        html_path_segment(out, field_text(v->job, "job"));
        fputs("/ranks/\"><label>Output and stacks of rank <input type=\"number\" "
              "min=\"0\" required=\"required\"/></label> "
              "<button class=\"button\">Show</button></form>",
              out);
    }
    if (v->nodes.count > NODES_IN_TABLE) {
        write_odd_nodes(out, v);
        fputs("<p><a class=\"skip\" href=\"#commands\">Skip the grid of nodes</a></p>",
              out);
    }
    fputs("</section>\n", out);
}

/* -- blocks ----------------------------------------------------------------------- */

size_t node_block_count(const struct page_view *v)
{
    return v->nodes.count <= NODES_IN_TABLE
               ? v->nodes.count > 0
               : (v->nodes.count + NODES_PER_BLOCK - 1) / NODES_PER_BLOCK;
}

/* In words, so that a block changes when it says something new, not with each figure.
 */
static void write_cell_gpus(FILE *out, const cJSON *g)
{
    double percent = field_number(g, "percent");

    if (percent >= 0)
        html_print(out, " · GPU %s",
                   percent < 5    ? "idle"
                   : percent < 50 ? "half busy"
                                  : "busy");
    if (field_count(g, "total_mib"))
        html_print(out, ", %lu GiB",
                   (unsigned long)field_count(g, "used_mib") / MIB_PER_GIB);
}

static bool has_cell_links(const struct page_view *v)
{
    size_t each = strlen(field_text(v->job, "job")) +
                  sizeof("<a href=/jobs//ranks/0000>");

    return page_has_rank_links(v) && each * v->nodes.count <= RANK_LINK_BYTES_MAX;
}

/* The text is shown while the cell has the focus. Bytes count, there are thousands of
 * cells; so does the time to paint, which <details> would double. */
static void write_node_cell(FILE *out, const struct node_view *n,
                            const struct page_view *v)
{
    const struct node_sign_row *sign = &node_signs[n->sign];
    const char *host = field_text(n->json, "host"), *note = field_text(n->json, "note");
    double slowness = field_number(n->json, "slowness");
    struct page_view unlinked = *v;

    unlinked.is_report = v->is_report || !has_cell_links(v);
    if (n->sign == NODE_SIGN_RUNNING)
        html_print(out, "<li tabindex=\"0\">%s<p>%s · ", sign->sign, host);
    else
        html_print(out, "<li tabindex=\"0\" class=\"%s\">%s<p>%s · %s · ", sign->class,
                   sign->sign, host, field_text(n->json, "state"));
    fputs("ranks ", out);
    write_ranks(out, n->json, false, &unlinked);
    if (n->behind)
        fputs(" · behind", out);
    if (slowness >= 1.1)
        html_print(out, " · %.1f × as long per step", slowness);
    write_cell_gpus(out, field_object(n->json, "gpus"));
    if (field_count(n->json, "xid"))
        html_print(out, " · XID %s", COUNT(field_count(n->json, "xid")));
    if (*note)
        html_print(out, " · %s", note);
    fputs("</p></li>\n", out);
}

void write_node_block(FILE *out, const struct page_view *v, size_t block)
{
    size_t from = block * NODES_PER_BLOCK, to = from + NODES_PER_BLOCK;

    to = to < v->nodes.count ? to : v->nodes.count;
    html_print(out, "<div class=\"block\" id=\"nodes-%zu\">", block);
    if (v->nodes.count <= NODES_IN_TABLE) {
        begin_node_table(out, "Table of nodes");
        for (size_t i = from; i < to; i++)
            write_node_row(out, &v->nodes.node[i], v);
        fputs("</tbody></table></div></div>\n", out);
        return;
    }
    html_print(out, "<h3>%s … %s</h3><ul class=\"cells\">\n",
               field_text(v->nodes.node[from].json, "host"),
               field_text(v->nodes.node[to - 1].json, "host"));
    for (size_t i = from; i < to; i++)
        write_node_cell(out, &v->nodes.node[i], v);
    fputs("</ul></div>\n", out);
}
