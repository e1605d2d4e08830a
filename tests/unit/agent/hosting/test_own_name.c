/* SPDX-License-Identifier: MIT */
/* What this machine knows of names without a name server. */
#include "agent/hosting/own_name.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

static char path[64];

static void setup(void)
{
    FILE *f;

    snprintf(path, sizeof(path), "/tmp/crun-hosts-XXXXXX");
    f = fdopen(mkstemp(path), "w");
    fputs("# as a kubelet writes it\n"
          "127.0.0.1\tlocalhost\n"
          "::1\tlocalhost ip6-localhost # both\n"
          "fe80::zz\tbroken\n"
          "203.0.113.9\tother.train.svc.cluster.local\n"
          "10.0.0.1 two two.example\n"
          "fd00::1 two\n",
          f);
    fclose(f);
}

static void teardown(void)
{
    unlink(path);
}

static const struct {
    const char *name;
    size_t count;
} found[] = {
    { "localhost", 2 }, { "LOCALHOST.", 2 }, { "two", 2 },   { "two.example", 1 },
    { "both", 0 },      { "broken", 0 },     { "tw", 0 },    { "", 0 },
    { "10.0.0.1", 0 },  { "#", 0 },          { "other", 0 },
};

FIXTURE(setup, teardown);

TEST_EACH(names_have_the_addresses_of_the_file, found)
{
    struct net_addr list[4];

    ck_assert_uint_eq(own_name_find(path, found[_i].name, 80, list, 4),
                      found[_i].count);
    for (size_t i = 0; i < found[_i].count; i++)
        ck_assert_uint_eq(net_port(&list[i]), 80);
    if (found[_i].count)
        ck_assert_uint_eq(own_name_find(path, found[_i].name, 80, list, 1), 1);
    ck_assert_uint_eq(own_name_find("/nowhere", found[_i].name, 80, list, 4), 0);
}

TEST(a_name_is_ours_by_its_first_label)
{
    char own[256], name[300];

    ck_assert_int_eq(gethostname(own, sizeof(own)), 0);
    own[strcspn(own, ".")] = '\0';
    snprintf(name, sizeof(name), "%s.train.svc", own);
    ck_assert(own_name_is(path, own));
    ck_assert(own_name_is(path, name));
    snprintf(name, sizeof(name), "%sx.train.svc", own);
    ck_assert(!own_name_is(path, name));
    name[strlen(own) - 1] = '\0';
    ck_assert(!own_name_is(path, name));
    ck_assert(!own_name_is(path, ""));
}

TEST(a_name_of_another_machine_is_not_ours)
{
    ck_assert(!own_name_is(path, "other.train")); /* not an address of this machine */
    ck_assert(!own_name_is(path, "localhost.train"));
}
