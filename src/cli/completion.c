/* completion.c - `abx completion`: what a shell offers for the next word.
 *
 * One logic for all shells: their scripts hand over the words that were typed ("abx completion words -- WORD...") and get
 * the candidates, one a line with a tab and a description. The line "@ids" asks for the ids of running sandboxes; nothing at
 * all means files. Client commands come from the table in spec.h; the others have their own option tables, and a
 * test compares all with --help.
 */
#include <stdio.h>
#include <string.h>

#include "base/macro.h"
#include "cli/cli.h"
#include "cli/spec.h"

static const char help[] =
    "usage: abx completion bash|zsh|fish\n"
    "\n"
    "Prints the script that teaches a shell the words of abx. To have it always:\n"
    "\n"
    "  bash   abx completion bash > /etc/bash_completion.d/abx\n"
    "         or in ~/.bashrc: source <(abx completion bash)\n"
    "  zsh    abx completion zsh > \"${fpath[1]}/_abx\"\n"
    "  fish   abx completion fish > ~/.config/fish/completions/abx.fish\n"
    "\n"
    "  -h, --help           print this\n";

/* Ids come from a service: only what can be an id is offered, because shells evaluate words. */
static const char bash_script[] =
    "# bash completion of abx, made by 'abx completion bash'\n"
    "_abx() {\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} line word\n"
    "    local -a lines\n"
    "    mapfile -t lines < <(abx completion words -- \"${COMP_WORDS[@]:1:COMP_CWORD}\" "
    "2>/dev/null)\n"
    "    if [[ ${lines[0]-} == @ids ]]; then\n"
    "        mapfile -t lines < <(abx ls -q --request-timeout 2 2>/dev/null </dev/null)\n"
    "    fi\n"
    "    COMPREPLY=()\n"
    "    for line in \"${lines[@]}\"; do\n"
    "        word=${line%%$'\\t'*}\n"
    "        if [[ $word =~ ^[A-Za-z0-9_-]+$ && $word == \"$current\"* ]]; then\n"
    "            COMPREPLY+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "}\n"
    "complete -o default -F _abx abx\n";

static const char zsh_script[] =
    "#compdef abx\n"
    "# zsh completion of abx, made by 'abx completion zsh'\n"
    "_abx() {\n"
    "    local line\n"
    "    local -a lines offered shown\n"
    "    lines=(\"${(@f)$(abx completion words -- \"${(@)words[2,CURRENT]}\" 2>/dev/null)}\")\n"
    "    if [[ $lines[1] == @ids ]]; then\n"
    "        lines=(\"${(@f)$(abx ls -q --request-timeout 2 2>/dev/null </dev/null)}\")\n"
    "    fi\n"
    "    for line in $lines; do\n"
    "        [[ ${line%%$'\\t'*} =~ '^[A-Za-z0-9_-]+$' ]] || continue\n"
    "        offered+=(\"${line%%$'\\t'*}\")\n"
    "        shown+=(\"${line/$'\\t'/  -- }\")\n"
    "    done\n"
    "    if (( $#offered )); then\n"
    "        compadd -l -d shown -a offered\n"
    "    else\n"
    "        _files\n"
    "    fi\n"
    "}\n"
    "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
    "    _abx \"$@\"\n"
    "else\n"
    "    compdef _abx abx\n"
    "fi\n";

static const char fish_script[] =
    "# fish completion of abx, made by 'abx completion fish'\n"
    "function __abx_words\n"
    "    set -l typed (commandline -opc) (commandline -ct)\n"
    "    set -l lines (abx completion words -- $typed[2..-1] 2>/dev/null)\n"
    "    if test (count $lines) -eq 0\n"
    "        __fish_complete_path (commandline -ct)\n"
    "        return\n"
    "    end\n"
    "    if test \"$lines[1]\" = @ids\n"
    "        set lines (abx ls -q --request-timeout 2 2>/dev/null </dev/null)\n"
    "    end\n"
    "    for line in $lines\n"
    "        if string match -qr '^[A-Za-z0-9_-]+(\\t|$)' -- $line\n"
    "            echo $line\n"
    "        end\n"
    "    end\n"
    "end\n"
    "complete -c abx -f -a '(__abx_words)'\n";

/* The commands that are not in the table; verbs are separated by a blank. Those of config are in the other program. */
static const struct option config_options[] = {
    { "show-origin", no_argument, NULL, 0 },   { "reveal", no_argument, NULL, 0 },
    { "profile", required_argument, NULL, 0 }, { "json", no_argument, NULL, 0 },
    { "help", no_argument, NULL, 0 },          { 0 },
};
static const struct option help_options[] = { { "help", no_argument, NULL, 0 }, { 0 } };
static const struct {
    const char *name, *summary, *verbs;
    const struct option *options;
} others[] = {
    { "serve", "run the sandbox service on this machine", "", serve_options },
    { "key", "create, list and revoke API keys", "create list revoke local", key_options },
    { "template", "list templates, build the base template", "list build-base", template_options },
    { "doctor", "check what this machine can do; audit a service", "", doctor_options },
    { "config", "read and change the configuration of clients", "list get set unset path",
      config_options },
    { "completion", "print the completion script of a shell", "bash zsh fish", help_options },
    { "help", "print the commands", "", help_options },
    { "version", "print the version", "", help_options },
};

