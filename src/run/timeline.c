// A plan's memory over the steps of the program: as JSON for scripts, as a picture for people (time
// to the right, addresses upwards, a box for each value).  Neighbours: memplan.c (who places),
// plan.c.  SPDX-License-Identifier: Apache-2.0
#include "run/run_int.h"

static int64_t live_at(const asp_plan *p, uint32_t step)
{
    int64_t live = 0;
    for (uint32_t i = 0; i < p->blocks.n; i++)
        if (p->blocks.at[i].first <= step && step <= p->blocks.at[i].last)
            live += p->blocks.at[i].bytes;
    return live;
}

static void put_steps(const asp_plan *p, asp_text *t)
{
    for (uint32_t i = 0; i < p->steps.n; i++) {
        const asp_step *s = &p->steps.at[i];
        asp_put(t, "%s{\"step\": %u, \"op\": \"%s\", \"layer\": ", i ? ",\n  " : "  ", i, s->op);
        asp_put_quoted(t, s->loc);
        asp_put(t, ", \"direction\": \"%s\", \"live_bytes\": %lld",
                s->backward ? "backward" : "forward", (long long)live_at(p, i));
        if (s->trips > 1) asp_put(t, ", \"chunks\": %lld", (long long)s->trips);
        asp_put(t, "}");
    }
}

static void put_json(const asp_plan *p, asp_text *t)
{
    asp_put(t, "{\"arena_bytes\": %lld, \"peak_step\": %u, \"steps\": [\n",
            (long long)p->report.arena_bytes, p->peak_step);
    put_steps(p, t);
    asp_put(t, "\n], \"values\": [\n");
    for (uint32_t i = 0; i < p->blocks.n; i++) {
        const asp_plan_block *b = &p->blocks.at[i];
        asp_put(t, "%s{\"op\": \"%s\", \"layer\": ", i ? ",\n  " : "  ", b->op);
        asp_put_quoted(t, b->loc);
        asp_put(t,
                ", \"kind\": \"%s\", \"bytes\": %lld, \"offset\": %lld, \"first\": %u, \"last\": "
                "%u}",
                asp_mem_kind_name(b->kind), (long long)b->bytes, (long long)b->offset, b->first,
                b->last);
    }
    asp_put(t, "\n]}\n");
}

// ---- the picture -------------------------------------------------------------------------------

enum { WIDTH = 1200, HEIGHT = 600, MARGIN = 40 };

// Kept from the forward for the backward, made in one of them, scratch.
static const char *color_of(const asp_plan *p, const asp_plan_block *b)
{
    if (b->kind == ASP_MEM_WORKSPACE) return "#999999";
    const bool from = p->steps.at[b->first].backward, to = p->steps.at[b->last].backward;
    return !from && to ? "#4e79a7" : from ? "#e15759" : "#59a14f";
}

static void put_box(const asp_plan *p, const asp_plan_block *b, double x_unit, double y_unit,
                    asp_text *t)
{
    const double x = MARGIN + b->first * x_unit, width = (b->last - b->first + 1) * x_unit;
    const double height = (double)b->bytes * y_unit;
    const double y = HEIGHT - MARGIN - (double)b->offset * y_unit - height;
    asp_put(t,
            "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" "
            "stroke=\"white\" stroke-width=\"0.3\"><title>",
            x, y, width, height, color_of(p, b));
    for (const char *s = b->loc; *s; s++) // names are the user's
        asp_put(t, *s == '<' || *s == '&' || (unsigned char)*s < 0x20 ? "?" : "%c", *s);
    asp_put(t, " %s, %.2f MiB, steps %u to %u</title></rect>\n", b->op,
            (double)b->bytes / 1048576.0, b->first, b->last);
}

static void put_svg(const asp_plan *p, asp_text *t)
{
    const double x_unit = (double)(WIDTH - 2 * MARGIN) / (double)p->steps.n;
    const double y_unit = (double)(HEIGHT - 2 * MARGIN) / (double)asp_max(p->report.arena_bytes, 1);
    const double peak = MARGIN + (p->peak_step + 0.5) * x_unit;
    asp_put(t,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" "
            "fill=\"white\"/>\n",
            WIDTH, HEIGHT);
    for (uint32_t i = 0; i < p->blocks.n; i++) put_box(p, &p->blocks.at[i], x_unit, y_unit, t);
    asp_put(t, "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"black\"/>\n", peak, peak,
            MARGIN / 2, HEIGHT - MARGIN);
    asp_put(t,
            "<text x=\"%d\" y=\"%d\">%u steps, arena %.1f MiB, peak at step %u; blue: kept for the "
            "backward, green: forward, red: backward, grey: scratch</text>\n</svg>\n",
            MARGIN, HEIGHT - MARGIN / 2, p->steps.n, (double)p->report.arena_bytes / 1048576.0,
            p->peak_step + 1);
}

void asp_plan_put_timeline(const asp_plan *p, bool picture, asp_text *t)
{
    if (picture)
        put_svg(p, t);
    else
        put_json(p, t);
}
