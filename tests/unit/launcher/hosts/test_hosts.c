/* SPDX-License-Identifier: MIT */
#include "launcher/hosts/hosts.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/worlds/check_main.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

static char shown[4096];

/* "a:8 b c:2(0,2)" */
static const char *show_hosts(const struct hosts *h)
{
    char *out = shown;

    *out = '\0';
    for (size_t i = 0; i < h->count; i++) {
        const struct host *host = &h->host[i];

        out += sprintf(out, "%s%s", i ? " " : "", host->name);
        if (host->slots)
            out += sprintf(out, "=%u", host->slots);
    }
    return shown;
}

static const struct {
    const char *text, *hosts; /* NULL: an error */
} texts[] = {
    /* Open MPI and PRRTE */
    { "node01 slots=10 max_slots=12\nnode02 slots=4\n", "node01=10 node02=4" },
    { "# all nodes\n\nnode01 # the first\n  node02 slots=4\r\n", "node01 node02=4" },
    { "me@node01 slots=4", "me@node01=4" },
    { "a:10,b,c:5", "a=10 b c=5" },
    { "node01 slots=4 max-slots=8", "node01=4" },
    /* Hydra */
    { "host1\nhost2:2\nhost3:4 # big\n", "host1 host2=2 host3=4" },
    { "host1:2 binding=user:0,1\nhost2 ifname=ib0", "host1=2 host2" },
    /* DeepSpeed, Horovod, Colossal-AI */
    { "worker-0 slots=16\nworker-1\tslots=8\n", "worker-0=16 worker-1=8" },
    { "worker-0 slots=16\nworker-0 slots=16", NULL },
    { "h1\nh2\n", "h1 h2" },
    /* pdsh and Slurm */
    { "gpu[01-03]", "gpu01 gpu02 gpu03" },
    { "gpu[1,3]:8,login", "gpu1=8 gpu3=8 login" },
    { "gpu[08-11] slots=4", "gpu08=4 gpu09=4 gpu10=4 gpu11=4" },
    { "r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1" },
    { "me@gpu[1-2]:2", "me@gpu1=2 me@gpu2=2" },
    /* PBS: a line for each process */
    { "n1\nn1\nn2\nn1\n", "n1=3 n2=1" },
    { "a,b,a", "a=2 b=1" },
    /* LSF and SGE */
    { "h1 4 h2 8", "h1=4 h2=8" },
    { "node1 8 all.q@node1 UNDEFINED\nnode2 4 all.q@node2 0,1\n", "node1=8 node2=4" },
    /* MPI operator, and a Torque server's nodes */
    { "j-worker-0.j.ns.svc slots=1\n", "j-worker-0.j.ns.svc=1" },
    { "j-worker-0.j.ns.svc:1\n", "j-worker-0.j.ns.svc=1" },
    { "n1 np=4", "n1=4" },
    /* addresses */
    { "10.0.0.1:8,10.0.0.2", "10.0.0.1=8 10.0.0.2" },
    { "[fd00::1]:8,fd00::2,me@[fd00::3]", "fd00::1=8 fd00::2 me@fd00::3" },
    { "fe80::1%eth0", "fe80::1%eth0" },
    { "[fe80::1%eth0]:2", "fe80::1%eth0=2" },
    { "CORP\\me@node1", "CORP\\me@node1" },
    { "a b c", "a b c" },
    { "a,b,", "a b" },
    { "", "" },
    { "#nothing\n", "" },
    { "my_node", "my_node" },
    /* mistakes */
    { "a:x", NULL },
    { "a:0", NULL },
    { "a:4097", NULL },
    { "a:", NULL },
    { ":8", NULL },
    { ",a", NULL },
    { "a,,b", NULL },
    { "a:1:2", NULL },
    { "[fd00::1", NULL },
    { "[fd00::1]8", NULL },
    { "[fd00::zz]:8", NULL },
    { "a@b@c", NULL },
    { "@b", NULL },
    { "a@", NULL },
    { "-oProxyCommand=x", NULL },
    { "-v", NULL },
    { "-l@a", NULL },
    { "./hosts", NULL },
    { "a;b", NULL },
    { "a slots=", NULL },
    { "a slots=4 slots=5", NULL },
    { "a:2 slots=4", NULL },
    { "a b slots=4", NULL },
    { "slots=4", NULL },
    { "8", NULL },
    { "8 a", NULL },
    { "a 4 8", NULL },
    { "a foo=1", NULL },
    { "gpu[1-", NULL },
    { "gpu[2-1]", NULL },
    { "a\x1b[2J", NULL },
    { "n1\nn1 slots=2", NULL },
};

TEST_EACH(one_parser_takes_the_lists_of_all_launchers, texts)
{
    struct hosts h = { .count = 0 };
    struct err e;
    int rc = hosts_parse(texts[_i].text, "hosts:", &h, &e);

    ck_assert_msg(rc == (texts[_i].hosts ? 0 : -1), "%s: %d", texts[_i].text, rc);
    if (rc == 0)
        ck_assert_pstr_eq(show_hosts(&h), texts[_i].hosts);
    else
        ck_assert_uint_eq(h.count, 0);
    hosts_clear(&h);
}

