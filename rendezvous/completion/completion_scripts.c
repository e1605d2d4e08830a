/* SPDX-License-Identifier: MIT */
#include "rendezvous/completion/completion.h"

#include <string.h>

/* What is typed to run the program, in these scripts. */
#define COMMAND "\001"

static const char bash_script[] =
    "# bash completion, printed by " COMMAND " --print-completion bash\n"
    "_" COMMAND "()\n"
    "{\n"
    "    local i line cut breaks= words=() at=()\n"
    "    # readline parts words at = and :, too\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        if ((${#words[@]})) && [[ ${COMP_WORDS[i]} == [=:]* ||\n"
    "            ${COMP_WORDS[i - 1]} == *[=:] ]]; then\n"
    "            words[${#words[@]} - 1]+=${COMP_WORDS[i]}\n"
    "        else\n"
    "            words+=(\"${COMP_WORDS[i]}\")\n"
    "            at+=(\"$i\")\n"
    "        fi\n"
    "    done\n"
    "    [[ $COMP_WORDBREAKS == *=* ]] && breaks+==\n"
    "    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:\n"
    "    cut=${words[${#words[@]} - 1]}\n"
    "    if [[ $breaks ]]; then\n"
    "        cut=${cut%\"${cut##*[$breaks]}\"}\n"
    "    else\n"
    "        cut=\n"
    "    fi\n"
    "    COMPREPLY=()\n"
    "    compopt -o nosort 2>/dev/null\n"
    "    while IFS= read -r line; do\n"
    "        case $line in\n"
    "        $'\\tfiles') compopt -o filenames 2>/dev/null ;;\n"
    "        $'\\trest '*) # a command line of its own\n"
    "            if declare -F _command_offset >/dev/null; then\n"
    "                _command_offset \"${at[${line#*rest }]}\"\n"
    "            else\n"
    "                compopt -o default 2>/dev/null\n"
    "            fi\n"
    "            return ;;\n"
    "        *)\n"
    "            line=${line%%$'\\t'*}\n"
    "            COMPREPLY+=(\"${line#\"$cut\"}\") ;;\n"
    "        esac\n"
    "    done < <(\"${COMP_WORDS[0]/#~\\//$HOME/}\" --complete \"${words[@]}\" "
    "2>/dev/null)\n"
    "    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *[=/,] ]] &&\n"
    "        compopt -o nospace 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "complete -F _" COMMAND " " COMMAND "\n";

static const char zsh_script[] =
    "#compdef " COMMAND "\n"
    "# zsh completion, printed by " COMMAND " --print-completion zsh\n"
    "_" COMMAND "()\n"
    "{\n"
    "    local line program tab=$'\\t'\n"
    "    local -a lines before closed closed_texts open open_texts files\n"
    "    program=${(Q)words[1]}\n"
    "    before=(\"${(@Q)words[2,CURRENT-1]}\")\n"
    "    lines=(\"${(@f)$(${~program} --complete \"${before[@]}\" \"${(Q)PREFIX}\" "
    "2>/dev/null)}\")\n"
    "    for line in \"${lines[@]}\"; do\n"
    "        case $line in\n"
    "        '') ;;\n"
    "        ${tab}files) files=(-f) ;;\n"
    "        ${tab}rest*) # a command line of its own\n"
    "            shift $((${line#*rest } + 1)) words\n"
    "            ((CURRENT -= ${line#*rest } + 1))\n"
    "            _normal\n"
    "            return ;;\n"
    "        *[=/,]) open+=(\"$line\") open_texts+=(\"$line\") ;;\n"
    "        *)\n"
    "            closed+=(\"${line%%$tab*}\")\n"
    "            closed_texts+=(\"${line/$tab/  }\") ;;\n"
    "        esac\n"
    "    done\n"
    "    (($#open)) && compadd \"${files[@]}\" -V " COMMAND
    " -S '' -d open_texts -a open\n"
    "    (($#closed)) && compadd \"${files[@]}\" -V " COMMAND
    " -d closed_texts -a closed\n"
    "}\n"
    "if [[ ${funcstack[1]} == _" COMMAND " ]]; then\n"
    "    _" COMMAND " \"$@\"\n"
    "else\n"
    "    compdef _" COMMAND " " COMMAND "\n"
    "fi\n";

static const char fish_script[] =
    "# fish completion, printed by " COMMAND " --print-completion fish\n"
    "function __complete_" COMMAND "\n"
    "    set -l words (commandline -opc)\n"
    "    set -l current (commandline -ct)\n"
    "    set -l program $words[1]\n"
    "    set -e words[1]\n"
    "    set -l lines ($program --complete $words \"$current\" 2>/dev/null)\n"
    "    if string match -q -r '^\\trest ' -- \"$lines[1]\"\n"
    "        set -l first (math (string replace -r '^\\trest ' '' -- $lines[1]) + 1)\n"
    "        complete -C (string join ' ' -- (string escape -- $words[$first..-1]) "
    "\"$current\")\n"
    "        return\n"
    "    end\n"
    "    string match -v -r '^\\t' -- $lines\n"
    "end\n"
    "complete -c " COMMAND " -e\n"
    "complete -c " COMMAND " -k -f -a '(__complete_" COMMAND ")'\n";

int completion_set_shell(void *target, const struct opt *opt, const char *value,
                         struct err *e)
{
    static const char *const names[] = {
        [SHELL_BASH] = "bash", [SHELL_ZSH] = "zsh", [SHELL_FISH] = "fish"
    };
    enum completion_shell *shell = (void *)((char *)target + opt->offset);

    for (int i = SHELL_BASH; i <= SHELL_FISH; i++)
        if (strcmp(value, names[i]) == 0) {
            *shell = (enum completion_shell)i;
            return 0;
        }
    return err_set(e, "\"%s\" is not bash, zsh or fish", value);
}

void completion_print_script(enum completion_shell shell, const char *command,
                             FILE *out)
{
    const char *script = shell == SHELL_BASH  ? bash_script
                         : shell == SHELL_ZSH ? zsh_script
                                              : fish_script;

    for (; *script; script++)
        if (*script == *COMMAND)
            fputs(command, out);
        else
            fputc(*script, out);
}
