/* The program `otel-memwatch`: starts the command of `wrap` and becomes Python, which adopts the command (`adopt.py`).

   Python can start the command after 17 ms, this program after 1 ms. Beside it lies the plain twin, a script. The script does
   everything if the case is not simple: other options than a few, settings in the environment, budgets of a project, or no
   cgroup of version 1. Without a cgroup the first sample must not come later: the ranges of 120 random programs were twice as
   wide. On version 2 a process enters a cgroup in 12 ms (`own_cgroup.py`). Python runs without `site`, which takes 3 ms: the
   script finds the package, and `site_on_demand.py` does the rest before the first import of anything else. */

#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher.h"

#define PROGRAM "otel-memwatch"
#define PLAIN "plain-otel-memwatch"
#define STATE "OTEL_MEMWATCH_STARTED" /* for `adopt.py` */

extern char **environ;

/* Programs whose name is not the label of the run (`command_key.py`). A trailing * is a prefix. */
static const char *const OTHER_LABELS[] = {
    "pypy*", "node*", "ruby*", "perl*", "Rscript*", "julia*", "deno*", "php*", "lua*",
    "git", "cargo", "go", "npm", "yarn", "pnpm", "docker", "podman", "kubectl", "pip", "uv", "poetry", "conda", "mamba",
    "samtools", "bcftools", "bedtools", "bwa", "gatk", "dotnet", "bazel", "terraform", "helm", "dvc", "dbt", "ninja",
    "snakemake", "nextflow", "airflow", "otel-memwatch", "apt", "apt-get", "systemctl", "zig", "swift", "mvn", "gradle",
    "env", "nice", "nohup", "time", "stdbuf", "ionice", "chrt", "setsid", "exec", "timeout",
    "taskset", "numactl", "java", NULL};
/* Programs whose script is the label. */
static const char *const SHELLS[] = {"sh", "bash", "dash", "zsh", "ksh", "ash", NULL};
/* Variables whose mistakes end Python before it could adopt a command. */
static const char *const OF_PYTHON[] = {"PYTHONHOME", "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONMALLOC",
                                        "PYTHONTRACEMALLOC", "PYTHONUTF8", NULL};

typedef struct {
    const char *out, *runs, *name, *interval;
    char **command;
} Request;

static char script[PATH_MAX + 32], python[PATH_MAX + 8], directory[2 * PATH_MAX];

/* Return the command line of Python with the script; NULL: no memory is left. */
static char **with_python(char **arguments)
{
    size_t count = 1;
    while (arguments[count])
        count++;
    char **words = calloc(count + 3, sizeof *words);
    if (words == NULL)
        return NULL;
    words[0] = python;
    words[1] = "-S";
    words[2] = script;
    memcpy(words + 3, arguments + 1, (count - 1) * sizeof *words);
    return words;
}

/* Become the plain twin. */
static void plain(char **arguments)
{
    char **words = *python ? with_python(arguments) : NULL;
    if (words)
        execv(python, words);
    arguments[0] = script;
    execv(script, arguments);
    dprintf(2, PROGRAM ": %s, or its interpreter: %s\n", script, strerror(errno));
    _exit(126);
}

/* Find the interpreter in the first line of the script, which the installer has written; its path may have blanks. A line of
   another form, as one with options, is left to the kernel. */
static void find_python(void)
{
    char line[PATH_MAX + 3] = "", *end;
    int file = open(script, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, line, sizeof line - 1);
    if (file >= 0)
        close(file);
    if (got < 3 || strncmp(line, "#!/", 3) != 0 || (end = strchr(line, '\n')) == NULL)
        return;
    *end = 0;
    const char *name = strrchr(line, '/') + 1;
    if (strncmp(name, "python", 6) == 0 && access(line + 2, X_OK) == 0)
        snprintf(python, sizeof python, "%s", line + 2);
}

