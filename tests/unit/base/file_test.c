// Files: read and mapped, written whole or not at all, folders.
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>

#include "unit/scratch.h"

static asp_ctx cx;

static void expect_message(const char *words)
{
    if (!strstr(cx.message, words)) fail_msg("\"%s\" not in: %s", words, cx.message);
}

static void expect_content(const char *path, const char *text)
{
    asp_arena a;
    char *content;
    size_t bytes;
    asp_arena_init(&a, &cx);
    assert_int_equal(asp_file_read(&a, path, 1 << 20, &content, &bytes), ASP_OK);
    assert_string_equal(content, text); // terminated
    assert_int_equal(bytes, strlen(text));
    asp_arena_fini(&a);
}

static void reads(void **state)
{
    (void)state;
    asp_arena a;
    char *text = NULL;
    size_t bytes;
    asp_ctx_init(&cx);
    expect_content(scratch_text("five", "12345"), "12345");
    expect_content(scratch_text("empty", ""), "");
    asp_arena_init(&a, &cx);
    assert_int_equal(asp_file_read(&a, scratch_path("five"), 4, &text, &bytes), ASP_ERR_INPUT);
    expect_message("five has 5 bytes; at most 4 are read");
    assert_int_equal(asp_file_read(&a, scratch_path("none"), 4, &text, &bytes), ASP_ERR_IO);
    expect_message("none: No such file or directory");
    assert_int_equal(asp_file_read(&a, scratch_folder, 4, &text, &bytes), ASP_ERR_IO);
    expect_message("not a plain file");
    assert_int_equal(mkfifo(scratch_path("pipe"), 0600), 0); // nobody writes: must not wait
    assert_int_equal(asp_file_read(&a, scratch_path("pipe"), 4, &text, &bytes), ASP_ERR_IO);
    expect_message("not a plain file");
    cx.fail_allocation = 1;
    assert_int_equal(asp_file_read(&a, scratch_path("five"), 5, &text, &bytes), ASP_ERR_NOMEM);
    expect_message("no memory for the 5 bytes of");
    assert_null(text);
    asp_arena_fini(&a);
}

static void maps(void **state)
{
    (void)state;
    asp_file_map m;
    asp_ctx_init(&cx);
    assert_int_equal(asp_file_map_open(&cx, scratch_text("m", "abc"), &m), ASP_OK);
    assert_int_equal(m.bytes, 3);
    assert_memory_equal(m.data, "abc", 3);
    assert_true(scratch_is_mapped());
    asp_file_map_close(&m);
    asp_file_map_close(&m); // harmless
    assert_false(scratch_is_mapped());
    assert_int_equal(asp_file_map_open(&cx, scratch_text("e", ""), &m), ASP_OK);
    assert_true(m.bytes == 0 && !m.data);
    asp_file_map_close(&m);
    assert_int_equal(asp_file_map_open(&cx, scratch_folder, &m), ASP_ERR_IO);
}

static void old_or_new(void **state)
{
    (void)state;
    asp_file_out f;
    asp_ctx_init(&cx);
    const char *path = scratch_text("kept", "old");
    int before = scratch_count();
    assert_int_equal(asp_file_create(&cx, path, &f), ASP_OK);
    asp_file_write(&f, "ne", 2);
    expect_content(path, "old"); // until it is committed
    asp_file_write(&f, "w", 1);
    asp_file_write(&f, NULL, 0);
    assert_int_equal(asp_file_commit(&f), ASP_OK);
    expect_content(path, "new");
    assert_int_equal(scratch_count(), before);
    assert_int_equal(asp_file_create(&cx, path, &f), ASP_OK);
    asp_file_write(&f, "half", 4);
    asp_file_abandon(&f);
    expect_content(path, "new");
    assert_int_equal(scratch_count(), before);
    assert_int_equal(asp_file_write_whole(&cx, path, "whole", 5), ASP_OK);
    expect_content(path, "whole");
}

static void failed_writes_leave_nothing(void **state)
{
    (void)state;
    static char page[8192];
    struct rlimit limit, small = {4096, 4096};
    asp_ctx_init(&cx);
    const char *path = scratch_text("kept", "old");
    int before = scratch_count();
    assert_int_equal(asp_file_write_whole(&cx, scratch_path("no/where"), "x", 1), ASP_ERR_IO);
    expect_message("no/where: No such file or directory");
    assert_int_equal(asp_file_write_whole(&cx, scratch_folder, "x", 1), ASP_ERR_IO);
    expect_message("rename to");
    // A full disk, played by a limit on the size of files.
    getrlimit(RLIMIT_FSIZE, &limit);
    small.rlim_max = limit.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    asp_status status = asp_file_write_whole(&cx, path, page, sizeof page);
    setrlimit(RLIMIT_FSIZE, &limit);
    assert_int_equal(status, ASP_ERR_IO);
    expect_message("kept: File too large");
    expect_content(path, "old");
    assert_int_equal(scratch_count(), before);
    char name[5000];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    assert_int_equal(asp_file_write_whole(&cx, name, "x", 1), ASP_ERR_IO);
    expect_message("is too long");
    assert_int_equal(asp_folder_make(&cx, name), ASP_ERR_IO);
    expect_message("is too long");
}

static void folders(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    const char *deep = scratch_path("x/y/z");
    assert_false(asp_path_exists(deep));
    assert_int_equal(asp_folder_make(&cx, deep), ASP_OK);
    assert_int_equal(asp_folder_make(&cx, deep), ASP_OK);
    assert_true(asp_path_is_folder(deep) && asp_path_exists(deep));
    scratch_text("x/y/z/file", "1");
    assert_false(asp_path_is_folder(scratch_path("x/y/z/file")));
    assert_int_equal(asp_folder_make(&cx, scratch_path("x/y/z/file")), ASP_ERR_IO);
    expect_message("file is there but is not a folder");
    assert_int_equal(asp_folder_make(&cx, scratch_path("x/y/z/file/more")), ASP_ERR_IO);
    assert_int_equal(asp_folder_make(&cx, ""), ASP_ERR_IO);
    assert_int_equal(asp_folder_sync(&cx, deep), ASP_OK);
    assert_int_equal(asp_folder_sync(&cx, scratch_path("none")), ASP_ERR_IO);
    assert_int_equal(asp_folder_remove(&cx, deep), ASP_OK);
    assert_false(asp_path_exists(deep));
    assert_int_equal(asp_folder_remove(&cx, deep), ASP_OK); // is not there
    assert_int_equal(asp_folder_make(&cx, deep), ASP_OK);
    assert_int_equal(asp_folder_remove(&cx, scratch_path("x")), ASP_ERR_IO); // holds a folder
    expect_message("cannot remove the folder");
    assert_true(asp_path_is_folder(deep));
}

static void memory_is_seen(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20 };
    int64_t before = asp_process_anon_bytes();
    volatile char *p = malloc(BYTES);
    assert_non_null((void *)(uintptr_t)p);
    for (size_t i = 0; i < BYTES; i += 4096) p[i] = 1;
    int64_t grown = asp_process_anon_bytes() - before;
    free((void *)(uintptr_t)p);
    assert_true(before > 0 && grown > BYTES * 9 / 10);
    double t = asp_seconds();
    assert_true(asp_seconds() >= t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads),      cmocka_unit_test(maps),
        cmocka_unit_test(old_or_new), cmocka_unit_test(failed_writes_leave_nothing),
        cmocka_unit_test(folders),    cmocka_unit_test(memory_is_seen),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
