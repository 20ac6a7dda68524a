// The built-in rates and the machine file, a flat JSON object with one key per field.
// Neighbours: cost.h (contract), machine.def (the table); `autosp bench` writes the file.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "base/json.h"
#include "cost/cost.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_PATH_BYTES 4096
#define MAX_FILE_BYTES ((size_t)1 << 20)

// ---- the table -----------------------------------------------------------------------------

asp_machine asp_machine_builtin(asp_isa isa, int cores, int64_t memory_bytes)
{
    static const struct {
        const char *cpu;
        double rates[7];
    } rows[] = {
#define MACHINE(name, ...) [ASP_ISA_##name] = {"built-in " #name, {__VA_ARGS__}},
#include "cost/machine.def"
    };
    const double *r = rows[isa].rates;
    asp_machine m = {.cores = cores,
                     .memory_bytes = memory_bytes,
                     .fma_gflops = r[0],
                     .triad_gbs = r[1],
                     .triad_all_gbs = cores > 1 ? r[2] : r[1],
                     .exchange_gbs = r[3],
                     .latency_us = r[4],
                     .gemm_fraction = r[5],
                     .attention_fraction = r[6]};
    snprintf(m.cpu, sizeof m.cpu, "%s", rows[isa].cpu);
    return m;
}

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

static asp_machine builtin_here(void)
{
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return asp_machine_builtin(asp_isa_best(), usable_cores(), memory);
}

// ---- reading -------------------------------------------------------------------------------

typedef enum kind { WHOLE, POSITIVE, FRACTION } kind;

typedef struct key {
    const char *name;
    size_t offset;
    size_t bytes;
    kind kind;
} key;

#define KEY(name, kind)                                                            \
    {                                                                              \
#name, offsetof(asp_machine, name), sizeof(((asp_machine *)0)->name), kind \
    }

static const key keys[] = {
    KEY(cores, WHOLE),         KEY(memory_bytes, WHOLE),     KEY(fma_gflops, POSITIVE),
    KEY(triad_gbs, POSITIVE),  KEY(triad_all_gbs, POSITIVE), KEY(exchange_gbs, POSITIVE),
    KEY(latency_us, POSITIVE), KEY(gemm_fraction, FRACTION), KEY(attention_fraction, FRACTION),
};

static const char *const wanted[] = {
    [WHOLE] = "a whole number above 0",
    [POSITIVE] = "a number above 0 and below 1e9",
    [FRACTION] = "a number above 0 and at most 1",
};

static bool take(const key *k, const json_t *v, asp_machine *m)
{
    char *field = (char *)m + k->offset;
    if (k->kind == WHOLE) {
        int64_t n = json_integer_value(v), limit = k->bytes == sizeof(int) ? 65536 : INT64_MAX;
        if (!json_is_integer(v) || n < 1 || n > limit) return false;
        int small = (int)n;
        memcpy(field, k->bytes == sizeof(int) ? (void *)&small : (void *)&n, k->bytes);
        return true;
    }
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x > 0) || x > (k->kind == FRACTION ? 1.0 : 1e9)) return false;
    memcpy(field, &x, sizeof x);
    return true;
}

static asp_status take_links(asp_ctx *cx, const char *path, const json_t *v, asp_machine *m)
{
    asp_links links;
    const char *text = v ? json_string_value(v) : "";
    if (!text || strlen(text) >= sizeof m->links)
        return asp_fail(cx, ASP_ERR_INPUT, "%s: `links` must be a text of less than %zu bytes",
                        path, sizeof m->links);
    ASP_TRY_NOTE(cx, asp_links_parse(cx, text, &links), "%s", path);
    snprintf(m->links, sizeof m->links, "%s", text);
    return ASP_OK;
}

static asp_status parse(asp_ctx *cx, const char *path, const json_t *root, asp_machine *m)
{
    const json_t *cpu = json_object_get(root, "cpu");
    if (!json_is_object(root) || !json_is_string(cpu))
        return asp_fail(cx, ASP_ERR_INPUT,
                        "%s: not a machine file (an object with a text `cpu`); `autosp bench` "
                        "writes one",
                        path);
    snprintf(m->cpu, sizeof m->cpu, "%s", json_string_value(cpu));
    for (size_t i = 0; i < ASP_COUNT_OF(keys); i++)
        if (!take(&keys[i], json_object_get(root, keys[i].name), m))
            return asp_fail(cx, ASP_ERR_INPUT,
                            "%s: `%s` must be %s; `autosp bench` writes the file anew", path,
                            keys[i].name, wanted[keys[i].kind]);
    return take_links(cx, path, json_object_get(root, "links"), m);
}

