// safetensors: hand-made files read, every way a header can lie refused, elements converted,
// shards, files written and read back, refused memory.
// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include "unit/scratch.h"

static asp_ctx cx;
static asp_arena arena;

static int start(void **state)
{
    (void)state;
    asp_ctx_init(&cx);
    asp_arena_init(&arena, &cx);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    asp_arena_fini(&arena);
    return 0;
}

// A file of this header and data; *bytes tells its length.  malloc, so that sanitizers see the end.
static unsigned char *make(const char *header, const void *data, size_t data_bytes, size_t *bytes)
{
    size_t n = strlen(header);
    *bytes = 8 + n + data_bytes;
    unsigned char *file = calloc(1, *bytes);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, n);
    if (data) memcpy(file + 8 + n, data, data_bytes);
    return file;
}

static asp_status parse(const char *header, size_t data_bytes)
{
    size_t bytes;
    unsigned char *file = make(header, NULL, data_bytes, &bytes);
    asp_safetensors s;
    asp_safetensors_init(&s, &arena, "w.safetensors");
    asp_status status = asp_safetensors_parse(&s, "w.safetensors", file, bytes);
    asp_safetensors_close(&s);
    free(file);
    return status;
}

static void expect_message(const char *words)
{
    if (!strstr(cx.message, words)) fail_msg("\"%s\" not in: %s", words, cx.message);
}

static void reads_by_hand(void **state)
{
    (void)state;
    // In the order of neither names nor data; a tensor without elements; spaces behind.
    static const char header[] =
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[2,10]},"
        "\"__metadata__\":{\"format\":\"pt\"},"
        "\"none\":{\"dtype\":\"I64\",\"shape\":[3,0],\"data_offsets\":[2,2]},"
        "\"a\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[0,2]}}   ";
    static const unsigned char data[] = {0x00, 0x3c, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0};
    size_t bytes;
    unsigned char *file = make(header, data, sizeof data, &bytes);
    asp_safetensors s;
    asp_safetensors_init(&s, &arena, "w");
    assert_int_equal(asp_safetensors_parse(&s, "w", file, bytes), ASP_OK);
    assert_int_equal(s.tensors.n, 3);
    const asp_st_tensor *a = asp_safetensors_find(&s, "a"), *b = asp_safetensors_find(&s, "b"),
                        *none = asp_safetensors_find(&s, "none");
    assert_true(a && b && none && !asp_safetensors_find(&s, "c"));
    assert_null(asp_safetensors_find(&s, "__metadata__"));
    assert_true(a->rank == 0 && a->count == 1 && a->bytes == 2 && a->dtype == ASP_F16);
    assert_true(b->rank == 2 && b->dim[0] == 2 && b->dim[1] == 1 && b->bytes == 8);
    assert_true(none->rank == 2 && none->count == 0 && none->bytes == 0);
    assert_ptr_equal(b->data, file + bytes - 8);
    assert_string_equal(b->name, "b");
    float f32[2];
    double f64[2];
    assert_int_equal(asp_st_convert(&cx, b, ASP_F32, f32), ASP_OK);
    assert_int_equal(asp_st_convert(&cx, b, ASP_F64, f64), ASP_OK);
    assert_true(f32[0] == 1 && f32[1] == -2.5f && f64[0] == 1 && f64[1] == -2.5);
    assert_int_equal(asp_st_convert(&cx, a, ASP_F32, f32), ASP_OK);
    assert_true(f32[0] == 1);
    assert_int_equal(asp_st_convert(&cx, none, ASP_F32, f32), ASP_ERR_INPUT);
    expect_message("w: tensor \"none\" is i64; weights are");
    free(file);
}

