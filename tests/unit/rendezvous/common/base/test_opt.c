/* SPDX-License-Identifier: MIT */
#include "rendezvous/common/base/opt.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tests/worlds/check_main.h"

#define WORDS_MAX 10
#define TIMES "90, 500ms, 5m or 1h30m"

struct settings {
    bool verbose, help, version;
    const char *dir, *hidden, *warm;
    long long nodes;
    uint64_t lease_ms;
    struct opt_texts hosts;
};

static const struct opt table[] = {
    { .name = "verbose",
      .letter = 'v',
      .help = "Say more.",
      .set = opt_set_true,
      .offset = offsetof(struct settings, verbose) },
    { .name = "help",
      .letter = 'h',
      .help = "Show this.",
      .set = opt_set_true,
      .offset = offsetof(struct settings, help) },
    { .name = "version",
      .help = "Show the version.",
      .set = opt_set_true,
      .offset = offsetof(struct settings, version) },
    { .name = "state-dir",
      .letter = 'd',
      .arg = "DIR",
      .help = "Keep everything in this directory, so that a daemon that was killed "
              "comes back with all that it had acknowledged before.",
      .set = opt_set_text,
      .offset = offsetof(struct settings, dir) },
    { .name = "nproc-per-node",
      .arg = "N",
      .help = "Workers on each node.",
      .set = opt_set_int,
      .offset = offsetof(struct settings, nodes),
      .min = -3,
      .max = 10 },
    { .name = "lease",
      .arg = "SECONDS",
      .help = "How long a silent node is a member.",
      .set = opt_set_seconds,
      .offset = offsetof(struct settings, lease_ms),
      .min = 200,
      .max = 3600000 },
    { .name = "a-flag-with-a-very-long-name",
      .arg = "TEXT",
      .help = "Has its help below.",
      .set = opt_set_text,
      .offset = offsetof(struct settings, dir) },
    { .name = "digest",
      .arg = "X",
      .set = opt_set_text,
      .offset = offsetof(struct settings, hidden) },
    { .name = "old-name",
      .arg = "X",
      .set = opt_set_text,
      .offset = offsetof(struct settings, hidden) },
    { .name = "warm",
      .arg = "LIST",
      .arg_optional = true,
      .help = "Start warm.",
      .set = opt_set_text,
      .offset = offsetof(struct settings, warm) },
    { .name = "pn",
      .letter = 'p',
      .arg = "N",
      .one_dash = true,
      .help = "As another program types it.",
      .set = opt_set_text,
      .offset = offsetof(struct settings, dir) },
    { .name = "hosts",
      .letter = 'H',
      .arg = "LIST",
      .adds = true,
      .help = "May be repeated.",
      .set = opt_add_text,
      .offset = offsetof(struct settings, hosts) },
    { .name = NULL },
};

static const struct opt_hint hints[] = {
    { .typed = "N", .flag = "nproc-per-node" },
    { .typed = "workers", .flag = "nproc-per-node" },
    { .typed = "n-workers", .flag = "nproc-per-node" },
    { .typed = "root", .text = "none has it" },
    { .typed = NULL },
};

static struct settings got;
static struct err e;
static int first_word;
static char *argv[WORDS_MAX + 2];
static int argc;

/* Split `line` at its blanks, as a shell does it, and parse. */
static int parse_with(const char *line, const char *const *prefixes, bool stop_at_word)
{
    const struct opt_rules rules = { .table = table,
                                     .env_prefixes = prefixes,
                                     .stop_at_word = stop_at_word,
                                     .hints = hints };
    static char copy[512];
    char *rest = copy;

    memset(&got, 0, sizeof(got));
    memset(&e, 0, sizeof(e));
    argv[0] = (char *)"program";
    argc = 1;
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *word; (word = strsep(&rest, " "));)
        if (*word) {
            ck_assert_int_lt(argc, WORDS_MAX);
            argv[argc++] = word;
        }
    argv[argc] = NULL;
    return opt_parse(&rules, argc, argv, &got, &first_word, &e);
}

static int parse_words(const char *line)
{
    return parse_with(line, NULL, false);
}

/* The words that are left, joined by blanks. */
static const char *words(void)
{
    static char text[256];

    text[0] = '\0';
    for (int i = first_word; i < argc; i++) {
        strcat(text, i > first_word ? " " : "");
        strcat(text, argv[i]);
    }
    return text;
}

