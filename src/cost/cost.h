// How long things take: what a machine can do, the share of one rank, and times of the cost classes
// of ir/op.def as functions of plain numbers.  Nothing is measured here; `autosp bench` measures
// and writes the machine file.
// Neighbours: kern/kern.h (instruction sets), machine.def (the built-in table), machine.c (the
// file), time.c (estimates), call.c (of an op's call); pass/ and run/ ask. SPDX-License-Identifier:
// Apache-2.0
#pragma once

#include "base/base.h"
#include "kern/kern.h"

// ---- links ---------------------------------------------------------------------------------

// What ranks are linked by where that is more than one machine's memory.  As text: entries with
// commas between them, the first that fits a pair counts.
//   8:200:5     two ranks of one group of 8 neighbours: GB/s, microseconds
//   0-3:10:50   ranks 0 and 3
// A pair that no entry names copies within its machine, with the cores that compute; over a link
// that is named data moves by itself.
#define ASP_MAX_LINKS 16
#define ASP_LINKS_BYTES 512

typedef struct asp_link {
    int64_t ranks;          // of a group; 0: the pair a, b alone
    int64_t a, b;           // ranks
    double gbs, latency_us; // one way
} asp_link;

typedef struct asp_links {
    int n;
    asp_link at[ASP_MAX_LINKS];
} asp_links;

asp_status asp_links_parse(asp_ctx *cx, const char *text, asp_links *out_links); // "": none
const asp_link *asp_links_find(const asp_links *links, int64_t a, int64_t b);    // NULL: none

// ---- machines ------------------------------------------------------------------------------

#define ASP_MACHINE_NAME_BYTES 128

typedef struct asp_machine {
    char cpu[ASP_MACHINE_NAME_BYTES];         // "AMD EPYC 9B45", or "built-in avx2"
    int cores;                                // that this process may use
    int64_t memory_bytes;                     // of the whole machine
    double fma_gflops;                        // one core, registers only, 32 bit
    double triad_gbs, triad_all_gbs;          // one core; all of them
    double exchange_gbs;                      // received by a rank from its peers, all at once
    double latency_us;                        // of an exchange of nothing
    double gemm_fraction, attention_fraction; // of fma_gflops that the kernels reach
    char links[ASP_LINKS_BYTES];              // "": none; a file need not have it
} asp_machine;

// The table's row for an instruction set.
asp_machine asp_machine_builtin(asp_isa isa, int cores, int64_t memory_bytes);

// $AUTOSP_MACHINE, else ~/.config/autosp/machine.json; false where neither can be named or the
// variable is empty.
bool asp_machine_path(char *path, size_t path_bytes);

// A file that is not there is ASP_OK with *out_found false and the table's row for this machine.
// A malformed one fails naming line and column, or the key and what it must be.
asp_status asp_machine_read(asp_ctx *cx, const char *path, asp_machine *out_machine,
                            bool *out_found);

// Writes beside the file, syncs, renames; makes the folder.
asp_status asp_machine_write(asp_ctx *cx, const char *path, const asp_machine *m);

// What planning uses: the file at asp_machine_path, else the table.  A file that AUTOSP_MACHINE
// names must be there.
asp_status asp_machine_find(asp_ctx *cx, asp_machine *out_machine);

// ---- one rank's share ----------------------------------------------------------------------

typedef struct asp_device {
    double fma_gflops, triad_gbs, exchange_gbs; // of the whole rank
    double latency_us;
    double gemm_fraction, attention_fraction;
    int64_t memory_bytes;
} asp_device;

// Of `ranks` ranks on this machine, each with `threads` threads.  Threads beyond the cores add
// nothing.
asp_device asp_device_of_rank(const asp_machine *m, int ranks, int threads);

// ---- operations ----------------------------------------------------------------------------

// Floating-point operations.  Attention: per head, q rows against k rows of head size d (of v: e);
// causal counts the half that is not masked.
double asp_flops_gemm(int64_t m, int64_t n, int64_t k);
double asp_flops_sdpa(int64_t heads, int64_t q, int64_t k, int64_t d, int64_t e, bool causal);
double asp_flops_sdpa_grad(int64_t heads, int64_t q, int64_t k, int64_t d, int64_t e, bool causal);

// Of one call of an op whose shapes and attributes stand; 0 where moving bytes is all there is.
double asp_flops_call(asp_op op, const asp_kcall *k);
// Of attention, by the rank of the call; cost: SDPA or SDPA_GRAD.
double asp_flops_attention(asp_cost_class cost, const asp_kcall *k);
// ... that the kernels take the time of: asp_sdpa_block_pairs.
double asp_flops_attention_blocks(asp_cost_class cost, const asp_kcall *k);

// ---- times, in seconds ---------------------------------------------------------------------

// STREAM: bytes read and written.
double asp_time_stream(const asp_device *d, int64_t bytes);
// GEMM: the longer of computing and of touching the operands' bytes.
double asp_time_gemm(const asp_device *d, int64_t m, int64_t n, int64_t k, int64_t bytes);
// SDPA, SDPA_GRAD: flops from above.
double asp_time_attention(const asp_device *d, double flops, int64_t bytes);
// LINK: bytes received (asp_comm_bytes); an exchange of nothing costs its latency.
double asp_time_link(const asp_device *d, int64_t bytes);

// One call of any op, by its class.  Views take none.
double asp_time_call(const asp_device *d, asp_op op, const asp_kcall *k);

// As a price for the cuts: whole nanoseconds, at least 0, at most INT64_MAX / 4096.
int64_t asp_price_ns(double seconds);