static void bits_to_numbers(void **state)
{
    (void)state;
    static const struct {
        asp_dtype dtype;
        uint64_t bits;
        double value, as_f32;
    } rows[] = {
        {ASP_F16, 0x0000, 0, 0},
        {ASP_F16, 0x3555, 0.333251953125, 0.333251953125},
        {ASP_F16, 0xc000, -2, -2},
        {ASP_F16, 0x7bff, 65504, 65504},
        {ASP_F16, 0x0400, 0x1p-14, 0x1p-14},
        {ASP_F16, 0x03ff, 0x3ffp-24, 0x3ffp-24}, // the largest subnormal
        {ASP_F16, 0x8001, -0x1p-24, -0x1p-24},
        {ASP_F16, 0x7c00, (double)INFINITY, (double)INFINITY},
        {ASP_F16, 0xfc00, -(double)INFINITY, -(double)INFINITY},
        {ASP_BF16, 0x3f80, 1, 1},
        {ASP_BF16, 0xc049, -3.140625, -3.140625},
        {ASP_BF16, 0x0001, 0x1p-133, 0x1p-133},
        {ASP_BF16, 0xff80, -(double)INFINITY, -(double)INFINITY},
        {ASP_F32, 0x3dcccccd, 0x1.99999ap-4, 0x1.99999ap-4},
        {ASP_F64, 0x3ff0000010000000, 1 + 0x1p-24, 1},           // ties to even
        {ASP_F64, 0x3ff0000030000000, 1 + 0x3p-24, 1 + 0x2p-23}, // up
        {ASP_F64, 0x7fefffffffffffff, 0x1.fffffffffffffp1023, (double)INFINITY},
    };
    unsigned char bytes[9];
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_st_tensor t = {.dtype = rows[i].dtype, .count = 1, .data = bytes + 1}; // unaligned
        double f64;
        float f32;
        memcpy(bytes + 1, &rows[i].bits, 8);
        assert_int_equal(asp_st_convert(&cx, &t, ASP_F64, &f64), ASP_OK);
        assert_int_equal(asp_st_convert(&cx, &t, ASP_F32, &f32), ASP_OK);
        if (f64 != rows[i].value || (double)f32 != rows[i].as_f32)
            fail_msg("row %zu: %a and %a", i, f64, (double)f32);
    }
    static const struct {
        asp_dtype dtype;
        uint64_t bits;
    } nans[] = {{ASP_F16, 0x7c01}, {ASP_F16, 0xfe00}, {ASP_BF16, 0x7fc0}};
    for (size_t i = 0; i < ASP_COUNT_OF(nans); i++) {
        asp_st_tensor t = {.dtype = nans[i].dtype, .count = 1, .data = bytes + 1};
        float f32;
        memcpy(bytes + 1, &nans[i].bits, 8);
        assert_int_equal(asp_st_convert(&cx, &t, ASP_F32, &f32), ASP_OK);
        assert_true(isnan(f32));
    }
}

#define T(dtype, shape, offsets) \
    "\"t\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define U(offsets) ",\"u\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":" offsets "}"