static const struct {
    const char *line;
    struct settings expected;
    const char *words;
} good[] = {
    { "", { 0 }, "" },
    { "--verbose", { .verbose = true }, "" },
    { "-v", { .verbose = true }, "" },
    { "-vh", { .verbose = true, .help = true }, "" },
    { "-vd here", { .verbose = true, .dir = "here" }, "" },
    { "-vdhere", { .verbose = true, .dir = "here" }, "" },
    { "-d -v", { .dir = "-v" }, "" },
    { "--state-dir here", { .dir = "here" }, "" },
    { "--state-dir=here", { .dir = "here" }, "" },
    { "--state_dir=a=b", { .dir = "a=b" }, "" },
    { "--state-dir=", { .dir = "" }, "" },
    { "--state here", { .dir = "here" }, "" },
    { "--nproc_per-nod=4", { .nodes = 4 }, "" },
    { "--nproc-per-node -3", { .nodes = -3 }, "" },
    { "--nproc-per-node 010", { .nodes = 10 }, "" },
    { "--lease 0.2", { .lease_ms = 200 }, "" },
    { "--lease 15", { .lease_ms = 15000 }, "" },
    { "--lease 1m30s", { .lease_ms = 90000 }, "" },
    { "--lease 1.5", { .lease_ms = 1500 }, "" },
    { "--lease 1.005", { .lease_ms = 1005 }, "" },
    { "--lease 3600.000", { .lease_ms = 3600000 }, "" },
    { "--lease 1 --lease 2", { .lease_ms = 2000 }, "" },
    { "--old-name x", { .hidden = "x" }, "" },
    { "--warm=a,b", { .warm = "a,b" }, "" },
    { "--warm=a --warm b", { 0 }, "b" },
    { "one -v two", { .verbose = true }, "one two" },
    { "one -d x two -v three", { .verbose = true, .dir = "x" }, "one two three" },
    { "-v -- --help -d", { .verbose = true }, "--help -d" },
    { "one -- two", { 0 }, "one two" },
    { "- -v", { .verbose = true }, "-" },
    { "-pn 4", { .dir = "4" }, "" },
    { "-pn=4", { .dir = "4" }, "" },
    { "--pn=4", { .dir = "4" }, "" },
    { "-p 4", { .dir = "4" }, "" },
    { "-pnx", { .dir = "nx" }, "" }, /* the letter p with a value */
};

static void check_settings(const struct settings *x)
{
    ck_assert_int_eq(got.verbose, x->verbose);
    ck_assert_int_eq(got.help, x->help);
    ck_assert_int_eq(got.version, x->version);
    ck_assert_pstr_eq(got.dir, x->dir);
    ck_assert_pstr_eq(got.hidden, x->hidden);
    ck_assert_pstr_eq(got.warm, x->warm);
    ck_assert_int_eq(got.nodes, x->nodes);
    ck_assert_uint_eq(got.lease_ms, x->lease_ms);
}

TEST_EACH(flags_and_words_are_told_apart, good)
{
    ck_assert_msg(parse_words(good[_i].line) == 0, "%s: %s", good[_i].line, e.text);
    check_settings(&good[_i].expected);
    ck_assert_str_eq(words(), good[_i].words);
}

static const struct {
    const char *line;
    const char *text;
} bad[] = {
    { "--nproc-per-nide 4",
      "unknown flag --nproc-per-nide; did you mean --nproc-per-node?" },
    { "--nproc_per_mode=4",
      "unknown flag --nproc_per_mode; did you mean --nproc_per_node?" },
    { "--sate-dir x", "unknown flag --sate-dir; did you mean --state-dir?" },
    { "--laese 4", "unknown flag --laese; did you mean --lease?" },
    { "-nproc_per_node=2",
      "unknown flag -nproc_per_node; did you mean --nproc_per_node=2?" },
    { "-nproc_per_mode=2",
      "unknown flag -nproc_per_mode; did you mean --nproc-per-node?" },
    { "-digest=x",
      "unknown flag -digest; did you mean --digest=x?" }, /* no -d igest=x */
    { "-verb", "unknown flag -verb; did you mean --verb?" },
    { "-zzzzz", "unknown flag -z (see --help)" },
    { "--old-nome 4",
      "unknown flag --old-nome (see --help)" }, /* what is hidden is not offered */
    { "--quite-another", "unknown flag --quite-another (see --help)" },
    { "--verbosest", "unknown flag --verbosest; did you mean --verbose?" },
    { "--=x", "unknown flag -- (see --help)" },
    { "--ver", "--ver could be --verbose or --version" },
    { "-x", "unknown flag -x (see --help)" },
    { "-vx", "unknown flag -x (see --help)" },
    { "--verbose=yes", "--verbose takes no value (it was given \"yes\")" },
    { "--verbose=", "--verbose takes no value (it was given \"\")" },
    { "--lease", "--lease needs a value: --lease SECONDS" },
    { "-vd", "-d needs a value: -d DIR" },
    { "--lease tow",
      "--lease: \"tow\" is not a time from 0.2 to 3600 s, as in " TIMES },
    { "--lea=tow", "--lease: \"tow\" is not a time from 0.2 to 3600 s, as in " TIMES },
    { "--nproc-per-node x",
      "--nproc-per-node: \"x\" is not a whole number from -3 to 10" },
    { "--nproc_per_node x",
      "--nproc_per_node: \"x\" is not a whole number from -3 to 10" },
    { "--nproc_per=x", "--nproc_per_node: \"x\" is not a whole number from -3 to 10" },
    { "--nproc_per_node", "--nproc_per_node needs a value: --nproc_per_node N" },
    { "-pn", "-pn needs a value: -pn N" },
    /* flags of other programs */
    { "--workers=4", "unknown flag --workers; did you mean --nproc-per-node=4?" },
    { "--n_workers 4", "unknown flag --n_workers; did you mean --nproc_per_node=4?" },
    { "--workers", "unknown flag --workers; did you mean --nproc-per-node?" },
    { "-N 2", "unknown flag -N; did you mean --nproc-per-node=2?" },
    { "-vN2", "unknown flag -N; did you mean --nproc-per-node=2?" },
    { "-N", "unknown flag -N (see --help)" },
    { "-Nx", "unknown flag -N (see --help)" },
    { "--N=2", "unknown flag --N (see --help)" },
    { "--root x", "unknown flag --root: none has it" },
    { "--ver=x --root", "--ver could be --verbose or --version" },
    { "--lea-x", "unknown flag --lea-x; did you mean --lease?" },
};

