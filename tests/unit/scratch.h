// A folder of its own for a test's files, removed at the end.  cmocka first.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/base.h"

#include <stdlib.h>
#include <unistd.h>

static char scratch_folder[] = "/tmp/autosp-test-XXXXXX";

ASP_UNUSED static int scratch_make(void **state)
{
    (void)state;
    return mkdtemp(scratch_folder) ? 0 : -1;
}

ASP_UNUSED static int scratch_remove(void **state)
{
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", scratch_folder);
    return system(command);
}

// The path of a file in it; valid until the sixth call after this one.
ASP_UNUSED static const char *scratch_path(const char *name)
{
    static char paths[6][256];
    static int at;
    char *path = paths[at++ % 6];
    snprintf(path, sizeof paths[0], "%s/%s", scratch_folder, name);
    return path;
}

ASP_UNUSED static const char *scratch_write(const char *name, const void *data, size_t bytes)
{
    const char *path = scratch_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) != 0) abort();
    return path;
}

ASP_UNUSED static const char *scratch_text(const char *name, const char *text)
{
    return scratch_write(name, text, strlen(text));
}

// How many entries the folder has.
ASP_UNUSED static int scratch_count(void)
{
    char command[96], line[32] = "";
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", scratch_folder);
    FILE *f = popen(command, "r");
    if (!f || !fgets(line, sizeof line, f)) abort();
    pclose(f);
    return atoi(line);
}

// Whether any file of it is mapped: leak checkers do not see maps.
ASP_UNUSED static bool scratch_is_mapped(void)
{
    char line[512];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) found |= strstr(line, scratch_folder) != NULL;
    if (f) fclose(f);
    return found;
}