static void lying_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data_bytes;
        const char *words;
    } rows[] = {
        {"{" T("F32", "[2]", "[0,8]") "}", 7,
         "tensor \"t\": data_offsets [0, 8] lie outside the file's 7"},
        {"{" T("F32", "[2]", "[8,16]") "}", 8,
         "lie outside the file's 8 bytes of data; it is truncated"},
        {"{" T("F32", "[2]", "[8,0]") "}", 8, "data_offsets [8, 0] are no range"},
        {"{" T("F32", "[2]", "[-8,0]") "}", 8, "data_offsets [-8, 0] are no range"},
        {"{" T("F32", "[2]", "[0,4]") "}", 8, "span 4 bytes, dtype and shape make 8"},
        {"{" T("F64", "[1]", "[0,4]") "}", 4, "span 4 bytes, dtype and shape make 8"},
        {"{" T("F32", "[1]", "[0,9223372036854775807]") "}", 4, "lie outside"},
        {"{" T("F32", "[1]", "[0,18446744073709551620]") "}", 4, "too big integer"},
        {"{" T("F32", "[1]", "[0,4.0]") "}", 4, "\"data_offsets\" must be two whole numbers"},
        {"{" T("F32", "[1]", "[0,4,8]") "}", 4, "\"data_offsets\" must be two whole numbers"},
        {"{" T("F32", "[1]", "4") "}", 4, "\"data_offsets\" must be two whole numbers"},
        {"{" T("F32", "[4294967296,4294967296]", "[0,4]") "}", 4, "its shape overflows 63 bits"},
        {"{" T("F32", "[4611686018427387904]", "[0,0]") "}", 0, "its bytes overflow 63 bits"},
        {"{" T("F32", "[9223372036854775807,9223372036854775807,0]", "[0,0]") "}", 0, "overflows"},
        {"{" T("F32", "[-1]", "[0,4]") "}", 4, "size 0 of \"shape\" is no whole number"},
        {"{" T("F32", "[1,true]", "[0,4]") "}", 4, "size 1 of \"shape\" is no whole number"},
        {"{" T("F32", "[1,1,1,1,1,1,1]", "[0,4]") "}", 4, "a list of at most 6 sizes"},
        {"{" T("F32", "1", "[0,4]") "}", 4, "a list of at most 6 sizes"},
        {"{" T("F8_E4M3", "[4]", "[0,4]") "}", 4,
         "w.safetensors: tensor \"t\": its dtype is \"F8_E4M3\"; known here are F32, F64, BF16"},
        {"{" T("f32", "[1]", "[0,4]") "}", 4, "its dtype is \"f32\""},
        {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"dtype\" is missing"},
        {"{\"t\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
         "\"dtype\" is missing or no"},
        {"{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "\"shape\" must be"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "\"data_offsets\" must be"},
        {"{\"t\":[1]}", 0, "tensor \"t\": its entry must be an object"},
        {"{\"t\":null}", 0, "tensor \"t\": its entry must be an object"},
        {"{" T("F32", "[1]", "[0,4]") "," T("F32", "[1]", "[4,8]") "}", 8, "duplicate object key"},
        {"{" T("F32", "[2]", "[0,8]") U("[4,8]") "}", 8,
         "tensor \"u\" overlaps \"t\" at data byte 4"},
        {"{" T("F32", "[2]", "[0,8]") U("[0,4]") "}", 8,
         "tensor \"t\" overlaps \"u\" at data byte 0"},
        {"{" T("F32", "[2]", "[4,12]") "}", 12,
         "data bytes 0 to 4, before tensor \"t\", belong to none"},
        {"{" T("F32", "[2]", "[0,8]") U("[12,16]") "}", 16,
         "data bytes 8 to 12, before tensor \"u\""},
        {"{" T("F32", "[2]", "[0,8]") "}", 9, "data bytes 8 to 9 belong to no tensor"},
        {"{}", 1, "data bytes 0 to 1 belong to no tensor"},
        {"{\"__metadata__\":{\"step\":1}}", 0, "__metadata__ must be an object of strings"},
        {"{\"__metadata__\":\"pt\"}", 0, "__metadata__ must be an object of strings"},
        {"", 0, "the header does not begin with {"},
        {" {}", 0, "the header does not begin with {"},
        {"[]", 0, "the header does not begin with {"},
        {"{\"t\":", 0, "the safetensors header: w.safetensors:1:5: "},
        {"{}{}", 0, "w.safetensors:1:3: "},
        {"{\"\\ud800\":1}", 0, "w.safetensors:1:"},
        {"{\"a\\u0000b\":1}", 0, "w.safetensors:1:"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        assert_int_equal(parse(rows[i].header, rows[i].data_bytes), ASP_ERR_INPUT);
        assert_non_null(strstr(cx.message, "w.safetensors"));
        expect_message(rows[i].words);
    }
    assert_int_equal(parse("{" T("F32", "[2]", "[0,8]") U("[8,12]") "}", 12), ASP_OK);
    assert_int_equal(parse("{}", 0), ASP_OK);
}