TEST(a_later_message_spells_flags_as_they_were_typed)
{
    char *typed[] = { (char *)"x", (char *)"--nproc_per_node=2", (char *)"--state_d",
                      (char *)"--max-x", NULL };
    char text[] = "--nproc-per-node: 2; --state-dir and --max-x-y, --nproc-per-node";

    opt_spell_as_typed(4, typed, text);
    ck_assert_str_eq(
        text, "--nproc_per_node: 2; --state_dir and --max-x-y, --nproc_per_node");
}

TEST_EACH(a_mistake_is_named_with_what_is_allowed, bad)
{
    ck_assert_int_eq(parse_words(bad[_i].line), -1);
    ck_assert_str_eq(e.text, bad[_i].text);
}

static const char *const bad_numbers[] = {
    "",
    " 5",
    "5 ",
    "+5",
    "0x5",
    "1e1",
    "1.0",
    "5,",
    "--5",
    "-",
    "11",
    "-4",
    "٣",
    "5\n",
    "\t5",
    "five",
    "99999999999999999999",
    "-99999999999999999999",
    "9223372036854775808",
};

TEST_EACH(a_whole_number_is_digits_within_its_bounds, bad_numbers)
{
    const struct opt *row = &table[4];

    got.nodes = 7;
    ck_assert_int_eq(row->set(&got, row, bad_numbers[_i], &e), -1);
    ck_assert_int_eq(got.nodes, 7);
    ck_assert_ptr_nonnull(strstr(e.text, "is not a whole number from -3 to 10"));
}

TEST(a_whole_number_reaches_as_far_as_its_type)
{
    struct opt row = table[4];

    row.min = LLONG_MIN;
    row.max = LLONG_MAX;
    ck_assert_int_eq(row.set(&got, &row, "9223372036854775807", &e), 0);
    ck_assert(got.nodes == LLONG_MAX);
    ck_assert_int_eq(row.set(&got, &row, "-9223372036854775808", &e), 0);
    ck_assert(got.nodes == LLONG_MIN);
    ck_assert_int_eq(row.set(&got, &row, "9223372036854775808", &e), -1);
}

static const char *const bad_seconds[] = {
    "",
    " 1",
    "1 ",
    "+1",
    "-1",
    "0x1",
    "1e3",
    "1.",
    ".5",
    "1.5x",
    "1,5",
    "1..5",
    "1.5.",
    "nan",
    "inf",
    "1.0005",
    "0.1",
    "0",
    "3600.001",
    "3601",
    "0.1999",
    "1. 5",
    "99999999999999999999999999",
    "999999999999999",
};

TEST_EACH(seconds_are_digits_with_at_most_a_thousandth, bad_seconds)
{
    const struct opt *row = &table[5];

    got.lease_ms = 7;
    ck_assert_int_eq(row->set(&got, row, bad_seconds[_i], &e), -1);
    ck_assert_uint_eq(got.lease_ms, 7);
    ck_assert_ptr_nonnull(
        strstr(e.text, "is not a time from 0.2 to 3600 s, as in " TIMES));
}

TEST(after_the_first_word_nothing_is_a_flag_where_a_program_follows)
{
    ck_assert_int_eq(parse_with("-v train.py -v --lease x --", NULL, true), 0);
    ck_assert_str_eq(words(), "train.py -v --lease x --");
    ck_assert_int_eq(first_word, 2);
    ck_assert_int_eq(parse_with("-v -- -train -v", NULL, true), 0);
    ck_assert_str_eq(words(), "-train -v");
}

