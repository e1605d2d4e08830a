/* SPDX-License-Identifier: MIT */
/*
 * crund: the rendezvous as a separate daemon, for any number of jobs. This file is its
 * command line, its signals and its messages; the rest is server.c.
 */
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include "rendezvous/common/base/fd.h"
#include "rendezvous/common/base/limits.h"
#include "rendezvous/common/base/log.h"
#include "rendezvous/common/base/loop.h"
#include "rendezvous/common/base/net.h"
#include "rendezvous/common/base/opt.h"
#include "rendezvous/common/base/text.h"
#include "rendezvous/common/security/key_ring.h"
#include "rendezvous/common/security/tls.h"
#include "rendezvous/job/events/notify.h"
#include "rendezvous/job/registry/job.h"
#include "rendezvous/job/registry/registry.h"
#include "rendezvous/server/confinement.h"
#include "rendezvous/server/limits.h"
#include "rendezvous/server/peer_list.h"
#include "rendezvous/server/server.h"
#include "rendezvous/show/views/metrics_file.h"
#include "rendezvous/show/web/web.h"
#include "rendezvous/wire/protocol/own_build.h"

#define DEFAULT_LISTEN "127.0.0.1:29400"
#define DEFAULT_PORT 29400
#define EXIT_USAGE 2
#define ADDRESSES_MAX 16

struct crund_options {
    const char *listen, *peers, *state_dir, *key_file, *key_dir, *metrics_file;
    const char *http, *http_name;
    struct notify_config notify;
    long long conns_max;
    enum log_format format;
    bool witness, require_key, no_key_warning, allow_root, unconfined, verbose, help,
        short_help, version;
};

struct daemon {
    struct loop *loop;
    struct key_ring *keys; /* NULL: connections need none */
    struct notify *notify; /* NULL: none */
    int exit_code;
};

static int set_log_format(void *target, const struct opt *opt, const char *value,
                          struct err *e)
{
    struct crund_options *o = target;

    if (strcmp(value, "text") != 0 && strcmp(value, "json") != 0)
        return err_set(e, "\"%s\" is not text or json", value);
    o->format = strcmp(value, "json") == 0 ? LOG_JSON : LOG_TEXT;
    return 0;
}

static int set_state_dir(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    if (!*value)
        return err_set(e, "\"\" is not a directory");
    return opt_set_text(target, opt, value, e);
}

static int set_metrics_file(void *target, const struct opt *opt, const char *value,
                            struct err *e)
{
    if (!*value)
        return err_set(e, "\"\" is not a file");
    return opt_set_text(target, opt, value, e);
}

static int set_event_kinds(void *target, const struct opt *opt, const char *value,
                           struct err *e)
{
    return notify_check_kinds(value, e) < 0 ? -1 : opt_set_text(target, opt, value, e);
}

static int set_some_text(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    if (!*value)
        return err_set(e, "a value is missing: \"\"");
    return opt_set_text(target, opt, value, e);
}