static void no_header(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *words;
    } rows[] = {
        {"", 0, "0 bytes are too few"},
        {"\2\0\0\0\0\0\0", 7, "7 bytes are too few"},
        {"\0\0\0\0\0\0\0\0", 8, "does not begin with {"},
        {"\3\0\0\0\0\0\0\0{}", 10, "the header claims 3 bytes, the file has 10"},
        {"\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "the header claims 18446744073709551615 bytes"},
        {"\xf8\xff\xff\xff\xff\xff\xff\x7f{}", 10, "it is truncated or no safetensors file"},
        {"version https://git-lfs.github.com/spec/v1", 42, "is a Git LFS pointer"},
    };
    for (size_t i = 0; i < ASP_COUNT_OF(rows); i++) {
        asp_safetensors s;
        const char *path = scratch_write("w.safetensors", rows[i].bytes, rows[i].n);
        assert_int_equal(asp_safetensors_open(&arena, path, &s), ASP_ERR_INPUT);
        assert_memory_equal(cx.message, path, strlen(path));
        expect_message(rows[i].words);
        assert_false(scratch_is_mapped());
    }
    // As long as it says, and too long for a header: refused before it is read.
    asp_safetensors s;
    const char *path = scratch_write("w.safetensors", "\1\0\100\6\0\0\0\0{", 9); // 100 MiB + 1
    assert_int_equal(truncate(path, (100 << 20) + 4096), 0);
    assert_int_equal(asp_safetensors_open(&arena, path, &s), ASP_ERR_INPUT);
    expect_message("a header of 104857601 bytes is beyond the format's 104857600");
    unlink(path);
}

static void wanted(void **state)
{
    (void)state;
    size_t bytes;
    unsigned char *file = make("{" T("F32", "[2,3]", "[0,24]") "}", NULL, 24, &bytes);
    static const int64_t fine[] = {2, 3}, turned[] = {3, 2};
    const asp_st_tensor *t = NULL;
    asp_safetensors s;
    asp_safetensors_init(&s, &arena, "dir");
    assert_int_equal(asp_safetensors_parse(&s, "dir/w", file, bytes), ASP_OK);
    assert_int_equal(asp_safetensors_want(&s, "t", 2, turned, &t), ASP_ERR_INPUT);
    expect_message("dir/w: tensor \"t\" is [2, 3], the model's config.json makes it [3, 2]");
    assert_int_equal(asp_safetensors_want(&s, "t", 1, fine, &t), ASP_ERR_INPUT);
    expect_message("makes it [2]");
    assert_int_equal(asp_safetensors_want(&s, "model.t", 2, fine, &t), ASP_ERR_INPUT);
    expect_message("dir: tensor \"model.t\" of the model is missing among its 1 (\"t\", ...)");
    assert_null(t);
    assert_int_equal(asp_safetensors_want(&s, "t", 2, fine, &t), ASP_OK);
    assert_ptr_equal(t, asp_safetensors_find(&s, "t"));
    free(file);
}

// ---- folders -------------------------------------------------------------------------------

