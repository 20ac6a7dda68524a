// Runs tests/golden/<pass>/*.ir.  ASP_UPDATE=1 in the environment rewrites the files that differ:
// review what it did.  SPDX-License-Identifier: Apache-2.0
#include "pass/golden.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

static int n_files, n_wrong;

static char *read_all(asp_arena *a, const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("cannot open %s", path);
    asp_text t;
    char buf[4096];
    asp_text_init(&t, a);
    asp_put(&t, "%s", "");
    for (size_t n; (n = fread(buf, 1, sizeof buf, f)) > 0;) asp_put_bytes(&t, buf, n);
    fclose(f);
    return t.at;
}

static void update(const char *path, const asp_text *t)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(t->at, 1, t->n, f) != t->n || fclose(f)) fail_msg("cannot write %s", path);
}

static void run_file(asp_ctx *cx, const char *path)
{
    asp_arena a;
    asp_text actual;
    asp_arena_init(&a, cx);
    asp_text_init(&actual, &a);
    const char *text = read_all(&a, path), *name = strstr(path, "tests/golden/");
    asp_status s = asp_golden_run(cx, name, text, strlen(text), &actual);
    n_files++;
    if (s == ASP_ERR_CHECK && getenv("ASP_UPDATE"))
        update(path, &actual);
    else if (s < 0) {
        n_wrong++;
        print_error("%s\n", cx->message);
    }
    asp_arena_fini(&a);
}

static void golden_files_are_as_written(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_ctx_init(&cx);
    const char *root = ASP_SOURCE_DIR "/tests/golden";
    struct dirent **folders, **files;
    int n = scandir(root, &folders, NULL, alphasort);
    assert_true(n >= 0);
    for (int i = 0; i < n; free(folders[i++])) {
        char folder[1024], path[2048];
        snprintf(folder, sizeof folder, "%s/%s", root, folders[i]->d_name);
        int m = folders[i]->d_name[0] == '.' ? 0 : scandir(folder, &files, NULL, alphasort);
        for (int j = 0; j < m; free(files[j++])) {
            const char *dot = strrchr(files[j]->d_name, '.');
            if (!dot || strcmp(dot, ".ir") != 0) continue;
            snprintf(path, sizeof path, "%s/%s", folder, files[j]->d_name);
            run_file(&cx, path);
        }
        if (folders[i]->d_name[0] != '.' && m >= 0) free(files);
    }
    free(folders);
    assert_true(n_files > 0);
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden_files_are_as_written)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