static const struct opt table[] = {
    { .name = "listen",
      .arg = "HOST:PORT",
      .help = "The address that agents and crunctl connect to. Without HOST: every "
              "address of this machine. Port 0: any free one. Default: " DEFAULT_LISTEN
              ".",
      .set = opt_set_text,
      .offset = offsetof(struct crund_options, listen) },
    { .name = "state-dir",
      .arg = "DIR",
      .help = "Keep the jobs in DIR, so that they continue when crund is restarted. "
              "Without it they end with crund.",
      .set = set_state_dir,
      .offset = offsetof(struct crund_options, state_dir) },
    { .name = "peers",
      .arg = "HOST:PORT,...",
      .help = "The crunds, at best three, that keep the jobs together, each in its own "
              "--state-dir, this one too: one of them leads, and if it is lost, "
              "another one.",
      .set = set_some_text,
      .offset = offsetof(struct crund_options, peers) },
    { .name = "witness",
      .help =
          "Be a witness of jobs whose rendezvous is in one of two nodes, too: if they "
          "lose each other, the first one that asks goes on (crun --rdzv-conf "
          "witness=HOST:PORT).",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, witness) },
    { .name = "key-file",
      .arg = "FILE",
      .help = "The key of all agents and operators; crunctl keygen makes it. Default: "
              "crun.key in CREDENTIALS_DIRECTORY, or ~/.config/crun/key, if there is "
              "one.",
      .set = opt_set_text,
      .offset = offsetof(struct crund_options, key_file) },
    { .name = "key-dir",
      .arg = "DIR",
      .help = "A key file for each user or team, all in DIR. A job belongs to the file "
              "that has its key, and does not exist for others.",
      .set = opt_set_text,
      .offset = offsetof(struct crund_options, key_dir) },
    { .name = "require-key",
      .help = "Do not start without a key.",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, require_key) },
    { .name = "no-key-warning",
      .help = "Do not warn that others can run code through a port that has no key.",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, no_key_warning) },
    { .name = "metrics-file",
      .arg = "FILE",
      .help = "Write metrics of all jobs to FILE every 15 s, for node_exporter's "
              "textfile collector, which reads only names that end in .prom.",
      .set = set_metrics_file,
      .offset = offsetof(struct crund_options, metrics_file) },
    { .name = "max-connections",
      .arg = "N",
      .help =
          "Accept at most N connections at a time. Default: as many as the limit of "
          "open files allows, up to 40000.",
      .set = opt_set_int,
      .offset = offsetof(struct crund_options, conns_max),
      .min = 1,
      .max = CONTROL_CONNS_MAX },
    { .name = "allow-root",
      .help = "Start as root, too. Without it crund refuses: it needs no rights.",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, allow_root) },
    { .name = "unconfined",
      .help =
          "Do not lock crund in: by default it gives up, once it listens, all files "
          "but its own, connections to elsewhere, and programs.",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, unconfined) },
    { .name = "http",
      .arg = "[HOST:]PORT",
      .help = "Show the jobs to browsers: serve a page and metrics over HTTP there. "
              "Without HOST: to this machine alone. Port 0: any free one.",
      .set = opt_set_text,
      .offset = offsetof(struct crund_options, http) },
    { .name = "http-name",
      .arg = "NAME,...",
      .help = "More names by which browsers reach the page. The name of this machine, "
              "its addresses and the HOST of --http are known.",
      .set = opt_set_text,
      .offset = offsetof(struct crund_options, http_name) },
    { .name = "on-event",
      .arg = "COMMAND",
      .help = "Run COMMAND with sh for each failure, restart and hang, each lost node "
              "and the end of each job: its standard input and CRUN_EVENT_KIND, "
              "CRUN_EVENT_TEXT ... tell the event.",
      .set = set_some_text,
      .offset = offsetof(struct crund_options, notify.command) },
    { .name = "on-event-kinds",
      .arg = "KIND,...|all",
      .help = "Only events of these kinds for --on-event; crunctl(1) lists the kinds.",
      .set = set_event_kinds,
      .offset = offsetof(struct crund_options, notify.kinds) },
    { .name = "log-format",
      .arg = "text|json",
      .help = "Format of the lines on standard error. Default: text.",
      .set = set_log_format },
    { .name = "verbose",
      .letter = 'v',
      .help = "Say more.",
      .set = opt_set_true,
      .offset = offsetof(struct crund_options, verbose) },
    OPT_VERSION(struct crund_options),
    OPT_SHORT_HELP(struct crund_options),
    { .name = NULL }
};

#define CURL "--on-event runs a command for each event, such as curl (watching.md)"
#define HEALTHZ "ask for /healthz of --http, as by curl and cron (watching.md)"