static const char *const prefixes[] = { "WEAK", "STRONG", NULL };

static const struct {
    const char *variables[4];
    const char *line;
    struct settings expected;
    const char *error; /* NULL: none */
} environments[] = {
    { { "WEAK_STATE_DIR=w" }, "", { .dir = "w" }, NULL },
    { { "WEAK_STATE_DIR=w", "STRONG_STATE_DIR=s" }, "", { .dir = "s" }, NULL },
    { { "WEAK_STATE_DIR=w", "STRONG_STATE_DIR=" }, "", { .dir = "w" }, NULL },
    { { "STRONG_STATE_DIR=s" }, "-d f", { .dir = "f" }, NULL },
    { { "STRONG_VERBOSE=1" }, "", { .verbose = true }, NULL },
    { { "STRONG_VERBOSE=Yes" }, "", { .verbose = true }, NULL },
    { { "STRONG_VERBOSE=0" }, "", { 0 }, NULL },
    { { "WEAK_VERBOSE=1", "STRONG_VERBOSE=no" }, "", { 0 }, NULL },
    { { "STRONG_VERBOSE=maybe" },
      "",
      { 0 },
      "STRONG_VERBOSE: \"maybe\" is not 1 or 0" },
    { { "STRONG_HELP=1", "STRONG_VERSION=2.1" }, "", { 0 }, NULL },
    { { "WEAK_LEASE=x" },
      "",
      { 0 },
      "WEAK_LEASE: \"x\" is not a time from 0.2 to 3600 s, as in " TIMES },
    { { "WEAK_LEASE=x", "STRONG_LEASE=1" }, "", { .lease_ms = 1000 }, NULL },
    { { "STRONG_OLD_NAME=x" }, "", { .hidden = "x" }, NULL },
    { { "OTHER_LEASE=x" }, "", { 0 }, NULL },
    { { "STRONG_WARM=a" }, "", { .warm = "a" }, NULL },
    { { "STRONG_WARM=1" }, "", { 0 }, NULL },
    { { "WEAK_WARM=a", "STRONG_WARM=0" }, "", { 0 }, NULL },
};

/* Put the row's variables into the environment, or take them out again. */
static void set_variables(const char *const *variables, bool present)
{
    for (; *variables; variables++) {
        char name[32];

        snprintf(name, sizeof(name), "%.*s", (int)strcspn(*variables, "="), *variables);
        if (present)
            setenv(name, *variables + strlen(name) + 1, 1);
        else
            unsetenv(name);
    }
}

TEST_EACH(the_environment_gives_defaults_that_flags_override, environments)
{
    int rc;

    set_variables(environments[_i].variables, true);
    rc = parse_with(environments[_i].line, prefixes, false);
    ck_assert_pstr_eq(rc == 0 ? NULL : e.text, environments[_i].error);
    check_settings(&environments[_i].expected);
    set_variables(environments[_i].variables, false);
}

TEST(the_help_is_the_table_wrapped_to_80_columns)
{
    static const char expected[] =
        "  -v, --verbose           Say more.\n"
        "  -h, --help              Show this.\n"
        "      --version           Show the version.\n"
        "  -d, --state-dir DIR     Keep everything in this directory, so that a "
        "daemon\n"
        "                          that was killed comes back with all that it had\n"
        "                          acknowledged before.\n"
        "      --nproc-per-node N  Workers on each node.\n"
        "      --lease SECONDS     How long a silent node is a member.\n"
        "      --a-flag-with-a-very-long-name TEXT\n"
        "                          Has its help below.\n"
        "      --warm[=LIST]       Start warm.\n"
        "  -p, -pn N               As another program types it.\n"
        "  -H, --hosts LIST        May be repeated.\n";
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    opt_print(table, out);
    fclose(out);
    ck_assert_str_eq(text, expected);
    free(text);
}

TEST(a_flag_that_adds_replaces_what_its_variable_gave)
{
    setenv("STRONG_HOSTS", "a", 1);
    ck_assert_int_eq(parse_with("", prefixes, false), 0);
    ck_assert_uint_eq(got.hosts.count, 1);
    ck_assert_str_eq(got.hosts.text[0], "a");
    ck_assert_int_eq(parse_with("-H b --hosts=c", prefixes, false), 0);
    ck_assert_uint_eq(got.hosts.count, 2);
    ck_assert_str_eq(got.hosts.text[0], "b");
    ck_assert_str_eq(got.hosts.text[1], "c");
    ck_assert_ptr_null(got.hosts.text[2]);
    unsetenv("STRONG_HOSTS");
}
