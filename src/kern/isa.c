// The instruction set level of this processor.  A file of its own: cost/ asks for it without any
// kernel.  Neighbours: kern.h (contract), kern.c (chooses by it), vec.h (what a level means).
// SPDX-License-Identifier: Apache-2.0
#include "kern/kern.h"

#include <stdlib.h>

#define LEVELS 3
static const char *const level_names[LEVELS] = {"generic", "avx2", "avx512"};

const char *asp_isa_name(asp_isa isa) { return level_names[isa]; }

static asp_isa isa_of_cpu(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return ASP_ISA_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return ASP_ISA_AVX2;
#endif
    return ASP_ISA_GENERIC;
}

asp_isa asp_isa_best(void)
{
    asp_isa best = isa_of_cpu();
    const char *wish = getenv("ASP_ISA");
    for (int i = 0; wish && i < LEVELS; i++)
        if (!strcmp(wish, level_names[i]) && (asp_isa)i < best) return (asp_isa)i;
    return best;
}

bool asp_isa_has_bf16(void)
{
#if defined(__x86_64__)
    const char *wish = getenv("ASP_ISA");
    if (wish && !strcmp(wish, level_names[ASP_ISA_AVX512])) return false;
    return asp_isa_best() == ASP_ISA_AVX512 && __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}
