// Maps keep insertion order, take any bytes as keys, and hash as xxhash says.
// SPDX-License-Identifier: Apache-2.0
#include "base/base.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void many_keys_in_order(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_map m;
    bool added;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_map_init(&m, &a);
    assert_int_equal(asp_map_find(&m, "x", 1), UINT32_MAX);
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t key = i * 2654435761u;
        assert_int_equal(asp_map_add(&m, &key, sizeof key, &added), i);
        assert_true(added);
        key = 0xffffffff; // the map has its own copy
    }
    for (uint32_t i = 0; i < 20000; i++) {
        uint32_t key = i * 2654435761u, kept;
        size_t bytes;
        assert_int_equal(asp_map_find(&m, &key, sizeof key), i);
        assert_int_equal(asp_map_add(&m, &key, sizeof key, &added), i);
        assert_false(added);
        memcpy(&kept, asp_map_key(&m, i, &bytes), sizeof kept);
        assert_int_equal(bytes, sizeof key);
        assert_int_equal(kept, key);
    }
    assert_int_equal(m.n, 20000);
    asp_arena_fini(&a);
}

static void keys_are_bytes(void **state)
{
    (void)state;
    asp_ctx cx;
    asp_arena a;
    asp_map m;
    asp_ctx_init(&cx);
    asp_arena_init(&a, &cx);
    asp_map_init(&m, &a);
    assert_int_equal(asp_map_add(&m, "", 0, NULL), 0);
    assert_int_equal(asp_map_add(&m, "a", 1, NULL), 1);
    assert_int_equal(asp_map_add(&m, "a\0b", 3, NULL), 2);
    assert_int_equal(asp_map_add(&m, "a\0c", 3, NULL), 3);
    assert_int_equal(asp_map_find(&m, "", 0), 0);
    assert_int_equal(asp_map_add(&m, NULL, 0, NULL), 0); // what an empty array is
    assert_int_equal(asp_map_find(&m, NULL, 0), 0);
    assert_int_equal(asp_map_find(&m, "a\0b", 3), 2);
    assert_int_equal(asp_map_find(&m, "a\0b", 2), UINT32_MAX);
    assert_string_equal(asp_map_key(&m, 1, NULL), "a"); // terminated
    asp_arena_fini(&a);
}

static void hash_is_xxh3(void **state)
{
    (void)state;
    assert_true(asp_hash("", 0, 0) == 0x2d06800538d394c2); // published for the empty input
    assert_true(asp_hash("abc", 3, 0) != asp_hash("abc", 3, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_keys_in_order),
        cmocka_unit_test(keys_are_bytes),
        cmocka_unit_test(hash_is_xxh3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