static int is_plain_name(const char *name)
{
    for (const char *letter = name; *letter; letter++)
        if (!isascii((unsigned char)*letter) || (!isalnum((unsigned char)*letter) && !strchr("._+-", *letter)))
            return 0;
    return *name && !strchr("._-", *name) && !strchr("._", name[strlen(name) - 1]);
}

/* Parse the arguments; return whether all options are among the few that change nothing before the start. */
static int parse(int count, char **arguments, Request *request)
{
    int index = 2;
    if (count < 3 || strcmp(arguments[1], "wrap") != 0)
        return 0;
    for (; index < count && arguments[index][0] == '-'; index++) {
        const char *word = arguments[index], *value = NULL, **place = NULL;
        if (strcmp(word, "--") == 0) {
            index++;
            break;
        }
        if (strcmp(word, "--quiet") == 0 || strcmp(word, "--no-report") == 0 || strcmp(word, "--no-plot") == 0)
            continue;
        static const char *const NAMES[] = {"--out", "--runs", "--name", "--interval"};
        const char **places[] = {&request->out, &request->runs, &request->name, &request->interval};
        for (int one = 0; one < 4; one++) {
            size_t length = strlen(NAMES[one]);
            if (strncmp(word, NAMES[one], length) == 0 && (word[length] == 0 || word[length] == '=')) {
                place = places[one];
                value = word[length] ? word + length + 1 : arguments[++index];
            }
        }
        if (place == NULL || value == NULL || *value == 0)
            return 0;
        *place = value;
    }
    request->command = arguments + index;
    const char *interval = request->interval ? request->interval : "1";
    char *end;
    double seconds = strtod(interval, &end);
    if (*end || interval[strspn(interval, "0123456789.")] || strlen(interval) > 20 || seconds < 0.01 || seconds > 60)
        return 0;
    if (request->name && (!is_plain_name(request->name) || strcmp(request->name, "latest") == 0 || strlen(request->name) > 200))
        return 0;
    return index < count && *arguments[index] != 0;
}

/* Return whether Python may be unable to start, although the command could. */
static int is_narrow(void)
{
    static const struct {
        int kind;
        rlim_t least;
    } LEAST[] = {{RLIMIT_AS, 1 << 30}, {RLIMIT_DATA, 1 << 30}, {RLIMIT_NOFILE, 64}};
    struct rlimit limit;
    for (int number = 0; number < 3; number++)
        if (getrlimit(LEAST[number].kind, &limit) != 0 || limit.rlim_cur < LEAST[number].least)
            return 1;
    return 0;
}

/* Return whether nothing that this process inherited needs Python: settings, budgets, timers, closed files, children. */
static int is_ordinary(const char *here)
{
    char path[64];
    for (int file = 0; file < 3; file++)
        if (fcntl(file, F_GETFD) < 0)
            return 0;
    for (char **variable = environ; *variable; variable++)
        if (named(*variable, UNKNOWN) || named(*variable, OF_PYTHON))
            return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    char *children = content(path);
    int childless = children != NULL && *children == 0;
    free(children);
    return childless && !is_narrow() && !has_timer() && !has_project(here);
}

/* Write the label of the command as `command_label` finds it; return whether it is a simple one. */
static int put_label(char *label, size_t size, char **command)
{
    const char *slash = strrchr(command[0], '/'), *name = slash ? slash + 1 : command[0];
    for (const char *const *other = OTHER_LABELS; *other; other++) {
        size_t length = strcspn(*other, "*");
        if ((*other)[length] ? strncmp(name, *other, length) == 0 : strcmp(name, *other) == 0)
            return 0;
    }
    const char *ending = NULL, *first = command[1];
    for (const char *const *shell = SHELLS; *shell; shell++)
        if (strcmp(name, *shell) == 0)
            ending = ".sh";
    int is_python = strncmp(name, "python", 6) == 0 && name[6 + strspn(name + 6, "0123456789.")] == 0;
    if (is_python) {
        ending = ".py";
        name = "python";
    }
    if (ending && first && *first == '-') {
        if (!is_python || (strcmp(first, "-c") && strcmp(first, "-m")))
            return 0;
        if (first[1] == 'm')
            name = command[2] ? command[2] : "";
    } else if (ending && first) {
        name = (slash = strrchr(first, '/')) ? slash + 1 : first;
        size_t length = strlen(name);
        if (length >= 3 && strcmp(name + length - 3, ending) == 0) {
            snprintf(label, size, "%.*s", (int)(length - 3), name);
            return is_plain_name(label);
        }
    }
    snprintf(label, size, "%s", name);
    return is_plain_name(label);
}

