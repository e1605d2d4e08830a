/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rendezvous/common/base/net.h"

/*
 * What this machine knows of names without asking a name server: its own name, and its
 * file of hosts. The name of a pod is in DNS only some seconds after its processes have
 * started, on the pod itself too; the kubelet writes the full name into /etc/hosts, but
 * not "HOST.SUBDOMAIN".
 */

/* The addresses that the file of hosts has for the name. Returns how many. */
size_t own_name_find(const char *hosts_file, const char *name, uint16_t port,
                     struct net_addr *list, size_t max);
/* Whether the name is this machine's: its first label is the first label of the host
 * name, or it is the beginning of a name that the file has for one of our addresses. */
bool own_name_is(const char *hosts_file, const char *name);