/* Of earlier versions. */
static const struct opt_hint gone[] = {
    { .typed = "print-completion",
      .text = "make install installs it",
      .removed = true },
    { .typed = "webhook", .text = CURL, .removed = true },
    { .typed = "webhook-token-file", .text = CURL, .removed = true },
    { .typed = "heartbeat-url", .text = HEALTHZ, .removed = true },
    { .typed = "heartbeat-every", .text = HEALTHZ, .removed = true },
    { .typed = NULL }
};

static void print_crund_help(void)
{
    printf("usage: %s [--listen HOST:PORT] [--state-dir DIR] [flags]\n\n"
           "The rendezvous of crun jobs as a daemon. Flags can also be given as\n"
           "environment variables: --state-dir is CRUND_STATE_DIR.\n\n",
           log_program());
    opt_print(table, stdout);
}

static void print_crund_short_help(void)
{
    const char *name = log_program();

    printf("usage: %s [--listen HOST:PORT] [--state-dir DIR] [flags]\n\n"
           "The rendezvous of crun jobs as a daemon.\n\n"
           "  --listen HOST:PORT  where to listen; default: 127.0.0.1:29400\n"
           "  --state-dir DIR     keep the jobs over a restart of %s\n"
           "  --key-file FILE     only those who have this key (crunctl keygen)\n\n"
           "Examples:\n"
           "  %s\n"
           "  %s --listen 10.0.0.9:29400 --state-dir /var/lib/crund\n\n"
           "%s --help: all flags. Manual: crund(8)\n",
           name, name, name, name, name);
}

static void set_limits(void)
{
    struct rlimit files, none = { 0, 0 };

    (void)!setrlimit(RLIMIT_CORE, &none);
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &files);
}

/* Tell the service manager, if there is one. */
static void notify_ready(void)
{
    static const char ready[] = "READY=1";
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t size = path ? strlen(path) : 0;
    int fd;

    if (size == 0 || size >= sizeof(to.sun_path))
        return;
    memcpy(to.sun_path, path, size);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, ready, sizeof(ready) - 1, MSG_NOSIGNAL, (struct sockaddr *)&to,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size));
    close(fd);
}

static void on_signal(void *arg, int signo)
{
    struct daemon *d = arg;

    log_info("SIG%s: ending", text_signal(signo));
    loop_stop(d->loop);
}

static void on_fatal(void *arg, const char *why)
{
    struct daemon *d = arg;

    log_error("%s", why);
    d->exit_code = EX_IOERR;
    loop_stop(d->loop);
}

static void on_hangup(void *arg, int signo)
{
    struct daemon *d = arg;

    log_info("SIGHUP: reading %s again", key_ring_path(d->keys));
    key_ring_reread(d->keys);
}

static void on_daemon_event(void *arg, const struct msg_event *event)
{
    const struct daemon *d = arg;

    notify_event(d->notify, event);
}

static int start_daemon_notify(struct daemon *d, const struct crund_options *o,
                               struct err *e)
{
    return notify_check(&o->notify, e) < 0 ||
                   notify_start(&o->notify, &d->notify, e) < 0
               ? -1
               : 0;
}

static void watch_signals(struct daemon *d)
{
    struct sigaction hangup;

    loop_on_signal(d->loop, SIGTERM, on_signal, d);
    loop_on_signal(d->loop, SIGINT, on_signal, d);
    /* nohup ignores it */
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        loop_on_signal(d->loop, SIGHUP, d->keys ? on_hangup : on_signal, d);
}

