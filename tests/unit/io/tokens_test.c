// Training data: one stream over files of bytes and of token numbers; what is refused, and how.
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "unit/scratch.h"

static asp_ctx cx;

static void starts_with_file(const char *path, const char *rest)
{
    assert_memory_equal(cx.message, path, strlen(path));
    if (!strstr(cx.message, rest)) fail_msg("\"%s\" not in: %s", rest, cx.message);
}

static asp_status open_one(const char *path, int64_t least, int64_t vocab, asp_tokens **out)
{
    asp_ctx_init(&cx);
    return asp_tokens_open(&cx, &path, 1, least, vocab, out);
}

static void refused(const char *path, int64_t least, int64_t vocab, const char *rest)
{
    asp_tokens *t = NULL;
    assert_int_equal(open_one(path, least, vocab, &t), ASP_ERR_INPUT);
    starts_with_file(path, rest);
    assert_null(t);
}

static void one_stream_over_files(void **state)
{
    (void)state;
    static const unsigned char words[] = {1, 0, 0xff, 0xff, 0x34, 0x12};
    static const unsigned char longs[] = {0x78, 0x56, 0x34, 0x12, 7, 0, 0, 0};
    const char *paths[] = {scratch_text("a.txt", "ab\xff"), scratch_write("b.u16", words, 6),
                           scratch_write("c.u32", longs, 8), scratch_text("d", "z")};
    static const int64_t expected[] = {'a', 'b', 0xff, 1, 0xffff, 0x1234, 0x12345678, 7, 'z'};
    asp_tokens *t;
    asp_ctx_init(&cx);
    assert_int_equal(asp_tokens_open(&cx, paths, 4, 9, 0x12345679, &t), ASP_OK);
    assert_int_equal(asp_tokens_count(t), 9);
    for (int64_t start = 0; start <= 9; start++)
        for (int64_t n = 0; start + n <= 9; n++) {
            int64_t window[10];
            memset(window, 0xff, sizeof window);
            asp_tokens_window(t, start, n, window);
            assert_memory_equal(window, expected + start, (size_t)n * sizeof *window);
            assert_int_equal(window[n], -1);
        }
    asp_tokens_close(t);
    asp_tokens_close(NULL);
}

static void hash_is_of_content(void **state)
{
    (void)state;
    const char *same[] = {scratch_text("a", "text"), scratch_text("b", "text")};
    const char *others[] = {scratch_text("c", "texs"), scratch_text("d.u16", "text")};
    uint64_t first = 0;
    for (int i = 0; i < 4; i++) {
        asp_tokens *t;
        assert_int_equal(open_one(i < 2 ? same[i] : others[i - 2], 1, 1 << 16, &t), ASP_OK);
        if (i == 0) first = asp_tokens_hash(t);
        assert_int_equal(asp_tokens_hash(t) == first, i < 2); // other bytes, or read otherwise
        asp_tokens_close(t);
    }
}

static void bad_files(void **state)
{
    (void)state;
    asp_tokens *t = NULL;
    const char *missing = scratch_path("missing");
    assert_int_equal(open_one(missing, 1, 256, &t), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, missing));
    assert_int_equal(open_one(scratch_folder, 1, 256, &t), ASP_ERR_IO);
    assert_non_null(strstr(cx.message, "not a plain file"));
    assert_int_equal(asp_tokens_open(&cx, NULL, 0, 1, 256, &t), ASP_ERR_USAGE);
    assert_non_null(strstr(cx.message, "--data"));
    refused(scratch_text("empty", ""), 1, 256, "is empty; leave it out");
    refused(scratch_text("odd.u16", "abc"), 1, 1 << 16, "3 bytes, not a whole number of 2-byte");
    refused(scratch_text("odd.u32", "abcde"), 1, 1 << 16, "5 bytes, not a whole number of 4-byte");
}

static void too_short(void **state)
{
    (void)state;
    asp_tokens *t = NULL;
    const char *paths[] = {scratch_text("a", "hundred"), scratch_text("b", "ten")};
    refused(paths[0], 8, 256, "7 tokens of data, but one sequence takes 8; give more --data");
    asp_ctx_init(&cx);
    assert_int_equal(asp_tokens_open(&cx, paths, 2, 11, 256, &t), ASP_ERR_INPUT);
    starts_with_file(paths[0], "and the others: 10 tokens of data, but one sequence takes 11");
    assert_null(t);
    assert_int_equal(asp_tokens_open(&cx, paths, 2, 10, 256, &t), ASP_OK);
    asp_tokens_close(t);
}

static void ids_against_the_vocabulary(void **state)
{
    (void)state;
    static const unsigned char words[] = {0, 0, 0xff, 1, 0, 2}; // 0, 511, 512
    static const unsigned char longs[] = {0, 0, 0, 0x80};       // no sign
    asp_tokens *t;
    const char *path = scratch_write("ids.u16", words, 6);
    refused(path, 1, 512, "token 2 is 512, but the model's vocabulary ends at 511");
    assert_int_equal(open_one(path, 1, 513, &t), ASP_OK);
    asp_tokens_close(t);
    refused(scratch_write("ids.u32", longs, 4), 1, 1 << 24, "token 0 is 2147483648");
    refused(scratch_text("bytes", "a"), 1, 255, "read as bytes, which needs a vocabulary of 256");
    assert_int_equal(open_one(scratch_text("bytes", "\xff"), 1, 256, &t), ASP_OK);
    asp_tokens_close(t);
}

// A failure in a later file closes the earlier ones.
static void failure_unmaps(void **state)
{
    (void)state;
    asp_tokens *t = NULL;
    const char *paths[] = {scratch_text("mapped", "abc"), scratch_text("last.u16", "x")};
    asp_ctx_init(&cx);
    assert_int_equal(asp_tokens_open(&cx, paths, 2, 1, 256, &t), ASP_ERR_INPUT);
    assert_false(scratch_is_mapped());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stream_over_files),
        cmocka_unit_test(hash_is_of_content),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(too_short),
        cmocka_unit_test(ids_against_the_vocabulary),
        cmocka_unit_test(failure_unmaps),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
