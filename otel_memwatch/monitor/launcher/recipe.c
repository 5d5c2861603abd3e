/* Recorder of short recipes: runs a shell for make and appends one line to recipes.jsonl when the shell ends.

   Usage: recipe PYTHON -I -S -c PROGRAM SHELL PACKAGE [--runs DIR] -- ARGUMENTS

   The words after "recipe" are the command of the Python recorder, the plain twin. It takes over

   - before the shell starts, if this program does not know enough: outside make, in batch jobs, with options in
     the environment, with budgets of a project;
   - while the shell runs, if it runs longer than PATIENCE, or if anything but the end of the shell happens: a signal, a
     stop, the end of an orphan. Signals are blocked and stay pending across exec. The shell stays the child of this
     process. The words "@" and the state are then inserted before SHELL's options (see `adopt.py`).

   Python starts in 10 ms and needs 50 ms for a record. This program needs 1 ms.

   Under the name "otel-memwatch" it is the program of `launch.c`. Under the name "signal-witness" it is only the witness
   (`witness.c`), with its pipes as stdin and stdout. Under the name "command-start" it makes a child that becomes a command
   (`start.c`), and then it is the witness. */

#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launcher.h"

#define PATIENCE 1.0 /* seconds */
#define SHELL 6      /* index of the shell in argv */
#define OPTIONS 8    /* index of the first option */

extern char **environ;

/* Variables that identify a job of GitHub or GitLab: all that tags.py and resource.py read of these. They go into the line. */
static const char *const IDENTIFYING[] = {
    "GITHUB_ACTIONS", "GITHUB_WORKFLOW", "GITHUB_JOB", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_REPOSITORY",
    "GITHUB_REF_NAME", "GITHUB_HEAD_REF", "GITHUB_SHA", "GITHUB_SERVER_URL", "RUNNER_NAME", "GITLAB_CI", "CI_PIPELINE_ID",
    "CI_PIPELINE_NAME", "CI_PIPELINE_URL", "CI_JOB_NAME", "CI_JOB_ID", "CI_JOB_URL", "CI_PROJECT_PATH", "CI_PROJECT_URL",
    "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA", "CI_RUNNER_ID", "CI_RUNNER_DESCRIPTION", NULL};
/* Variables that change nothing here. */
static const char *const HARMLESS[] = {"OTEL_MEMWATCH_RUN_DIR", "OTEL_MEMWATCH_RUNS", NULL};

/* Return whether the Python recorder has to record from the start. */
static int is_unknown(const char *directory)
{
    const char *level = getenv("MAKELEVEL");
    if (level == NULL || *level == 0)
        return 1;
    for (char **variable = environ; *variable; variable++)
        if (named(*variable, UNKNOWN) && !named(*variable, HARMLESS))
            return 1;
    return has_timer() || has_project(directory);
}

/* Facts that the shell's process notes before its exec, in memory that it shares with us. */
typedef struct {
    double started;
    long floor_bytes, faults_before;
    int misplaced;
} Child;

static Child *child;
static pid_t target;
static int end; /* index of "--" in `words` */
static char here[PATH_MAX], runs[PATH_MAX], store[PATH_MAX + 32], directory[2 * PATH_MAX], id[256], trace[64];
static double wall, monotonic; /* of the start */

/* Become the Python recorder, or the shell if Python is gone. */
_Noreturn static void plain(void)
{
    execv(words[1], words + 1);
    words[end] = words[SHELL];
    execv(words[SHELL], words + end);
    _exit(126);
}

/* Let the Python recorder adopt the shell. The signal mask and pending signals stay as they are. */
static void hand_over(void)
{
    static char text[6][64];
    int count = 0, place = 0;
    for (char **word = words; *word; word++)
        count++;
    char **adopting = calloc((size_t)count + 12, sizeof *adopting);
    if (adopting == NULL)
        return;
    for (int from = 1; from < OPTIONS; from++)
        adopting[place++] = words[from];
    snprintf(text[0], sizeof text[0], "%d", target);
    snprintf(text[1], sizeof text[1], "%.9f", child->started);
    /* One word: files that an older version installed pass on nine words. */
    snprintf(text[2], sizeof text[2], "%ld/%ld", child->floor_bytes, child->faults_before);
    snprintf(text[3], sizeof text[3], "%d", witness);
    snprintf(text[4], sizeof text[4], "%d", ask);
    snprintf(text[5], sizeof text[5], "%d", answers);
    adopting[place++] = "@";
    for (int number = 0; number < 6; number++)
        adopting[place++] = text[number];
    adopting[place++] = trace;
    adopting[place++] = directory;
    adopting[place++] = group;
    for (int from = OPTIONS; from < count; from++)
        adopting[place++] = words[from];
    if (ask >= 0) {
        fcntl(ask, F_SETFD, 0);
        fcntl(answers, F_SETFD, 0);
    }
    execv(adopting[0], adopting);
}