static const struct {
    const char *from, *text, *message;
} messages[] = {
    { "--hostfile f:", "a slots=4\nb slots=x\n",
      "--hostfile f:2: \"x\" is not a number of slots from 1 to 4096" },
    { "--hostfile f:", "a:x\nb\nc:y\nd:z",
      "--hostfile f:1: a: \"x\" is not a number of slots from 1 to 4096" },
    { "--hosts", "a:x", "--hosts: a: \"x\" is not a number of slots from 1 to 4096" },
    { "--hostfile f:", "a slots=4\n\na slots=4",
      "--hostfile f:3: a stands on line 1 too" },
    { "--hosts", "a:4,a:4", "--hosts: a stands there twice" },
    { "f:", "a slot=4", "f:1: \"slot=4\" is not slots=N" },
    { "f:", "a b slots=4",
      "f:1: slots= stands on a line of one host, or say HOST:SLOTS" },
    { "--hosts", "my/hosts",
      "--hosts: \"my/hosts\" is not a host; a file with hosts is for --hostfile" },
    { "--hosts", "fd00::1::8",
      "--hosts: \"fd00::1:\" is not HOST:SLOTS; an IPv6 address is [ADDRESS]:SLOTS" },
    { "--hosts", "a@b@c", "--hosts: \"a@b@c\" is not USER@HOST" },
};

TEST_EACH(a_bad_line_is_named_with_what_is_right, messages)
{
    struct hosts h = { .count = 0 };
    struct err e;

    ck_assert_int_eq(hosts_parse(messages[_i].text, messages[_i].from, &h, &e), -1);
    ck_assert_pstr_eq(e.text, messages[_i].message);
    hosts_clear(&h);
}

static const struct {
    const char *list;
    uint32_t total, per_node;
    const char *hosts;
} shares[] = {
    { "a:4,b:2", 0, 0, "a=4 b=2" },
    { "a:4,b", 0, 0, "a=4 b" },
    { "a:4,b:2", 0, 3, "a b" },
    { "a:4,b:2", 0, HOSTS_PER_NODE_AUTO, "a b" },
    { "a:4,b:4,c:4", 6, 0, "a=4 b=2" },
    { "a:4,b:4", 8, 0, "a=4 b=4" },
    { "a:4,b:4", 9, 0, NULL },
    { "a,b", 4, 0, "a=2 b=2" },
    { "a,b", 3, 0, "a=2 b=1" },
    { "a,b,c", 2, 0, "a=1 b=1" },
    { "a:4,b", 4, 0, NULL },
    { "a:8,b:8,c:8", 4, 2, "a=2 b=2" },
    { "a,b", 4, HOSTS_PER_NODE_AUTO, NULL },
    { "a", 4097, 0, NULL },
};

TEST_EACH(processes_fill_the_slots_in_order, shares)
{
    struct hosts h = { .count = 0 };
    struct err e;

    ck_assert_int_eq(hosts_parse(shares[_i].list, "-H", &h, &e), 0);
    ck_assert_int_eq(hosts_share_workers(&h, shares[_i].total, shares[_i].per_node, &e),
                     shares[_i].hosts ? 0 : -1);
    if (shares[_i].hosts)
        ck_assert_pstr_eq(show_hosts(&h), shares[_i].hosts);
    hosts_clear(&h);
}

TEST(files_and_lists_are_read_in_order)
{
    char path[] = "/tmp/test-hosts.XXXXXX", list[64];
    struct hosts_wanted w = { .lists = { { "gpu[1,2]:8", list }, 2, false } };
    struct hosts h = { .count = 0 };
    int fd = mkstemp(path);
    struct err e;

    ck_assert(fd >= 0 && write(fd, "n1 slots=2\nn2\n", 14) == 14);
    snprintf(list, sizeof(list), "^%s,[fd00::1]:4,z", path);
    ck_assert_int_eq(hosts_read(&w, &h, &e), 0);
    ck_assert_pstr_eq(show_hosts(&h), "gpu1=8 gpu2=8 n1=2 n2 fd00::1=4 z");
    hosts_clear(&h);

    w.file = path; /* the same hosts again */
    ck_assert_int_eq(hosts_read(&w, &h, &e), -1);
    ck_assert_pstr_eq(e.text, "n1 is in two lists of hosts");
    hosts_clear(&h);

    w = (struct hosts_wanted){ .file = path };
    ck_assert_int_eq(ftruncate(fd, 0), 0);
    ck_assert_int_eq(hosts_read(&w, &h, &e), -1); /* no hosts */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(hosts_read(&w, &h, &e), -1); /* no file */
    hosts_clear(&h);
    close(fd);
}

TEST(the_host_files_of_schedulers_are_found)
{
    struct hosts_wanted w = { .file = "auto" };
    struct hosts h = { .count = 0 };
    char path[] = "/tmp/test-hosts.XXXXXX";
    int fd = mkstemp(path);
    struct err e;

    ck_assert(fd >= 0 && write(fd, "n1\nn1\nn2\nn2\n", 12) == 12);
    setenv("PBS_NODEFILE", path, 1);
    ck_assert_int_eq(hosts_read(&w, &h, &e), 0);
    ck_assert_pstr_eq(show_hosts(&h), "n1=2 n2=2");
    hosts_clear(&h);
    unlink(path);
    close(fd);
}