static void announce_daemon(const struct daemon *d, struct server *server,
                            const struct crund_options *o)
{
    const struct net_addr *addr = server_address(server);
    uint64_t cut = registry_cut_bytes(server_registry(server));
    unsigned jobs = 0;
    char text[NET_TEXT_SIZE];

    net_format(addr, text, sizeof(text));
    for (const struct job *j = registry_jobs(server_registry(server)); j; j = j->next)
        jobs++;
    if (cut)
        log_warn("%s: the journal's last %" PRIu64 " bytes were torn and are cut off: "
                 "nothing that was acknowledged is lost, if the disk keeps what it was "
                 "told to sync; else the nodes tell",
                 o->state_dir, cut);
    if (o->peers)
        log_info("listening on %s (state in %s, one of the peers %s)", text,
                 o->state_dir, o->peers);
    else if (o->state_dir)
        log_info("listening on %s (state in %s, %u job%s resumed)", text, o->state_dir,
                 jobs, text_plural(jobs));
    else
        log_info("listening on %s (no --state-dir: jobs end with this process)", text);
    if (d->keys)
        log_info("only keys of %s are let in", key_ring_path(d->keys));
    if (!d->keys && !net_is_loopback(addr) && !o->no_key_warning)
        log_warn("anyone who reaches %s can run code as the user of each job: give "
                 "crund and all nodes the key that crunctl keygen makes (or "
                 "--no-key-warning)",
                 text);
    notify_ready();
}

/* With the address that this one of them listens at, unless that was given. */
static int find_peers(const struct crund_options *o, struct peers *p,
                      struct net_addr *listen, struct err *e)
{
    if (!o->peers)
        return 0;
    if (!o->state_dir)
        return err_set(e, "--peers needs --state-dir: each of them keeps the jobs");
    if (o->key_dir)
        return err_set(e, "--peers and --key-dir are both given: peers need one key "
                          "for all (--key-file)");
    if (peers_parse(o->peers, listen, p, e) < 0)
        return err_wrap(e, "--peers");
    if (p->count % 2 == 0)
        log_warn("%u peers outlive the loss of %u, as %u do: an odd number is enough",
                 p->count, p->count / 2 - 1, p->count - 1);
    return 0;
}

static int find_listen_address(const char *text, struct net_addr *addr, struct err *e)
{
    struct net_addr list[ADDRESSES_MAX];
    char host[HOST_NAME_MAX_BYTES + 1];
    uint16_t port;
    size_t count;

    if (!text) /* of --peers */
        return 0;
    if (net_split(text, DEFAULT_PORT, host, sizeof(host), &port, e) < 0 ||
        net_resolve(host, port, list, ADDRESSES_MAX, &count, e) < 0)
        return err_wrap(e, "--listen");
    *addr = list[0];
    return 0;
}

static int open_daemon_keys(const struct crund_options *o, struct key_ring **keys,
                            struct err *e)
{
    if (o->key_file && o->key_dir)
        return err_set(e, "--key-file and --key-dir are both given: one is enough");
    if (!o->key_dir)
        return key_ring_open_own(o->key_file, o->require_key, keys, e);
    *keys = key_ring_open_folder(o->key_dir, e);
    return *keys ? 0 : err_wrap(e, "--key-dir");
}

/* A rendezvous knows all other keys from those of the agents. */
static int check_daemon_keys(struct key_ring *keys, struct err *e)
{
    if (!keys || key_ring_access(keys) == ACCESS_AGENT)
        return 0;
    return err_set(e, "%s has no agent's key: crunctl keygen makes one",
                   key_ring_path(keys));
}

/* What crund opens is open now, but for the library of keys. */
static void lock_in(const struct daemon *d, struct server *server,
                    const struct crund_options *o, const struct peers *peers)
{
    char text[CONFINEMENT_MAX_BYTES + 1] = "not locked in (--unconfined)";

    struct err e;

    if (d->keys && tls_load(&e) < 0)
        log_warn("%s", e.text);
    if (!o->unconfined)
        confinement_enter(o->state_dir, d->keys ? key_ring_path(d->keys) : NULL,
                          o->metrics_file, peers, text, sizeof(text));
    server_set_confinement(server, text);
    log_info("%s", text);
}

static int crund_open_page(struct server *server, const struct server_page *page,
                           struct err *e)
{
    if (!page->listen.len)
        return 0;
    if (server_open_page(server, page, e) < 0)
        return err_wrap(e, "--http");
    log_info("page at %s%s", server_page_url(server),
             net_is_loopback(&page->listen)
                 ? ""
                 : ": all who reach it see the state of the jobs");
    return 0;
}