/* Find the names of the run as run_directory.py does, and of its span as trace_context.py does, and make the directory of runs.
   Return whether that is possible. */
static int find_names(const char *given)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    const char *slash = strrchr(words[SHELL], '/'), *shell = slash ? slash + 1 : words[SHELL];
    if (given == NULL || *given == 0)
        given = "memwatch-runs";
    if (snprintf(runs, sizeof runs, "%s%s%s", *given == '/' ? "" : here, *given == '/' ? "" : "/", given) >= (int)sizeof runs - 300)
        return 0;
    if (gmtime_r(&now, &utc) == NULL || !make_trace(trace, sizeof trace))
        return 0;
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(id, sizeof id, "%s-%.60s-%d", stamp, shell, getpid());
    for (char *letter = id; *letter; letter++)
        if (!isascii((unsigned char)*letter) || (!isalnum((unsigned char)*letter) && !strchr("._+-", *letter)))
            *letter = '_';
    snprintf(directory, sizeof directory, "%s/%s", runs, id);
    snprintf(store, sizeof store, "%s/recipes.jsonl", runs);
    return make_directories(runs);
}

/* In the child: enter the cgroup and become the shell, with the signals that we inherited, once `go` is closed. */
_Noreturn static void become_shell(int go, const Inherited *inherited)
{
    char byte;
    struct rusage own = {0};
    if (group[0]) {
        int entrance = open_entrance();
        child->faults_before = entrance < 0 ? -1 : enter(entrance);
        child->misplaced = child->faults_before < 0;
    }
    if (read(go, &byte, 1) < 0)
        byte = 0;
    words[end] = words[SHELL]; /* instead of "--" */
    getrusage(RUSAGE_SELF, &own);
    child->floor_bytes = own.ru_maxrss * 1024 + (1 << 20);
    child->started = seconds_of(CLOCK_MONOTONIC);
    give_signals(inherited);
    execv(words[SHELL], words + end);
    _exit(errno == ENOENT ? 127 : 126);
}

/* Start the shell, with the witness. All signals are blocked from here on. Return false, with all as before, if that fails. */
static int start_shell(void)
{
    Inherited inherited;
    int go[2] = {-1, -1};
    take_signals(&inherited);
    setenv("OTEL_MEMWATCH_RUN_DIR", directory, 1);
    setenv("TRACEPARENT", trace, 1);
    child = mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    target = child == MAP_FAILED || pipe2(go, O_CLOEXEC) != 0 ? -1 : fork();
    if (target == 0) {
        close(go[1]);
        become_shell(go[0], &inherited);
    }
    unsetenv("OTEL_MEMWATCH_RUN_DIR"); /* Python's recorder is not part of a run */
    unsetenv("TRACEPARENT");
    if (target < 0) {
        give_signals(&inherited);
        return 0;
    }
    close_files_of_shell();
    start_witness(0);
    close(go[0]);
    wall = seconds_of(CLOCK_REALTIME);
    monotonic = seconds_of(CLOCK_MONOTONIC);
    close(go[1]);
    return 1;
}

/* Add what the child could not note, and remove a cgroup that it could not enter. */
static void complete_child(void)
{
    if (child->started == 0)
        child->started = monotonic;
    if (child->misplaced && group[0]) {
        rmdir(group);
        group[0] = 0;
    }
}