asp_status asp_machine_read(asp_ctx *cx, const char *path, asp_machine *out_machine,
                            bool *out_found)
{
    json_t *root;
    asp_machine m = {0};
    if (!asp_path_exists(path)) {
        *out_machine = builtin_here();
        *out_found = false;
        return ASP_OK;
    }
    asp_status s = asp_json_read(cx, path, MAX_FILE_BYTES, &root);
    if (s == ASP_ERR_INPUT) {
        char why[ASP_MESSAGE_BYTES];
        snprintf(why, sizeof why, "%s", cx->message);
        return asp_fail(cx, s, "not a machine file: %.3000s; `autosp bench` writes the file anew",
                        why);
    }
    ASP_TRY(s);
    s = parse(cx, path, root, &m);
    json_decref(root);
    if (s < 0) return s;
    *out_machine = m;
    *out_found = true;
    return ASP_OK;
}

// ---- writing -------------------------------------------------------------------------------

static json_t *as_json(const asp_machine *m)
{
    json_t *root = json_pack("{s:s}", "cpu", m->cpu);
    if (root && *m->links && json_object_set_new(root, "links", json_string(m->links)) != 0) {
        json_decref(root);
        return NULL;
    }
    for (size_t i = 0; root && i < ASP_COUNT_OF(keys); i++) {
        const char *field = (const char *)m + keys[i].offset;
        double x;
        int64_t n;
        int small;
        json_t *v = NULL;
        if (keys[i].kind != WHOLE)
            v = json_real((memcpy(&x, field, sizeof x), x));
        else if (keys[i].bytes == sizeof small)
            v = json_integer((memcpy(&small, field, sizeof small), small));
        else
            v = json_integer((memcpy(&n, field, sizeof n), n));
        if (json_object_set_new(root, keys[i].name, v) != 0) {
            json_decref(root);
            root = NULL;
        }
    }
    return root;
}

asp_status asp_machine_write(asp_ctx *cx, const char *path, const asp_machine *m)
{
    char folder[MAX_PATH_BYTES];
    const char *slash = strrchr(path, '/');
    if (strlen(path) >= sizeof folder)
        return asp_fail(cx, ASP_ERR_USAGE, "the path of the machine file is longer than %d bytes",
                        MAX_PATH_BYTES);
    json_t *root = as_json(m);
    char *text = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(root);
    if (!text) return asp_fail(cx, ASP_ERR_NOMEM, "the machine refused memory for %s", path);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    asp_status s = *folder ? asp_folder_make(cx, folder) : ASP_OK;
    if (s == ASP_OK) s = asp_file_write_whole(cx, path, text, strlen(text));
    free(text);
    return s < 0
               ? asp_note(cx, s, "%s cannot be written; name another file in AUTOSP_MACHINE", path)
               : ASP_OK;
}

// ---- finding -------------------------------------------------------------------------------

bool asp_machine_path(char *path, size_t path_bytes)
{
    const char *named = getenv("AUTOSP_MACHINE"), *home = getenv("HOME");
    int n = -1;
    if (named && !named[0]) return false;
    if (named)
        n = snprintf(path, path_bytes, "%s", named);
    else if (home && home[0])
        n = snprintf(path, path_bytes, "%s/.config/autosp/machine.json", home);
    return n >= 0 && (size_t)n < path_bytes;
}

asp_status asp_machine_find(asp_ctx *cx, asp_machine *out_machine)
{
    char path[MAX_PATH_BYTES];
    const char *named = getenv("AUTOSP_MACHINE");
    asp_machine m = builtin_here();
    bool found = false;
    if (asp_machine_path(path, sizeof path)) ASP_TRY(asp_machine_read(cx, path, &m, &found));
    if (!found && named && named[0])
        return asp_fail(cx, ASP_ERR_INPUT,
                        "AUTOSP_MACHINE names %s, which is not there; `autosp bench` writes it",
                        named);
    *out_machine = m;
    return ASP_OK;
}
