/* SPDX-License-Identifier: MIT */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "rendezvous/wire/protocol/message.h"

/*
 * The meaning of a crun command line, checked: everything that an agent needs to know.
 * The launcher fills it in; its texts belong to the launcher and outlive the agent.
 */
enum config_rendezvous {
    CONFIG_LOCAL,   /* one node: the rendezvous is in this process */
    CONFIG_STATIC,  /* node rank 0 hosts it, at --master-addr:--master-port */
    CONFIG_DYNAMIC, /* the owner of --rdzv-endpoint hosts it, or a crund there */
};

enum config_stdin { CONFIG_STDIN_FIRST, CONFIG_STDIN_NONE, CONFIG_STDIN_ALL };

enum config_numa {
    CONFIG_NUMA_NONE,
    CONFIG_NUMA_NODE,
    CONFIG_NUMA_SOCKET,
    CONFIG_NUMA_EXCLUSIVE,
    CONFIG_NUMA_CORE_COMPLEX
};

/* The destinations of a worker's two streams;
 * bits as in torchrun's --redirects and --tee. */
enum { CONFIG_STDOUT = 1, CONFIG_STDERR = 2 };

struct config_streams { /* for each local rank */
    uint8_t *redirect;  /* into its file, and not to the console */
    uint8_t *tee;       /* into its file, and to the console with a prefix */
    bool *shown;        /* --local-ranks-filter: reaches the console */
};

#define CONFIG_SIGNALS_MAX 32

struct config {
    /* the job: the same on all its nodes */
    char run_id[RUN_ID_MAX + 1];
    struct job_config job;

    /* where the rendezvous is */
    enum config_rendezvous rendezvous;
    const char *endpoints;  /* "HOST:PORT[,HOST:PORT]"; NULL with CONFIG_LOCAL */
    uid_t rendezvous_user;  /* may hold its port on this machine, like our own user */
    int is_host;            /* 1 and 0: given; -1: to be detected */
    int32_t node_rank;      /* -1: none given */
    const char *local_addr; /* the address that this node reports; NULL: detected */
    uint16_t store_port;    /* 0: any */
    int rendezvous_fd;      /* a socket that listens for the rendezvous; 0: none */
    const char *key_file;   /* NULL: looked for */
    const char *key_text;   /* the key itself, instead of a file; NULL: none */
    bool require_key, no_key_warning;
    uint32_t outage_grace_ms;
    uint32_t replicas;   /* nodes that keep the rendezvous' records; 1: its own alone */
    const char *witness; /* see server_config; NULL: none */
    int witness_fd;      /* likewise */
    bool alone;          /* likewise */

    /* the workers of this node */
    uint32_t workers;
    /* the command, NULL-ended; its macros are not replaced yet, and never in [0] */
    const char *const *argv;
    /* the NAMEs of ${free_port:NAME} in them, ""-ended unless it is full */
    char free_ports[FREE_PORTS_MAX][FREE_PORT_NAME_MAX + 1];
    /* the folder of the bootstrap that Python workers import first; NULL: none */
    const char *bootstrap;
    bool bootstrap_follows; /* what the program does; else it only serves JAX */
    /* --warm: the modules of the template, "": it decides; NULL: no template */
    const char *warm_modules;
    const char *role;
    /* --keep-env, NULL-ended lists for task_variable_of; NULL: none */
    const char *const *keep_env;
    bool virtual_local_rank;
    enum config_numa numa;
    enum config_stdin stdin_mode;

    /* their checkpoints in memory */
    uint32_t memory_copies;    /* on other nodes, of a job with several: 0 or 1 */
    uint64_t memory_limit;     /* bytes; 0: what the machine has free */
    uint64_t memory_copy_rate; /* bytes in a second; 0: any */
    uint32_t memory_flush_ms;  /* from one flush to files to the next; 0: none */

    /* their output */
    /* the output of all nodes goes to one place: only node rank 0 prints messages
     * about the whole job */
    bool shares_output;
    bool live_output;          /* crun's own reaches a terminal by another program */
    bool ignore_closed_output; /* a job of one node goes on when nobody reads it */
    const char *log_dir;   /* NULL: a new one below TMPDIR, made when first needed */
    uint32_t log_keep;     /* newest attempts whose files stay; 0: all */
    uint64_t log_max_size; /* of a log file, before a new one begins; 0: any */
    uint32_t log_mode;     /* of log files and the events file; 0: for the user only */
    struct config_streams streams;
    const char *const
        *stdout_filters; /* NULL-ended; lines that contain one are copied */
    const char *const *stderr_filters;
    const char *prefix_template; /* TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE, or NULL */

    /* how the job ends */
    /* before a restart, for workers that write no checkpoint; at most failure_grace_ms
     */
    uint32_t survivor_grace_ms;
    uint32_t hang_timeout_ms;        /* 0: none */
    bool hang_auto;                  /* derived from the duration of steps */
    uint32_t silence_warning_ms;     /* 0: none */
    const char *progress_pattern;    /* of lines that have a step; NULL: none */
    int checkpoint_signal;           /* asks a worker for a checkpoint; 0: none */
    int signals[CONFIG_SIGNALS_MAX]; /* --signals-to-handle, 0-ended */
    const char *signals_text;
    bool under_slurm; /* it signals every process of a step, the workers too */
    int64_t
        deadline_s; /* when the time of this node ends, by the wall clock; 0: never */
    const char *deadline_from;   /* "--time-limit", "SLURM_JOB_END_TIME" */
    uint32_t deadline_margin_ms; /* a checkpoint is asked for before; 0: derived */
    const char *events_file;     /* JSON lines; NULL: none */
    const char *end_file;        /* gets the record of the job's end; NULL: none */
    bool events_console;
    const char *http;      /* [HOST:]PORT of the page, likewise; NULL: none */
    const char *http_name; /* more names of it, separated by commas; NULL: none */
    const char *on_event;  /* notifications, likewise: as in notify.h; NULL: none */
    const char *event_kinds;
    const char *metrics_file; /* of a rendezvous in this process; NULL: none */
    bool verbose;
};
