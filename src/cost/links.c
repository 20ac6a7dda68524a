// Links between ranks: what a pair has that is not simply two ranks of one machine.
// Neighbours: cost.h (contract and the text), machine.c (the file has them), run/price.c (who
// asks). SPDX-License-Identifier: Apache-2.0
#include "cost/cost.h"

#include <stdlib.h>

#define MOST_RANKS (INT64_C(1) << 20)

static bool read_whole(const char **s, int64_t *out)
{
    char *end;
    if (**s < '0' || **s > '9') return false;
    *out = strtoll(*s, &end, 10);
    *s = end;
    return *out <= MOST_RANKS;
}

static bool read_number(const char **s, double most, double *out)
{
    char *end;
    if (*(*s)++ != ':') return false;
    *out = asp_strtod(*s, &end);
    bool any = end != *s;
    *s = end;
    return any && *out > 0 && *out < most;
}

static bool read_link(const char **s, asp_link *out)
{
    asp_link l = {0};
    if (!read_whole(s, &l.ranks)) return false;
    if (**s == '-') {
        l.a = l.ranks;
        l.ranks = 0;
        ++*s;
        if (!read_whole(s, &l.b) || l.a == l.b) return false;
    } else if (l.ranks < 1)
        return false;
    if (!read_number(s, 1e9, &l.gbs) || !read_number(s, 1e9, &l.latency_us)) return false;
    *out = l;
    return true;
}

asp_status asp_links_parse(asp_ctx *cx, const char *text, asp_links *out_links)
{
    asp_links links = {0};
    for (const char *s = text; *s;) {
        if (links.n == ASP_MAX_LINKS)
            return asp_fail(cx, ASP_ERR_USAGE, "links '%.200s': at most %d are read", text,
                            ASP_MAX_LINKS);
        if (!read_link(&s, &links.at[links.n]) || (*s && *s != ','))
            return asp_fail(cx, ASP_ERR_USAGE,
                            "links '%.200s': entry %d is neither RANKS:GB/s:us, as 8:200:5 within "
                            "groups of 8 neighbours, nor RANK-RANK:GB/s:us, as 0-3:10:50",
                            text, links.n + 1);
        links.n++;
        if (*s == ',') s++;
    }
    *out_links = links;
    return ASP_OK;
}

const asp_link *asp_links_find(const asp_links *links, int64_t a, int64_t b)
{
    for (int i = 0; i < links->n; i++) {
        const asp_link *l = &links->at[i];
        if (l->ranks ? a / l->ranks == b / l->ranks
                     : (a == l->a && b == l->b) || (a == l->b && b == l->a))
            return l;
    }
    return NULL;
}
