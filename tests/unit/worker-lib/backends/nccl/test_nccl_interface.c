/* SPDX-License-Identifier: MIT */
/* emulated GPU: NCCL is its stand-in */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rendezvous/common/base/clock.h"
#include "rendezvous/common/base/xalloc.h"
#include "tests/worlds/check_main.h"
#include "tests/worlds/ranks.h"
#include "worker-lib/backends/nccl/backend_nccl.h"

/* The network interfaces that NCCL and the rendezvous use. */

/* -- a machine with two networks --------------------------------------------------- */

static struct {
    const char *name, *address;
    struct sockaddr_in at, mask;
    struct ifaddrs entry;
} interfaces[] = {
    { .name = "lo", .address = "127.0.0.1" },
    { .name = "eth7", .address = "10.7.0.1" },
    { .name = "eth8", .address = "10.8.0.1" },
};
#define INTERFACES (sizeof(interfaces) / sizeof(interfaces[0]))

int getifaddrs(struct ifaddrs **all)
{
    for (size_t i = 0; i < INTERFACES; i++) {
        interfaces[i].at.sin_family = interfaces[i].mask.sin_family = AF_INET;
        inet_pton(AF_INET, interfaces[i].address, &interfaces[i].at.sin_addr);
        interfaces[i].entry = (struct ifaddrs){
            .ifa_name = (char *)(uintptr_t)interfaces[i].name,
            .ifa_addr = (struct sockaddr *)(void *)&interfaces[i].at,
            .ifa_netmask = (struct sockaddr *)(void *)&interfaces[i].mask,
            .ifa_flags = IFF_UP | IFF_RUNNING,
            .ifa_next = i + 1 < INTERFACES ? &interfaces[i + 1].entry : NULL,
        };
    }
    *all = &interfaces[0].entry;
    return 0;
}

void freeifaddrs(struct ifaddrs *all)
{
}

/* -- cases ------------------------------------------------------------------------- */

static const unsigned two_nodes[] = { 0, 1 }, one_node[] = { 0, 0 };

static const struct {
    const char *nccl, *rendezvous, *chosen;
    const unsigned *node;
    const char *text; /* of errors; NULL: none */
    bool warns;
} networks[] = {
    { "10.7.0.1", "10.8.0.1", NULL, two_nodes,
      "NCCL uses eth7 (10.7.0.1), the rendezvous eth8 (10.8.0.1) of rank 0", true },
    { "10.7.0.1", "10.8.0.1", "eth7", two_nodes,
      "NCCL uses eth7 (10.7.0.1), the rendezvous eth8 (10.8.0.1) of rank 0", false },
    { "10.7.0.1", "10.7.0.1", NULL, two_nodes,
      "NCCL uses eth7 (10.7.0.1), the rendezvous eth7 (10.7.0.1) of rank 0", false },
    { "10.7.0.1", "127.0.0.1", NULL, two_nodes,
      "NCCL uses eth7 (10.7.0.1), the rendezvous lo (127.0.0.1) of rank 0", false },
    { "10.7.0.1", "10.8.0.1", NULL, one_node, NULL, false },
    { "", "10.8.0.1", NULL, two_nodes, NULL, false },
};

static void expect_interfaces(struct team_member *m)
{
    const char *text = networks[*(const int *)m->arg].text;

    ck_assert_int_ne(m->opened, CRUN_OK);
    ck_assert_msg(text ? strstr(m->e.text, text) != NULL
                       : !strstr(m->e.text, "NCCL uses"),
                  "%s", m->e.text);
}

/* What is printed by the ranks, whose meeting fails on rank 1. */
static size_t meet_in_network(int which, char *printed, size_t size)
{
    char path[] = "/tmp/test-nccl-interface-XXXXXX";
    int file = mkstemp(path), own = dup(STDERR_FILENO);
    ssize_t n;

    ck_assert_int_ge(file, 0);
    unlink(path);
    setenv("CRUN_STANDIN_ADDRESS", networks[which].nccl, 1);
    setenv("CRUN_STANDIN_FAULT",
           which ? "ncclCommInitRankConfig:error:0,ncclCommInitRankConfig:error:1"
                 : "ncclCommInitRankConfig:error:1", /* rank 0 waits for it */
           1);
    unsetenv("NCCL_SOCKET_IFNAME");
    if (networks[which].chosen)
        setenv("NCCL_SOCKET_IFNAME", networks[which].chosen, 1);
    dup2(file, STDERR_FILENO);
    team_run(&(struct team_plan){ .calls = &backend_nccl,
                                  .size = 2,
                                  .node = networks[which].node,
                                  .address = networks[which].rendezvous,
                                  .body = expect_interfaces,
                                  .arg = &which,
                                  .open_ms = 1500,
                                  .may_not_open = true });
    dup2(own, STDERR_FILENO);
    n = pread(file, printed, size - 1, 0);
    ck_assert_int_ge(n, 0);
    printed[n] = '\0';
    return (size_t)n;
}

TEST_EACH(errors_of_meeting_name_the_interfaces, networks)
{
    char printed[1024], wanted[1024];
    size_t n = meet_in_network(_i, printed, sizeof(printed));

    snprintf(wanted, sizeof(wanted),
             "warning: %s: NCCL_SOCKET_IFNAME chooses the first\n", networks[_i].text);
    if (networks[_i].warns)
        ck_assert_str_eq(printed, wanted);
    else
        ck_assert_uint_eq(n, 0);
}

/* The place of the address in an id, in the real library if it is here. */
TEST(an_id_of_the_real_library_has_an_address)
{
    static const unsigned node[] = { 0, 1 }, number[] = { 0, 1 };
    struct team team = {
        .size = 2, .node = node, .world_rank = number, .address = "127.0.0.1"
    };
    char text[NCCL_INTERFACES_SIZE];
    const struct nccl_calls *nccl;
    struct nccl_id id;
    struct err e;

    setenv("CRUN_NCCL_LIBRARY", "libnccl.so.2", 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    SKIP_UNLESS(nccl_open(&nccl, clock_ms() + 20000, &e) == CRUN_OK, e.text);
    ck_assert_int_eq(nccl->get_unique_id(&id), NCCL_OK);
    nccl_find_interfaces(&team, &id, text);
    ck_assert_msg(strstr(text, "NCCL uses lo (127.0.0.1), "), "%s", text);
}

/* Another thread may be in getenv: what it reads is neither changed nor freed. */
TEST(the_environment_that_others_read_stays)
{
    const struct nccl_calls *nccl;
    char **read, **same;
    size_t bytes = 0;
    struct err e;

    unsetenv("NCCL_SYM_CE_THRESHOLD");
    setenv("CRUN_TEST_FIRST", "1", 1); /* the list is one that setenv frees */
    read = environ;
    while (read[bytes / sizeof(*read)])
        bytes += sizeof(*read);
    same = xcalloc(1, bytes);
    memcpy(same, read, bytes);
    ck_assert_int_eq(nccl_open(&nccl, clock_ms() + 20000, &e), CRUN_OK);
    ck_assert_ptr_nonnull(getenv("NCCL_SYM_CE_THRESHOLD"));
    ck_assert_ptr_ne(environ, read);
    ck_assert_mem_eq(read, same, bytes);
    free(same);
}