// A shard with one f32 [1] tensor.
static void write_shard(const char *file, const char *tensor, float value)
{
    char header[256];
    size_t bytes;
    snprintf(header, sizeof header,
             "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    unsigned char *all = make(header, &value, 4, &bytes);
    scratch_write(file, all, bytes);
    free(all);
}

static void open_folder(const char *index, asp_status status, const char *words)
{
    asp_safetensors s;
    scratch_text("model.safetensors.index.json", index);
    assert_int_equal(asp_safetensors_open(&arena, scratch_folder, &s), status);
    if (status == ASP_OK)
        asp_safetensors_close(&s);
    else
        expect_message(words);
    assert_false(scratch_is_mapped());
}

static void shards(void **state)
{
    (void)state;
    asp_safetensors s;
    assert_int_equal(asp_safetensors_open(&arena, scratch_folder, &s), ASP_ERR_INPUT);
    expect_message("holds neither model.safetensors nor model.safetensors.index.json");
    write_shard("1.safetensors", "a", 1);
    write_shard("2.safetensors", "b", 2);
    scratch_text("model.safetensors.index.json",
                 "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {"
                 "\"b\": \"2.safetensors\", \"a\": \"1.safetensors\"}}");
    assert_int_equal(asp_safetensors_open(&arena, scratch_folder, &s), ASP_OK);
    assert_int_equal(s.tensors.n, 2);
    for (int i = 0; i < 2; i++) {
        float v = 0;
        const asp_st_tensor *t = asp_safetensors_find(&s, i ? "b" : "a");
        assert_non_null(t);
        assert_int_equal(asp_st_convert(&cx, t, ASP_F32, &v), ASP_OK);
        assert_true(v == (i ? 2 : 1));
        assert_string_equal(t->file, scratch_path(i ? "2.safetensors" : "1.safetensors"));
    }
    asp_safetensors_close(&s);
    assert_false(scratch_is_mapped());
}

static void lying_indices(void **state)
{
    (void)state;
#define ONE "{\"weight_map\": {\"a\": \"1.safetensors\", "
    open_folder(ONE "\"c\": \"1.safetensors\"}}", ASP_ERR_INPUT,
                "tensor \"c\" should be in 1.safetensors but is in none of the files");
    open_folder(ONE "\"b\": \"1.safetensors\", \"c\": \"2.safetensors\"}}", ASP_ERR_INPUT,
                "tensor \"b\" should be in 1.safetensors but is in 2.safetensors");
    open_folder(ONE "\"b\": \"3.safetensors\"}}", ASP_ERR_IO, "3.safetensors: No such file");
    open_folder(ONE "\"b\": \"../2.safetensors\"}}", ASP_ERR_INPUT, "must be a plain name");
    open_folder(ONE "\"b\": \"/etc/passwd\"}}", ASP_ERR_INPUT, "must be a plain name");
    open_folder(ONE "\"b\": \"..\"}}", ASP_ERR_INPUT, "must be a plain name");
    open_folder(ONE "\"b\": \"\"}}", ASP_ERR_INPUT, "must be a plain name");
    open_folder(ONE "\"b\": 2}}", ASP_ERR_INPUT, "tensor \"b\" must be a plain name");
    open_folder("{\"weight_map\": {}}", ASP_ERR_INPUT, "\"weight_map\" is missing or empty");
    open_folder("{\"weight_map\": []}", ASP_ERR_INPUT, "\"weight_map\" is missing or empty");
    open_folder("{}", ASP_ERR_INPUT, "model.safetensors.index.json: \"weight_map\" is missing");
    open_folder("{\n\"weight_map\"", ASP_ERR_INPUT, "model.safetensors.index.json:2:");
    write_shard("3.safetensors", "a", 3);
    open_folder(ONE "\"b\": \"3.safetensors\"}}", ASP_ERR_INPUT, "tensor \"a\" is in ");
    // The whole file, where there is one, goes first.
    write_shard("model.safetensors", "a", 4);
    open_folder("{", ASP_OK, NULL);
    unlink(scratch_path("model.safetensors"));
}

// ---- writing -------------------------------------------------------------------------------

static void written_bytes(void **state)
{
    (void)state;
    static const float one = 1;
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},\"t\":{\"dtype\":\"F32\","
                                 "\"shape\":[1],\"data_offsets\":[0,4]}}";
    asp_st_tensor t = {.name = "t",
                       .dtype = ASP_F32,
                       .rank = 1,
                       .dim = {1},
                       .bytes = 4,
                       .data = (const unsigned char *)&one};
    const char *path = scratch_path("out.safetensors");
    int before = scratch_count();
    assert_int_equal(asp_safetensors_write(&cx, path, &t, 1), ASP_OK);
    assert_int_equal(asp_safetensors_write(&cx, path, &t, 1), ASP_OK); // over it
    assert_int_equal(scratch_count(), before + 1);                     // nothing beside it
    asp_file_map m;
    assert_int_equal(asp_file_map_open(&cx, path, &m), ASP_OK);
    size_t n = sizeof header - 1, padded = (n + 7) / 8 * 8;
    assert_true(n != padded);
    assert_int_equal(m.bytes, 8 + padded + 4);
    assert_int_equal(m.data[0], padded);
    assert_memory_equal(m.data + 1, "\0\0\0\0\0\0\0", 7);
    assert_memory_equal(m.data + 8, header, n);
    for (size_t i = n; i < padded; i++) assert_int_equal(m.data[8 + i], ' ');
    assert_memory_equal(m.data + 8 + padded, "\0\0\x80\x3f", 4);
    asp_file_map_close(&m);
    assert_int_equal(asp_safetensors_write(&cx, scratch_path("no/out.safetensors"), &t, 1),
                     ASP_ERR_IO);
    expect_message("no/out.safetensors");
    assert_int_equal(asp_safetensors_write(&cx, scratch_folder, &t, 1), ASP_ERR_IO);
    assert_int_equal(scratch_count(), before + 1);
}

