/* SPDX-License-Identifier: MIT */
/*
 * Shell completions, generated from the table of flags. The possible values of a flag
 * come from its form in the table, as in "bash|zsh".
 */
#include <ctype.h>
#include <string.h>

#include "launcher/options.h"

/* The literal words of a form: all of "none|0|all", and cpu and gpu of "N|cpu|gpu". */
static void print_choices(const char *arg, FILE *out)
{
    const char *separator = "";

    while (*arg) {
        int length = (int)strcspn(arg, "|");

        if (islower((unsigned char)*arg) || isdigit((unsigned char)*arg)) {
            fprintf(out, "%s%.*s", separator, length, arg);
            separator = " ";
        }
        arg += length;
        arg += *arg == '|';
    }
}

static bool needs_value(const struct opt *o)
{
    return o->arg && !o->arg_optional;
}

static bool is_file(const struct opt *o)
{
    return strcmp(o->arg, "FILE") == 0;
}

static bool is_folder(const struct opt *o)
{
    return strcmp(o->arg, "DIR") == 0;
}

static void print_bash_values(const struct opt *o, FILE *out)
{
    fprintf(out, "    --%s", o->name);
    if (o->letter)
        fprintf(out, "|-%c", o->letter);
    if (o->one_dash)
        fprintf(out, "|-%s", o->name);
    fputs(") ", out);
    if (is_folder(o)) {
        fputs("COMPREPLY=($(compgen -d -- \"$cur\"))", out);
    } else if (is_file(o)) {
        fputs("COMPREPLY=($(compgen -f -- \"$cur\"))", out);
    } else {
        fputs("COMPREPLY=($(compgen -W '", out);
        print_choices(o->arg, out);
        fputs("' -- \"$cur\"))", out);
    }
    fputs("; return ;;\n", out);
}

/* Flags that --help does not show are known, and not offered. */
static void print_bash_flags(const char *variable, bool with_value, bool shown,
                             FILE *out)
{
    fprintf(out, "    local %s='", variable);
    for (const struct opt *o = options_table; o->name; o++)
        if (needs_value(o) == with_value && shown == (o->help != NULL)) {
            fprintf(out, " --%s", o->name);
            if (o->letter)
                fprintf(out, " -%c", o->letter);
            if (o->one_dash)
                fprintf(out, " -%s", o->name);
        }
    fputs("'\n", out);
}

/* Completes crun's flags before the program, and the shell's default after it. */
static void print_bash(const char *command, FILE *out)
{
    fputs("# bash completion, printed by crun --print-completion bash\n"
          "_crun()\n{\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}"
          " i word\n",
          out);
    print_bash_flags("switches", false, true, out);
    print_bash_flags("valued", true, true, out);
    print_bash_flags("others", true, false, out);
    fputs("    COMPREPLY=()\n"
          "    [[ $cur == '=' ]] && cur=\n"
          "    [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        word=${COMP_WORDS[i]//_/-}\n"
          "        if [[ \" $valued $others \" == *\" $word \"* ]]; then\n"
          "            [[ ${COMP_WORDS[i + 1]} == '=' ]] && ((++i))\n"
          "            ((++i))\n"
          "        elif [[ $word != -?* || $word == -- ]]; then\n"
          "            compopt -o default # the program's own\n"
          "            return\n"
          "        fi\n"
          "    done\n"
          "    case ${prev//_/-} in\n",
          out);
    for (const struct opt *o = options_table; o->name; o++)
        if (needs_value(o))
            print_bash_values(o, out);
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$switches $valued\" -- \"${cur//_/-}\"))\n"
          "    else\n"
          "        COMPREPLY=($(compgen -c -f -- \"$cur\"))\n"
          "    fi\n"
          "}\n",
          out);
    fprintf(out, "complete -o filenames -F _crun %s\n", command);
}

/* Text within single quotes; characters that _arguments interprets are escaped. */
static void print_zsh_text(const char *text, FILE *out)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
}

static void print_zsh_value(const struct opt *o, FILE *out)
{
    fputs(o->arg_optional ? "::" : ":", out);
    print_zsh_text(o->arg, out);
    fputc(':', out);
    if (is_folder(o)) {
        fputs("_files -/", out);
    } else if (is_file(o)) {
        fputs("_files", out);
    } else {
        fputc('(', out);
        print_choices(o->arg, out);
        fputc(')', out);
    }
}

static void print_zsh_flag(const struct opt *o, const char *flag, FILE *out)
{
    const char *separator = flag[1] != '-' && !flag[2] ? "+"
                            : o->arg_optional          ? "=-"
                                                       : "=";

    fprintf(out, "    '%s%s[", flag, o->arg ? separator : "");
    print_zsh_text(o->help, out);
    fputc(']', out);
    if (o->arg)
        print_zsh_value(o, out);
    fputs("' \\\n", out);
}

static void print_zsh(const char *command, FILE *out)
{
    fprintf(out, "#compdef %s\n", command);
    fputs("# zsh completion, printed by crun --print-completion zsh\n"
          "_arguments -s -S \\\n",
          out);
    for (const struct opt *o = options_table; o->name; o++) {
        char flag[64];

        if (!o->help)
            continue;
        snprintf(flag, sizeof(flag), "--%s", o->name);
        print_zsh_flag(o, flag, out);
        snprintf(flag, sizeof(flag), "-%s", o->name);
        if (o->one_dash)
            print_zsh_flag(o, flag, out);
        snprintf(flag, sizeof(flag), "-%c", o->letter);
        if (o->letter)
            print_zsh_flag(o, flag, out);
    }
    fputs("    '1:program:{ _command_names -e; _files }' \\\n"
          "    '*::arguments:_normal'\n",
          out);
}

void options_print_completion(enum options_shell shell, const char *command, FILE *out)
{
    if (shell == SHELL_BASH)
        print_bash(command, out);
    else
        print_zsh(command, out);
}
