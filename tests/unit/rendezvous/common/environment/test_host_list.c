/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/environment/host_list.h"

#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

static const struct {
    const char *list, *names; /* names joined by blanks, NULL: an error */
} lists[] = {
    { "", "" },
    { " \n,", "" },
    { "n1", "n1" },
    { "n1,n2 n3\nn4", "n1 n2 n3 n4" },
    { "gpu[01-03]", "gpu01 gpu02 gpu03" },
    { "n[8-11]", "n8 n9 n10 n11" },
    { "n[08-10]", "n08 n09 n10" },
    { "n[099-101]", "n099 n100 n101" },
    { "n[0-2,5]-ib", "n0-ib n1-ib n2-ib n5-ib" },
    { "x[1-2]y[0-1]", "x1y0 x1y1 x2y0 x2y1" },
    { "a[1]b[2,4]c.d", "a1b2c.d a1b4c.d" },
    { "gpu[01-02],n[0-1,5]-ib,login", "gpu01 gpu02 n0-ib n1-ib n5-ib login" },
    { "[1-2]", "1 2" },
    { "10.0.0.[7-8],fe80::1", "10.0.0.7 10.0.0.8 fe80::1" },
    { "user@n[1-2]", "user@n1 user@n2" },
    { "n1,n1", "n1 n1" },
    { "n[1-2", NULL },
    { "n1-2]", NULL },
    { "n[]", NULL },
    { "n[,]", NULL },
    { "n[1,]", NULL },
    { "n[,1]", NULL },
    { "n[2-1]", NULL },
    { "n[-1]", NULL },
    { "n[1-]", NULL },
    { "n[1--2]", NULL },
    { "n[1-2-3]", NULL },
    { "n[a-c]", NULL },
    { "n[1 - 2]", NULL },
    { "n[[1]]", NULL },
    { "n[9999999999]", NULL },
    { "n[0-65536]", NULL },
    { "n[0-999][0-999][0-999][0-999]", NULL },
    { "n1;reboot", NULL },
    { "$(reboot)", NULL },
    { "n1/n2", NULL },
    { "n\x1b[1-2]", NULL },
};

TEST_EACH(a_list_has_these_hosts_or_is_refused, lists)
{
    struct host_list l;
    struct err e;
    char names[256] = "";
    int rc = host_list_expand(lists[_i].list, &l, &e);

    ck_assert_int_eq(rc, lists[_i].names ? 0 : -1);
    if (rc < 0) {
        ck_assert_ptr_null(l.name);
        ck_assert_uint_ne(strlen(e.text), 0);
        return;
    }
    for (size_t i = 0; i < l.count; i++) {
        strcat(names, i ? " " : "");
        strcat(names, l.name[i]);
    }
    ck_assert_str_eq(names, lists[_i].names);
    host_list_clear(&l);
}

TEST(the_limit_is_the_number_of_hosts)
{
    struct host_list l;
    struct err e;

    ck_assert_int_eq(host_list_expand("n[1-65536]", &l, &e), 0);
    ck_assert_uint_eq(l.count, HOST_LIST_MAX);
    ck_assert_str_eq(l.name[HOST_LIST_MAX - 1], "n65536");
    host_list_clear(&l);
    ck_assert_int_eq(host_list_expand("n[1-65536],m", &l, &e), -1);
    ck_assert_ptr_null(l.name);
}

TEST(a_name_has_a_limit)
{
    char list[400];
    struct host_list l;
    struct err e;

    memset(list, 'a', 256);
    list[255] = '\0';
    ck_assert_int_eq(host_list_expand(list, &l, &e), 0);
    host_list_clear(&l);
    strcpy(list + 255, "[1]");
    ck_assert_int_eq(host_list_expand(list, &l, &e), -1);
}

/* Whatever the bytes are, the result is a list within its limits or an error. */
TEST(random_bytes_do_no_harm)
{
    static const char letters[] = "n19[]-, .\n\x80";
    char list[24];
    struct host_list l;
    struct err e;

    srandom(1);
    for (int i = 0; i < 50000; i++) {
        size_t length = (size_t)random() % (sizeof(list) - 1);

        for (size_t j = 0; j < length; j++)
            list[j] = letters[(size_t)random() % (sizeof(letters) - 1)];
        list[length] = '\0';
        if (host_list_expand(list, &l, &e) < 0)
            continue;
        for (size_t j = 0; j < l.count; j++)
            ck_assert_uint_ne(strlen(l.name[j]), 0);
        host_list_clear(&l);
    }
}

static const struct {
    const char *a, *b;
    bool same;
} pairs[] = {
    { "n1", "n1", true },
    { "n1", "N1", true },
    { "n1", "n1.cluster", true },
    { "n1.a", "n1.b", false },
    { "n1.a", "n1.A", true },
    { "n1", "n11", false },
    { "", "", false },
    { "10.0.0.1", "10.0.0.1", true },
    { "10.0.0.1", "10.0.0.2", false },
    { "10.0.0.1", "10", false },
    { "fe80::1", "fe80::1", true },
};

TEST_EACH(a_domain_may_be_left_out, pairs)
{
    ck_assert_int_eq(host_list_is_same(pairs[_i].a, pairs[_i].b), pairs[_i].same);
    ck_assert_int_eq(host_list_is_same(pairs[_i].b, pairs[_i].a), pairs[_i].same);
}

TEST(a_host_is_found)
{
    struct host_list l;
    struct err e;

    ck_assert_int_eq(host_list_expand("n[1-3].cluster", &l, &e), 0);
    ck_assert_int_eq(host_list_find(&l, "n3"), 2);
    ck_assert_int_eq(host_list_find(&l, "n4"), -1);
    host_list_clear(&l);
}