/* Wait for the end of the shell. If it takes too long, or anything else happens, hand over; return only if Python is gone then. */
static void wait_briefly(void)
{
    sigset_t all;
    siginfo_t ended = {0};
    sigfillset(&all);
    struct pollfd waiting = {.fd = signalfd(-1, &all, SFD_CLOEXEC), .events = POLLIN};
    if (waiting.fd >= 0)
        poll(&waiting, 1, (int)(1000 * PATIENCE));
    if (waitid(P_PID, (id_t)target, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != target) {
        complete_child();
        hand_over();
    }
}

/* -- the line */

/* Return the length of the UTF-8 sequence at `s`; 0 if it is none. */
static int sequence(const unsigned char *s)
{
    int length = *s < 0xC2 || *s > 0xF4 ? 0 : *s < 0xE0 ? 2 : *s < 0xF0 ? 3 : 4;
    for (int number = 1; number < length; number++)
        if ((s[number] & 0xC0) != 0x80)
            return 0;
    /* Overlong sequences, surrogates and numbers above U+10FFFF. */
    if ((*s == 0xE0 && s[1] < 0xA0) || (*s == 0xED && s[1] > 0x9F) || (*s == 0xF0 && s[1] < 0x90) || (*s == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

/* Append a JSON string. A byte outside UTF-8 becomes the surrogate that Python's file names have for it. */
static void put_json(FILE *line, const char *value)
{
    fputc('"', line);
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        int length = *s < 0x80 ? 1 : sequence(s);
        if (length == 0)
            fprintf(line, "\\udc%02x", *s);
        else if (length == 1 && (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7F))
            fprintf(line, "\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)length, line);
        s += length ? length : 1;
    }
    fputc('"', line);
}

/* Return the last pid that the kernel has assigned, from /proc/loadavg; -1: unknown. */
static long last_pid(void)
{
    char *text = content("/proc/loadavg"), *last = text ? strrchr(text, ' ') : NULL;
    long pid = last ? atol(last + 1) : -1;
    free(text);
    return pid;
}

static void put_ending(FILE *line, int status, const struct rusage *usage, long assigned)
{
    fprintf(line, ",\"exit\":{\"exit_code\":");
    if (WIFSIGNALED(status))
        fprintf(line, "null,\"signal\":%d}", WTERMSIG(status));
    else
        fprintf(line, "%d,\"signal\":null}", WEXITSTATUS(status));
    fprintf(line, ",\"usage\":{\"max_rss\":%lld,\"cpu_user\":%.6f,\"cpu_system\":%.6f,\"minor_faults\":%ld,\"major_faults\":%ld,"
            "\"read_bytes\":%lld,\"write_bytes\":%lld,\"assigned\":%ld,\"helpers\":%d}",
            usage->ru_maxrss * 1024LL, (double)usage->ru_utime.tv_sec + 1e-6 * (double)usage->ru_utime.tv_usec,
            (double)usage->ru_stime.tv_sec + 1e-6 * (double)usage->ru_stime.tv_usec, usage->ru_minflt, usage->ru_majflt,
            usage->ru_inblock * 512LL, usage->ru_oublock * 512LL, assigned, witness > 0);
}

/* Return the number of processors online, as `processors` in runtime/kernel.py. */
static long processors(void)
{
    char *queues = content("/proc/self/net/softnet_stat");
    long known = sysconf(_SC_NPROCESSORS_ONLN), lines = 0;
    for (const char *at = queues; at != NULL && (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    free(queues);
    return lines > known ? lines : known;
}

/* Append `text` of the zombie's /proc file to the line, as a JSON string; null if it cannot be read. */
static void put_file(FILE *line, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", target, name);
    char *text = content(path);
    fprintf(line, ",\"%s\":", name);
    if (text != NULL && strlen(text) < 4096)
        put_json(line, text);
    else
        fprintf(line, "null");
    free(text);
}

static void put_environment(FILE *line)
{
    const char *between = "";
    fprintf(line, ",\"environment\":{");
    for (const char *const *name = IDENTIFYING; *name && (getenv("GITHUB_ACTIONS") || getenv("GITLAB_CI")); name++)
        if (getenv(*name) != NULL) {
            fprintf(line, "%s\"%s\":", between, *name);
            put_json(line, getenv(*name));
            between = ",";
        }
    fprintf(line, "}");
}

/* Return the number in the line of a text that begins with `name`; -1 if there is none. */
static long long keyed(const char *text, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line; line = strchr(line, '\n'), line = line ? line + 1 : NULL)
        if (strncmp(line, name, length) == 0 && isspace((unsigned char)line[length]))
            return strtoll(line + length, NULL, 10);
    return -1;
}

static void put_group(FILE *line)
{
    char path[PATH_MAX + 160];
    fprintf(line, ",\"own_cgroup\":");
    if (group[0] == 0) {
        fprintf(line, "null");
        return;
    }
    put_json(line, group);
    snprintf(path, sizeof path, "%s/../memory.stat", group);
    free(content(path)); /* reading it updates the counts of the cgroups below */
    snprintf(path, sizeof path, "%s/memory.stat", group);
    char *stat = content(path);
    snprintf(path, sizeof path, "%s/memory.oom_control", group);
    char *events = content(path);
    fprintf(line, ",\"cgroup\":{\"peak\":%lld,\"usage\":%lld,\"limit\":%lld,\"oom_kill\":%lld",
            number_in(group, "memory.max_usage_in_bytes"), number_in(group, "memory.usage_in_bytes"),
            number_in(group, "memory.limit_in_bytes"), events ? keyed(events, "oom_kill") : -1);
    static const char *const NAMES[] = {"total_cache", "total_rss", "total_shmem", "total_unevictable",
                                        "total_pgfault", "hierarchical_memory_limit", NULL};
    for (const char *const *name = NAMES; *name && stat; name++)
        fprintf(line, ",\"%s\":%lld", *name, keyed(stat, *name));
    fprintf(line, "}");
    free(stat);
    free(events);
    rmdir(group);
}

static void put_machine(FILE *line)
{
    struct utsname machine;
    struct sysinfo memory;
    cpu_set_t usable;
    uname(&machine);
    sysinfo(&memory);
    int cpus = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    fprintf(line, ",\"host\":{\"name\":");
    put_json(line, machine.nodename);
    fprintf(line, ",\"system\":\"%s\",\"release\":\"%s\",\"machine\":\"%s\"", machine.sysname, machine.release, machine.machine);
    fprintf(line, ",\"cpus\":%d,\"memory_bytes\":%lld,\"swap_bytes\":%lld}", cpus, (long long)memory.totalram * memory.mem_unit,
            (long long)memory.totalswap * memory.mem_unit);
}

/* Write the line of the recipe that has ended, and remove its cgroup. Return its status of wait4. */
static int put_recipe(FILE *line)
{
    struct rusage usage;
    int status = 0;
    long assigned = last_pid();
    fprintf(line, "{\"schema\":1,\"id\":");
    put_json(line, id);
    fprintf(line, ",\"command\":[");
    put_json(line, words[SHELL]);
    for (char **word = words + end + 1; *word; word++) {
        fputc(',', line);
        put_json(line, *word);
    }
    fprintf(line, "],\"cwd\":");
    put_json(line, here);
    put_machine(line);
    siginfo_t ended;
    while (waitid(P_PID, (id_t)target, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        ;
    double over = seconds_of(CLOCK_MONOTONIC);
    put_file(line, "stat");
    put_file(line, "io");
    wait4(target, &status, 0, &usage);
    complete_child();
    fprintf(line, ",\"target\":{\"pid\":%d,\"start\":%.6f,\"floor\":%ld,\"faults_before\":%ld}", target, child->started,
            child->floor_bytes, child->faults_before);
    fprintf(line, ",\"started\":{\"wall\":%.6f,\"monotonic\":%.6f}", wall - (monotonic - child->started), child->started);
    fprintf(line, ",\"ended\":{\"wall\":%.6f,\"monotonic\":%.6f}", wall - monotonic + over, over);
    fprintf(line, ",\"monitor_pid\":%d,\"processors\":%ld,\"page_bytes\":%ld,\"traceparent\":\"%s\"", getpid(), processors(),
            sysconf(_SC_PAGESIZE), trace);
    put_ending(line, status, &usage, assigned);
    put_environment(line);
    put_group(line);
    fprintf(line, "}\n");
    return status;
}

/* Append a line, which begins with a line feed, as a whole, or print why not. The line feed ends a line that another recorder
   left torn, and is omitted if there is none. */
static void append(int file, const char *line, size_t length)
{
    struct stat status = {0};
    char last = '\n';
    flock(file, LOCK_EX);
    if (fstat(file, &status) != 0 || status.st_size == 0 || pread(file, &last, 1, status.st_size - 1) != 1 || last == '\n') {
        line++;
        length--;
    }
    ssize_t written = write(file, line, length);
    if (written == (ssize_t)length)
        return;
    dprintf(2, "otel-memwatch: the recipe is not recorded: %s: %s\n", store, strerror(written < 0 ? errno : ENOSPC));
    if (written > 0 && ftruncate(file, status.st_size) != 0)
        dprintf(2, "otel-memwatch: %s ends in a torn line\n", store);
}

int main(int count, char **arguments)
{
    const char *given = getenv("OTEL_MEMWATCH_RUNS");
    words = arguments;
    if (count == 1 && strcmp(arguments[0], WITNESS) == 0)
        stand_witness(0, 1, 0, 0);
    if (count == 6 && strcmp(arguments[0], START) == 0)
        stand_witness(atoi(arguments[4]), atoi(arguments[5]), start_command(arguments + 1), 0);
    launch(count, arguments);
    end = OPTIONS;
    while (end < count && strcmp(arguments[end], "--") != 0)
        end++;
    if (end >= count)
        return 126;
    if (end == OPTIONS + 2 && strcmp(arguments[OPTIONS], "--runs") == 0)
        given = arguments[OPTIONS + 1];
    if (getcwd(here, sizeof here) == NULL || is_unknown(here) || (end != OPTIONS && end != OPTIONS + 2) || !find_names(given))
        plain();
    int file = open(store, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
    if (file < 0 || mkdir(directory, 0700) != 0)
        plain();
    make_group();
    if (!start_shell()) {
        if (group[0])
            rmdir(group);
        rmdir(directory);
        plain();
    }
    wait_briefly();
    char *text;
    size_t length;
    FILE *line = open_memstream(&text, &length);
    if (line == NULL)
        return 126;
    fputc('\n', line);
    int status = put_recipe(line);
    if (witness > 0) {
        kill(witness, SIGKILL);
        waitpid(witness, NULL, 0);
    }
    rmdir(directory); /* unless the recipe marked operations */
    if (fclose(line) == 0)
        append(file, text, length);
    end_like(status);
}