static void every_dtype_round_trips(void **state)
{
    (void)state;
    unsigned char data[ASP_DTYPE_COUNT][48];
    asp_st_tensor in[ASP_DTYPE_COUNT + 2];
    char names[ASP_DTYPE_COUNT][32];
    int n = 0;
    for (; n < ASP_DTYPE_COUNT; n++) {
        snprintf(names[n], sizeof names[n], "t.%s \"%d\"\\\n\xc3\xa9", asp_dtypes[n].name, n);
        for (int i = 0; i < 48; i++) data[n][i] = (unsigned char)(i * 7 + n);
        in[n] = (asp_st_tensor){.name = names[n],
                                .dtype = (asp_dtype)n,
                                .rank = 3,
                                .dim = {1, 2, 3},
                                .bytes = 6 * asp_dtypes[n].bytes,
                                .data = data[n]};
    }
    in[n++] = (asp_st_tensor){.name = "scalar", .dtype = ASP_U8, .bytes = 1, .data = data[0]};
    in[n++] = (asp_st_tensor){.name = "none", .dtype = ASP_F32, .rank = 2, .dim = {0, 5}};
    const char *path = scratch_path("all.safetensors");
    asp_safetensors s;
    assert_int_equal(asp_safetensors_write(&cx, path, in, n), ASP_OK);
    assert_int_equal(asp_safetensors_open(&arena, path, &s), ASP_OK);
    assert_int_equal(s.tensors.n, n);
    for (int i = 0; i < n; i++) {
        const asp_st_tensor *t = asp_safetensors_find(&s, in[i].name);
        assert_non_null(t);
        assert_true(t->dtype == in[i].dtype && t->rank == in[i].rank && t->bytes == in[i].bytes);
        assert_memory_equal(t->dim, in[i].dim, sizeof t->dim);
        if (t->bytes) assert_memory_equal(t->data, in[i].data, (size_t)t->bytes);
    }
    asp_safetensors_close(&s);
    assert_int_equal(asp_safetensors_write(&cx, path, NULL, 0), ASP_OK);
    assert_int_equal(asp_safetensors_open(&arena, path, &s), ASP_OK);
    assert_int_equal(s.tensors.n, 0);
    asp_safetensors_close(&s);
}

// ---- refused memory ------------------------------------------------------------------------

static asp_status open_all(void)
{
    asp_safetensors s;
    asp_arena a;
    asp_arena_init(&a, &cx);
    asp_status status = asp_safetensors_open(&a, scratch_folder, &s);
    if (status == ASP_OK) asp_safetensors_close(&s);
    asp_arena_fini(&a);
    return status;
}

static asp_status write_all(void)
{
    static char names[200][200];
    static asp_st_tensor many[200];
    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "%0150d", i);
        many[i] = (asp_st_tensor){.name = names[i], .dtype = ASP_F32, .rank = 1, .dim = {0}};
    }
    return asp_safetensors_write(&cx, scratch_path("many.safetensors"), many, 200);
}

// The n-th allocation fails for n = 1, 2, ... until none does: a status every time, nothing leaks.
static void refused_memory(void **state)
{
    (void)state;
    asp_status (*const jobs[])(void) = {open_all, write_all};
    write_shard("1.safetensors", "a", 1);
    scratch_text("model.safetensors.index.json", ONE "\"a2\": \"2.safetensors\"}}");
    write_shard("2.safetensors", "a2", 1);
    setenv("ASP_ARENA", "malloc", 1); // every allocation can fail
    for (size_t j = 0; j < ASP_COUNT_OF(jobs); j++) {
        int failures = 0;
        for (int64_t n = 1;; n++) {
            cx.fail_allocation = n;
            asp_status status = jobs[j]();
            assert_false(scratch_is_mapped());
            if (status == ASP_OK) break;
            assert_int_equal(status, ASP_ERR_NOMEM);
            failures++;
        }
        cx.fail_allocation = 0;
        assert_true(failures >= 4);
    }
    unsetenv("ASP_ARENA");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, start, stop)
    const struct CMUnitTest tests[] = {
        TEST(reads_by_hand),  TEST(bits_to_numbers), TEST(lying_headers),
        TEST(no_header),      TEST(wanted),          TEST(shards),
        TEST(lying_indices),  TEST(written_bytes),   TEST(every_dtype_round_trips),
        TEST(refused_memory),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