static void offer(const char *word, size_t size, const char *summary, const char *begin)
{
    if (size < strlen(begin) || strncmp(word, begin, strlen(begin)) != 0)
        return;
    (void)printf("%.*s", (int)size, word);
    if (summary)
        (void)printf("\t%s", summary);
    (void)putchar('\n');
}

static void offer_words(const char *words, const char *begin)
{
    while (*words) {
        size_t n = strcspn(words, " ");

        offer(words, n, NULL, begin);
        words += n + (words[n] == ' ');
    }
}

static void offer_longs(const struct option *options, const char *begin)
{
    char word[64];

    for (; options->name; options++) {
        int n = snprintf(word, sizeof word, "--%s", options->name);

        offer(word, (size_t)n, NULL, begin);
    }
}

static void offer_commands(const char *begin)
{
    const struct spec_command *c;

    offer("sandbox", 7, "create and use sandboxes", begin);
    for (size_t i = 0; (c = spec_at(i)) != NULL; i++) {
        if (!strchr(c->name, ' '))
            offer(c->name, strlen(c->name), c->summary, begin);
        for (size_t k = 0; k < ARRAY_SIZE(c->alias) && c->alias[k]; k++)
            offer(c->alias[k], strlen(c->alias[k]), c->summary, begin);
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        offer(others[i].name, strlen(others[i].name), others[i].summary, begin);
}

static void offer_group(const char *begin)
{
    const struct spec_command *c;

    for (size_t i = 0; (c = spec_at(i)) != NULL; i++) {
        const char *blank = strchr(c->name, ' ');

        if (blank)
            offer(blank + 1, strlen(blank + 1), c->summary, begin);
    }
}

/* Does the option need the next word? */
static bool takes_next(const struct spec_command *c, const char *word)
{
    uint64_t set = spec_options_of(c);

    for (size_t i = 0; i < OPT_COUNT; i++) {
        const struct spec_option *o = &spec_options[i];

        if (!(set & SPEC_BIT(i)) || o->kind == SPEC_FLAG)
            continue;
        if (word[0] == '-' && word[1] == '-' && strcmp(word + 2, o->name) == 0)
            return true;
        if (o->letter && word[0] == '-' && word[1] == o->letter && word[2] == '\0')
            return true;
    }
    return false;
}

static void offer_options(const struct spec_command *c, const char *begin)
{
    uint64_t set = spec_options_of(c);
    char word[64];

    for (size_t i = 0; i < OPT_COUNT; i++)
        if (set & SPEC_BIT(i)) {
            int n = snprintf(word, sizeof word, "--%s", spec_options[i].name);

            offer(word, (size_t)n, spec_options[i].help, begin);
        }
}

/* The last of `words` behind a command's name; it may be empty. */
static void complete_command(const struct spec_command *c, char *const *words, int n)
{
    const char *last = words[n - 1];
    bool takes_ids =
        strncmp(c->arguments, "[ID...", 6) == 0 || strncmp(c->arguments, "ID...", 5) == 0;
    size_t count = 0;

    for (int i = 0; i + 1 < n; i++) {
        if (strcmp(words[i], "--") == 0)
            return;
        if (words[i][0] == '-' && takes_next(c, words[i])) {
            if (i + 2 == n)
                return; /* its value is what is typed */
            i++;
        } else if (words[i][0] != '-') {
            count++;
        }
        if (c->has_command && count > c->command_at)
            return; /* the command's own words */
    }
    if (*last == '-')
        offer_options(c, last);
    else if (takes_ids || (count == 0 && strncmp(c->arguments, "ID", 2) == 0))
        (void)puts("@ids");
}

static void complete(char *const *words, int n)
{
    const struct spec_command *c;
    int name_words = 0;

    if (n <= 1) {
        offer_commands(n == 1 ? words[0] : "");
        return;
    }
    if (n == 2 && strcmp(words[0], "sandbox") == 0) {
        offer_group(words[1]);
        return;
    }
    c = spec_find(n - 1, words, &name_words);
    if (c) {
        complete_command(c, words + name_words, n - name_words);
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (strcmp(words[0], others[i].name) == 0) {
            if (words[n - 1][0] == '-')
                offer_longs(others[i].options, words[n - 1]);
            else if (n == 2)
                offer_words(others[i].verbs, words[n - 1]);
        }
}

int cmd_completion(int argc, char **argv)
{
    const char *shell = argc > 1 ? argv[1] : "";
    int r;

    if (strcmp(shell, "words") == 0) {
        int skip = argc > 2 && strcmp(argv[2], "--") == 0 ? 3 : 2;

        complete(argv + skip, argc - skip);
        return 0;
    }
    if (argc > 2)
        return cli_usage("completion", "unexpected argument '%s'", argv[2]);
    if (strcmp(shell, "bash") == 0)
        r = fputs(bash_script, stdout);
    else if (strcmp(shell, "zsh") == 0)
        r = fputs(zsh_script, stdout);
    else if (strcmp(shell, "fish") == 0)
        r = fputs(fish_script, stdout);
    else if (strcmp(shell, "-h") == 0 || strcmp(shell, "--help") == 0)
        r = fputs(help, stdout);
    else
        return cli_usage("completion", "needs bash, zsh or fish");
    return r < 0;
}