/* Find the path of the run directory as `run_directory.py` does, and make its parents. Return false for unusual ones. */
static int find_directory(const Request *request, const char *here)
{
    char label[PATH_MAX], stamp[32];
    const char *given = request->out ? request->out : request->runs ? request->runs : "memwatch-runs";
    time_t now = time(NULL);
    struct tm utc;
    size_t length = strlen(given);
    if (strstr(given, "//") || strstr(given, "./") || strchr(given, '\n') || strchr(here, '\n') || given[length - 1] == '/' ||
        given[length - 1] == '.')
        return 0;
    int end = snprintf(directory, PATH_MAX, "%s%s%s", *given == '/' ? "" : here, *given == '/' ? "" : "/", given);
    if (end >= PATH_MAX - 300)
        return 0;
    if (request->out == NULL) {
        if (request->name == NULL && !put_label(label, sizeof label, request->command))
            return 0;
        if (gmtime_r(&now, &utc) == NULL || strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc) == 0)
            return 0;
        snprintf(directory + end, sizeof directory - (size_t)end, "/%s-%.60s-%d", stamp, request->name ? request->name : label,
                 getpid());
    }
    char *name = strrchr(directory, '/');
    if (name == directory)
        return 1;
    *name = 0;
    int made = make_directories(directory);
    *name = '/';
    return made;
}

/* Make the cgroup, with the smallest limit around it, as `_make_below` does; return whether that was possible. */
static int find_group(void)
{
    char path[PATH_MAX + 160], above[PATH_MAX + 128], *end;
    long long least = LLONG_MAX, limit;
    make_group();
    if (group[0] == 0)
        return 0;
    snprintf(above, sizeof above, "%s", group);
    while ((end = strrchr(above, '/')) != NULL) {
        *end = 0;
        if ((limit = number_in(above, "memory.limit_in_bytes")) < 0)
            break;
        least = limit < least ? limit : least;
    }
    if (least >= LLONG_MAX - sysconf(_SC_PAGESIZE))
        return 1;
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", group);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    int done = file >= 0 && dprintf(file, "%lld", least) > 0;
    if (file >= 0)
        close(file);
    return done;
}

/* Return the paths to try, in order, as `Command._candidates`; NULL: no memory is left. */
static char **candidates(const char *name)
{
    static char standard[256];
    const char *path = getenv("PATH");
    if (path == NULL && confstr(_CS_PATH, standard, sizeof standard) > 0)
        path = standard;
    size_t count = 2, place = 0;
    for (const char *letter = path ? path : ""; *letter; letter++)
        count += *letter == ':';
    char **paths = calloc(count, sizeof *paths);
    if (paths == NULL || strchr(name, '/')) {
        if (paths)
            paths[0] = strdup(name);
        return paths;
    }
    for (const char *folder = path ? path : ""; folder; folder = strchr(folder, ':') ? strchr(folder, ':') + 1 : NULL) {
        int length = (int)strcspn(folder, ":");
        const char *between = length == 0 || folder[length - 1] == '/' ? "" : "/";
        if (asprintf(&paths[place++], "%.*s%s%s", length, folder, between, name) < 0)
            return NULL;
    }
    return paths;
}

/* Return a copy of the environment with one or two more variables; `second`: may be NULL. The environment has none of these
   names (`is_ordinary`). */