static int run_daemon(const struct crund_options *o)
{
    struct daemon d = { .exit_code = EXIT_SUCCESS };
    struct server_config config = { .standalone = true,
                                    .is_witness = o->witness,
                                    .state_dir = o->state_dir,
                                    .conns_max = (unsigned)o->conns_max,
                                    .event = on_daemon_event,
                                    .fatal = on_fatal,
                                    .arg = &d };
    char page_host[HOST_NAME_MAX_BYTES + 1];
    struct server_page page = { .host = page_host,
                                .names = o->http_name,
                                .endpoint = "" };
    struct peers peers;
    struct server *server = NULL;
    struct metrics_file *metrics = NULL;
    struct err e;

    if (o->peers)
        config.peers = &peers;
    if (find_listen_address(o->listen, &config.listen, &e) < 0 ||
        find_peers(o, &peers, &config.listen, &e) < 0 ||
        (o->http && web_parse_listen(o->http, &page.listen, page_host,
                                     sizeof(page_host), &e) < 0) ||
        start_daemon_notify(&d, o, &e) < 0 || open_daemon_keys(o, &d.keys, &e) < 0) {
        log_error("%s", e.text);
        notify_end(d.notify);
        return EXIT_USAGE;
    }
    config.keys = d.keys;
    d.loop = loop_create();
    watch_signals(&d);
    if (check_daemon_keys(d.keys, &e) == 0)
        server = server_create(d.loop, &config, &e);
    if (!server || crund_open_page(server, &page, &e) < 0) {
        log_error("%s", e.text);
        server_destroy(server);
        loop_destroy(d.loop);
        key_ring_close(d.keys);
        notify_end(d.notify);
        return EXIT_FAILURE;
    }
    lock_in(&d, server, o, config.peers);
    announce_daemon(&d, server, o);
    if (o->metrics_file)
        metrics = metrics_file_start(d.loop, o->metrics_file, server_view_metrics,
                                     server);
    loop_run(d.loop);
    /* a second signal ends it at once, without waiting for the disk */
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    server_shut(server);
    metrics_file_end(metrics);
    server_destroy(server);
    loop_destroy(d.loop);
    key_ring_close(d.keys);
    notify_end(d.notify);
    return d.exit_code;
}

int main(int argc, char **argv)
{
    static const char *const prefixes[] = { "CRUND", NULL };
    const struct opt_rules rules = { .table = table,
                                     .hints = gone,
                                     .env_prefixes = prefixes };
    struct crund_options o = { .listen = NULL };
    struct err e;
    int first_word;

    fd_keep_std();
    log_init(log_name_of(argv[0], "crund"), LOG_INFO, LOG_TEXT);
    if (opt_parse(&rules, argc, argv, &o, &first_word, &e) < 0) {
        log_error("%s", e.text);
        return EXIT_USAGE;
    }
    if (o.help || o.short_help || o.version) {
        if (o.help)
            print_crund_help();
        else if (o.short_help)
            print_crund_short_help();
        else
            own_build_print(log_program(), "rendezvous of training jobs");
        return fflush(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
    }
    log_init(log_program(), o.verbose ? LOG_DEBUG : LOG_INFO, o.format);
    if (first_word < argc) {
        log_error("\"%s\": crund takes flags only", argv[first_word]);
        return EXIT_USAGE;
    }
    if (geteuid() == 0 && !o.allow_root) {
        log_error("crund needs no rights and does not start as root: use a user of its "
                  "own, as crund.service does, or --allow-root");
        return EXIT_USAGE;
    }
    if (!o.listen && !o.peers)
        o.listen = DEFAULT_LISTEN;
    set_limits();
    if (!o.unconfined)
        confinement_hide_memory();
    return run_daemon(&o);
}
