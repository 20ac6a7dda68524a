// Feeds every file of a folder to a fuzz target: the committed corpus as a test.
// SPDX-License-Identifier: Apache-2.0
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void feed(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) return;
    static uint8_t data[1 << 20];
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    uint8_t *exact = malloc(n ? n : 1); // so that a sanitizer sees the end
    for (size_t i = 0; exact && i < n; i++) exact[i] = data[i];
    if (exact) LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

int main(int argc, char **argv)
{
    int n = 0;
    DIR *d = argc > 1 ? opendir(argv[1]) : NULL;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.') continue;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], e->d_name);
        feed(path);
        n++;
    }
    if (d) closedir(d);
    printf("replayed %d files\n", n);
    return n > 0 ? 0 : 1;
}