static char **with_variables(char *first, char *second)
{
    size_t count = 0, place = 0;
    while (environ[count])
        count++;
    char **variables = calloc(count + 3, sizeof *variables);
    if (variables == NULL)
        return NULL;
    for (size_t number = 0; number < count; number++)
        variables[place++] = environ[number];
    variables[place++] = first;
    variables[place++] = second;
    return variables;
}

/* Become Python, with `state` for it, and these files open. */
static void hand_over(char **arguments, char *state, const int kept[4])
{
    char **words = with_python(arguments), **variables = with_variables(state, NULL);
    if (words == NULL || variables == NULL)
        return;
    for (int number = 0; number < 4; number++)
        if (kept[number] >= 0)
            fcntl(kept[number], F_SETFD, 0);
    execve(python, words, variables);
}

/* Return the read end of a pipe that holds /proc/vmstat of this moment; -1: not possible. */
static int save_counters(void)
{
    int ends[2];
    char *text = content("/proc/vmstat");
    size_t length = text ? strlen(text) : 0;
    if (length == 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    if (write(ends[1], text, length) != (ssize_t)length) {
        close(ends[0]);
        ends[0] = -1;
    }
    close(ends[1]);
    free(text);
    return ends[0];
}

/* Start the command, and become Python. Return if nothing was started; then all is as before. */
static void start(const Request *request, char **arguments)
{
    static char state[4 * PATH_MAX];
    char trace[64], *first, *second;
    int go[2], reports[2], entrance;
    if (!make_trace(trace, sizeof trace))
        return;
    char **paths = candidates(request->command[0]);
    if (asprintf(&first, "OTEL_MEMWATCH_RUN_DIR=%s", directory) < 0 || asprintf(&second, "TRACEPARENT=%s", trace) < 0)
        return;
    char **variables = with_variables(first, second);
    if (paths == NULL || variables == NULL)
        return;
    if ((entrance = open_entrance()) < 0)
        return;
    if (pipe2(go, O_CLOEXEC) != 0 || pipe2(reports, O_CLOEXEC) != 0)
        return;
    int counters = save_counters();

    Inherited inherited;
    take_signals(&inherited);
    pid_t target = fork();
    if (target == 0) {
        close(go[1]);
        report = reports[1];
        give_signals(&inherited);
        become(entrance, go[0], NULL, paths, request->command, variables);
    }
    if (target < 0) {
        give_signals(&inherited);
        return;
    }
    close_files_of_shell();
    start_witness(target);
    close(go[0]);
    close(reports[1]);
    snprintf(state, sizeof state, STATE "=%d\n%d\n%d\n%d\n%d\n%d\n%s\n%s\n%s", target, witness, ask, answers, reports[0],
             counters, trace, directory, group);
    close(go[1]);
    hand_over(arguments, state, (int[]){ask, answers, reports[0], counters});
    int status = 0; /* Python is gone, or the environment too large for it. The command runs on */
    dprintf(2, PROGRAM ": nothing is recorded: %s: %s\n", python, strerror(errno));
    if (witness > 0)
        kill(witness, SIGKILL);
    waitpid(target, &status, 0);
    rmdir(directory);
    rmdir(group);
    end_like(status);
}

/* Run as `otel-memwatch`, or by another name that an installer has given it. Return if this is `recipe`. */
void launch(int count, char **arguments)
{
    char own[PATH_MAX], here[PATH_MAX];
    Request request = {0};
    if (realpath((const char *)getauxval(AT_EXECFN), own) == NULL || strcmp(strrchr(own, '/') + 1, "recipe") == 0)
        return;
    *strrchr(own, '/') = 0;
    snprintf(script, sizeof script, "%s/" PLAIN, own);
    find_python();
    if (*python && parse(count, arguments, &request) && getcwd(here, sizeof here) != NULL && is_ordinary(here)) {
        if (find_group() && find_directory(&request, here) && mkdir(directory, 0700) == 0) {
            start(&request, arguments);
            rmdir(directory);
        }
        if (group[0])
            rmdir(group);
    }
    plain(arguments);
}
