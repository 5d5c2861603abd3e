/* Recorder of short recipes: runs a shell for make and appends one line to recipes.jsonl when the shell ends.

   Usage: recipe PYTHON -I -S -c PROGRAM SHELL PACKAGE [--runs DIR] -- ARGUMENTS

   The words after "recipe" are the command of the Python recorder, the plain twin. It takes over

   - before the shell starts, if this program does not know enough: outside make, in batch jobs, with options in
     the environment, with budgets of a project;
   - while the shell runs, if it runs longer than PATIENCE, or if anything but the end of the shell happens: a signal, a
     stop, the end of an orphan. Signals are blocked and stay pending across exec. The shell stays the child of this
     process. The words "@" and the state are then inserted before SHELL's options (see `adopt.py`).

   Python starts in 10 ms and needs 50 ms for a record. This program needs 1 ms.

   Under the name "otel-memwatch" it is the program of `launch.c`. Under the name "signal-witness" it is only the witness of `signals.py`, with its pipes as stdin and stdout. Under the
   name "command-start" it makes a child that becomes a command (`start.c`), and then it is the witness. */

#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "launcher.h"

#define PATIENCE 1.0 /* seconds */
#define SHELL 6      /* index of the shell in argv */
#define OPTIONS 8    /* index of the first option */
#define LARGEST_FILE (1 << 20)
#define WITNESS "signal-witness"
#define START "command-start"

extern char **environ;

/* Surroundings that a run describes: batch systems, ranks, experiments, telemetry. A trailing _ is a prefix. */
const char *const UNKNOWN[] = {
    "OTEL_", "TRACEPARENT", "SLURM_", "PBS_JOBID", "LSB_JOBID", "AWS_BATCH_JOB_ID", "KUBERNETES_SERVICE_HOST",
    "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK", "RANK",
    "TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "MLFLOW_", "WANDB_", "JENKINS_URL",
    "_OTEL_MEMWATCH_COMPLETE", NULL};
/* Variables that identify a job of GitHub or GitLab: all that tags.py and resource.py read of these. They go into the line. */
static const char *const IDENTIFYING[] = {
    "GITHUB_ACTIONS", "GITHUB_WORKFLOW", "GITHUB_JOB", "GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_REPOSITORY",
    "GITHUB_REF_NAME", "GITHUB_HEAD_REF", "GITHUB_SHA", "GITHUB_SERVER_URL", "RUNNER_NAME", "GITLAB_CI", "CI_PIPELINE_ID",
    "CI_PIPELINE_NAME", "CI_PIPELINE_URL", "CI_JOB_NAME", "CI_JOB_ID", "CI_JOB_URL", "CI_PROJECT_PATH", "CI_PROJECT_URL",
    "CI_COMMIT_REF_NAME", "CI_COMMIT_SHA", "CI_RUNNER_ID", "CI_RUNNER_DESCRIPTION", NULL};
/* Variables that change nothing here. */
static const char *const HARMLESS[] = {"OTEL_MEMWATCH_RUN_DIR", "OTEL_MEMWATCH_RUNS", NULL};

/* -- texts */

typedef struct {
    char *data;
    size_t length, size;
} Text;

static void put(Text *text, const char *bytes, size_t length)
{
    if (text->length + length + 1 > text->size) {
        text->size = 2 * (text->length + length + 512);
        text->data = realloc(text->data, text->size);
        if (text->data == NULL)
            _exit(126);
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
}

__attribute__((format(printf, 2, 3))) static void putf(Text *text, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put(text, line, length < (int)sizeof line ? (size_t)length : sizeof line - 1);
}

/* Return the length of the UTF-8 sequence at `s`; 0 if it is none. */
static int sequence(const unsigned char *s)
{
    if (s[0] >= 0xC2 && s[0] <= 0xDF)
        return (s[1] & 0xC0) == 0x80 ? 2 : 0;
    if ((s[0] & 0xF0) == 0xE0) {
        if ((s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80)
            return 0;
        return (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) ? 0 : 3;
    }
    if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        if ((s[1] & 0xC0) != 0x80 || (s[2] & 0xC0) != 0x80 || (s[3] & 0xC0) != 0x80)
            return 0;
        return (s[0] == 0xF0 && s[1] < 0x90) || (s[0] == 0xF4 && s[1] > 0x8F) ? 0 : 4;
    }
    return 0;
}

/* Append a JSON string. A byte outside UTF-8 becomes the surrogate that Python's file names have for it. */
static void put_json(Text *text, const char *value)
{
    put(text, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)value; *s;) {
        int length = *s < 0x80 ? 1 : sequence(s);
        if (length == 0)
            putf(text, "\\udc%02x", *s);
        else if (length == 1 && (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7F))
            putf(text, "\\u%04x", *s);
        else
            put(text, (const char *)s, (size_t)length);
        s += length ? length : 1;
    }
    put(text, "\"", 1);
}

/* -- files */

/* Return the content of a file with a 0 at its end, at most `LARGEST_FILE`; NULL if it cannot be read. */
char *content(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return NULL;
    Text text = {0};
    char part[4096];
    ssize_t got;
    put(&text, "", 0);
    while (text.length < LARGEST_FILE && (got = read(file, part, sizeof part)) > 0)
        put(&text, part, (size_t)got);
    close(file);
    return text.data;
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

long long number_in(const char *directory, const char *name)
{
    char path[PATH_MAX + 160];
    if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
        return -1;
    char *text = content(path);
    long long number = text != NULL && isdigit((unsigned char)*text) ? strtoll(text, NULL, 10) : -1;
    free(text);
    return number;
}

int random_bytes(unsigned char *bytes, size_t count)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, count);
    if (file >= 0)
        close(file);
    return got == (ssize_t)count;
}

void put_trace(char *trace, size_t size, const unsigned char random[24])
{
    int place = snprintf(trace, size, "00-");
    for (int number = 0; number < 24; number++)
        place += snprintf(trace + place, size - (size_t)place, number == 16 ? "-%02x" : "%02x", random[number]);
    snprintf(trace + place, size - (size_t)place, "-01");
}

double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* -- surroundings */

int named(const char *variable, const char *const *names)
{
    for (; *names; names++) {
        size_t length = strlen(*names);
        if (strncmp(variable, *names, length) == 0 && ((*names)[length - 1] == '_' || variable[length] == '='))
            return 1;
    }
    return 0;
}

/* Return whether the nearest pyproject.toml may have settings for us. */
int has_project(const char *directory)
{
    char path[PATH_MAX + 32], *file, *end;
    snprintf(path, sizeof path, "%s", directory);
    while ((end = strrchr(path, '/')) != NULL) {
        size_t length = path[1] ? strlen(path) : 0;
        snprintf(path + length, sizeof path - length, "/pyproject.toml");
        if ((file = content(path)) != NULL) {
            int ours = strstr(file, "tool.otel-memwatch") != NULL;
            free(file);
            return ours;
        }
        if (length == 0)
            return 0;
        path[length] = 0;
        if (end == path)
            end++; /* the root */
        *end = 0;
    }
    return 0;
}

/* Return whether the Python recorder has to record from the start. */
static int is_unknown(const char *directory)
{
    const char *level = getenv("MAKELEVEL");
    struct itimerval timer;
    int death = 0;
    if (level == NULL || *level == 0)
        return 1;
    for (char **variable = environ; *variable; variable++)
        if (named(*variable, UNKNOWN) && !named(*variable, HARMLESS))
            return 1;
    for (int kind = ITIMER_REAL; kind <= ITIMER_PROF; kind++)
        if (getitimer(kind, &timer) == 0 && (timer.it_value.tv_sec || timer.it_value.tv_usec))
            return 1; /* a timer survives exec, but not fork */
    return (prctl(PR_GET_PDEATHSIG, &death) == 0 && death) || has_project(directory);
}

/* -- the run's cgroup, on version 1; on version 2 moving a process takes longer than a short recipe */

char group[PATH_MAX + 128];

void make_group(void)
{
    char *memberships = content("/proc/self/cgroup"), *mounts = content("/proc/self/mountinfo");
    char membership[PATH_MAX] = "", namespace[64] = "";
    char *save = NULL;
    for (char *line = memberships ? strtok_r(memberships, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL)
            continue;
        *path++ = 0;
        for (char *one = strtok(controllers + 1, ","); one; one = strtok(NULL, ","))
            if (strcmp(one, "memory") == 0)
                snprintf(membership, sizeof membership, "%s", path);
    }
    for (char *line = mounts && *membership ? strtok_r(mounts, "\n", &save) : NULL; line; line = strtok_r(NULL, "\n", &save)) {
        char root[PATH_MAX], point[PATH_MAX], options[256], super[256], *rest = strstr(line, " - cgroup ");
        if (rest == NULL || sscanf(line, "%*s %*s %*s %4095s %4095s %255s", root, point, options) != 3)
            continue;
        if (sscanf(rest, " - cgroup %*s %255s", super) != 1 || strstr(super, "memory") == NULL || strchr(point, '\\'))
            continue;
        size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strstr(membership, "/..") || strncmp(membership, root, length) != 0 || (membership[length] && membership[length] != '/'))
            continue;
        if (strncmp(options, "ro", 2) == 0 && (options[2] == ',' || options[2] == 0))
            continue;
        char parent[PATH_MAX];
        if (snprintf(parent, sizeof parent, "%s%s", point, membership + length) > PATH_MAX - 128)
            continue;
        if (strstr(parent, ".slice") || strstr(parent, ".scope") || strstr(parent, ".service"))
            break; /* systemd's: nothing is created there without its permission */
        if (number_in(parent, "memory.use_hierarchy") != 1)
            break;
        unsigned char random[3] = {0};
        ssize_t got = readlink("/proc/self/ns/pid", namespace, sizeof namespace - 1);
        char *digits = got > 0 ? strchr(namespace, '[') : NULL;
        if (!random_bytes(random, sizeof random) || digits == NULL)
            break;
        snprintf(group, sizeof group, "%s/memwatch-%d-%lld-%02x%02x%02x", parent, getpid(), strtoll(digits + 1, NULL, 10),
                 random[0], random[1], random[2]);
        if (mkdir(group, 0755) != 0)
            group[0] = 0;
        break;
    }
    free(memberships);
    free(mounts);
}

/* Enter the cgroup; return the page faults of this process before that. */
static long enter_group(void)
{
    char path[PATH_MAX + 160];
    snprintf(path, sizeof path, "%s/tasks", group); /* one thread enters without waiting for all processors */
    int entrance = open(path, O_WRONLY | O_CLOEXEC);
    long faults = entrance < 0 ? -1 : enter(entrance);
    if (faults < 0)
        group[0] = 0; /* in the child only: the parent finds that the group had no process */
    else
        close(entrance);
    return faults;
}

/* -- processes */

typedef struct {
    double started;
    long floor_bytes, faults_before;
    int failure, misplaced;
} Child;

static pid_t target;
pid_t witness = -1;
int ask = -1, answers = -1;
static char **words;
static int end; /* index of "--" */

/* Close the files above `last`: the inherited ones, or all. */
static void close_files(int last, int all)
{
    DIR *files = opendir("/proc/self/fd");
    struct dirent *entry;
    if (files == NULL)
        return;
    while ((entry = readdir(files)) != NULL) {
        int file = atoi(entry->d_name), flags = file > last && file != dirfd(files) ? fcntl(file, F_GETFD) : -1;
        if (flags >= 0 && (all || !(flags & FD_CLOEXEC)))
            close(file);
    }
    closedir(files);
}

/* Close stdin, stdout and each inherited file except stderr: a pipe that the shell closes is closed. */
void close_files_of_shell(void)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        dup2(null, 0);
        dup2(null, 1);
        if (null > 2)
            close(null);
    }
    close_files(2, 0);
}

/* Answer each question with the signals that are pending, as `_stand` in `signals.py` does; "!" also with the moment at
   which the process `watched` ended. Write the pid of the command first, once no file of the command is open here; 0: none. */
static void stand_witness(int questions, int replies, int command, int watched)
{
    char question;
    double over = 0;
    size_t room = 0;
    sigset_t all;
    replies = fcntl(replies, F_DUPFD, 2); /* it may be 0, if stdin was closed */
    dup2(questions, 0);
    dup2(replies, 1);
    close_files(1, 1);
    if (command > 0)
        dprintf(1, "%010d", command);
    prctl(PR_SET_NAME, WITNESS);
    for (char **word = words; *word; word++)
        room = (size_t)(*word + strlen(*word) - words[0]) + 1;
    memset(words[0], 0, room); /* `pkill -f` addresses the recorder, not the group */
    snprintf(words[0], room, WITNESS);
    sigfillset(&all);
    struct pollfd waiting[] = {{.events = POLLIN}, {.fd = watched > 0 ? (int)syscall(SYS_pidfd_open, watched, 0) : -1, .events = POLLIN}};
    while (poll(waiting, 2, -1) > 0) {
        if (waiting[1].revents) {
            over = seconds_of(CLOCK_MONOTONIC);
            waiting[1].fd = -1;
        }
        if (!waiting[0].revents)
            continue;
        if (read(0, &question, 1) != 1)
            break;
        if (question == '!' && over > 0)
            dprintf(1, "%.9f\n", over);
        siginfo_t info;
        struct timespec now = {0};
        char line[64];
        while (sigtimedwait(&all, &info, &now) > 0) { /* glibc 2.36's sigisemptyset ignores real-time signals */
            int length = snprintf(line, sizeof line, "%d %d\n", info.si_signo, info.si_pid);
            if (write(1, line, (size_t)length) != length)
                _exit(0);
        }
        if (write(1, ".", 1) != 1)
            break;
    }
    _exit(0);
}

void start_witness(pid_t command)
{
    int questions[2], replies[2];
    if (pipe2(questions, O_CLOEXEC) != 0)
        return;
    if (pipe2(replies, O_CLOEXEC) != 0) {
        close(questions[0]);
        close(questions[1]);
        return;
    }
    witness = fork();
    if (witness == 0)
        stand_witness(questions[0], replies[1], 0, command);
    close(questions[0]);
    close(replies[1]);
    ask = questions[1];
    answers = replies[0];
}

/* Become the Python recorder, or the shell if Python is gone. */
static void plain(void)
{
    execv(words[1], words + 1);
    words[end] = words[SHELL];
    execv(words[SHELL], words + end);
    _exit(126);
}

/* Let the Python recorder adopt the shell. The signal mask and pending signals stay as they are. */
static void hand_over(const Child *child, const char *trace, const char *directory)
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
    adopting[place++] = (char *)trace;
    adopting[place++] = (char *)directory;
    adopting[place++] = group;
    for (int from = OPTIONS; from < count; from++)
        adopting[place++] = words[from];
    if (ask >= 0) {
        fcntl(ask, F_SETFD, 0);
        fcntl(answers, F_SETFD, 0);
    }
    execv(adopting[0], adopting);
}

/* Return the last pid that the kernel has assigned, from /proc/loadavg; -1: unknown. */
static long last_pid(void)
{
    char *text = content("/proc/loadavg"), *last = text ? strrchr(text, ' ') : NULL;
    long pid = last ? atol(last + 1) : -1;
    free(text);
    return pid;
}

static void put_ending(Text *line, int status, const struct rusage *usage, long assigned)
{
    putf(line, ",\"exit\":{\"exit_code\":");
    if (WIFSIGNALED(status))
        putf(line, "null,\"signal\":%d}", WTERMSIG(status));
    else
        putf(line, "%d,\"signal\":null}", WEXITSTATUS(status));
    putf(line, ",\"usage\":{\"max_rss\":%lld,\"cpu_user\":%.6f,\"cpu_system\":%.6f,\"minor_faults\":%ld,\"major_faults\":%ld,"
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
static void put_file(Text *line, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", target, name);
    char *text = content(path);
    putf(line, ",\"%s\":", name);
    if (text != NULL && strlen(text) < 4096)
        put_json(line, text);
    else
        putf(line, "null");
    free(text);
}

static void put_environment(Text *line)
{
    const char *between = "";
    putf(line, ",\"environment\":{");
    for (const char *const *name = IDENTIFYING; *name && (getenv("GITHUB_ACTIONS") || getenv("GITLAB_CI")); name++)
        if (getenv(*name) != NULL) {
            putf(line, "%s\"%s\":", between, *name);
            put_json(line, getenv(*name));
            between = ",";
        }
    putf(line, "}");
}

static void put_group(Text *line)
{
    char path[PATH_MAX + 160];
    putf(line, ",\"own_cgroup\":");
    if (group[0] == 0) {
        putf(line, "null");
        return;
    }
    put_json(line, group);
    snprintf(path, sizeof path, "%s/../memory.stat", group);
    free(content(path)); /* reading it updates the counts of the cgroups below */
    snprintf(path, sizeof path, "%s/memory.stat", group);
    char *stat = content(path);
    snprintf(path, sizeof path, "%s/memory.oom_control", group);
    char *events = content(path);
    putf(line, ",\"cgroup\":{\"peak\":%lld,\"usage\":%lld,\"limit\":%lld,\"oom_kill\":%lld",
         number_in(group, "memory.max_usage_in_bytes"), number_in(group, "memory.usage_in_bytes"),
         number_in(group, "memory.limit_in_bytes"), events ? keyed(events, "oom_kill") : -1);
    static const char *const NAMES[] = {"total_cache", "total_rss", "total_shmem", "total_unevictable",
                                        "total_pgfault", "hierarchical_memory_limit", NULL};
    for (const char *const *name = NAMES; *name && stat; name++)
        putf(line, ",\"%s\":%lld", *name, keyed(stat, *name));
    putf(line, "}");
    free(stat);
    free(events);
    rmdir(group);
}

/* End this process as the shell ended. */
void end_like(int status)
{
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        struct rlimit limit;
        sigset_t only;
        if (getrlimit(RLIMIT_CORE, &limit) == 0) {
            limit.rlim_cur = 0;
            setrlimit(RLIMIT_CORE, &limit);
        }
        prctl(PR_SET_DUMPABLE, 0);
        signal(number, SIG_DFL);
        sigemptyset(&only);
        sigaddset(&only, number);
        kill(getpid(), number);
        sigprocmask(SIG_UNBLOCK, &only, NULL);
        _exit(128 + number);
    }
    _exit(WEXITSTATUS(status));
}

/* Make the directory and its parents; return whether it exists. */
int make_directories(char *path)
{
    for (char *slash = path + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

/* Append a line as a whole, or print why not. A line that another recorder left torn ends before it. */
static void append(int file, Text *line, const char *store)
{
    struct stat status = {0};
    char last = '\n';
    flock(file, LOCK_EX);
    if (fstat(file, &status) == 0 && status.st_size > 0 && pread(file, &last, 1, status.st_size - 1) == 1 && last != '\n') {
        put(line, "", 1);
        memmove(line->data + 1, line->data, line->length - 1);
        line->data[0] = '\n';
    }
    ssize_t written = write(file, line->data, line->length);
    if (written == (ssize_t)line->length)
        return;
    dprintf(2, "otel-memwatch: the recipe is not recorded: %s: %s\n", store, strerror(written < 0 ? errno : ENOSPC));
    if (written > 0 && ftruncate(file, status.st_size) != 0)
        dprintf(2, "otel-memwatch: %s ends in a torn line\n", store);
}

int main(int count, char **arguments)
{
    char here[PATH_MAX], runs[PATH_MAX], directory[2 * PATH_MAX], store[PATH_MAX + 32], id[256], stamp[32], trace[64];
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
    if (getcwd(here, sizeof here) == NULL || is_unknown(here) || (end != OPTIONS && end != OPTIONS + 2))
        plain();
    if (given == NULL || *given == 0)
        given = "memwatch-runs";
    if (snprintf(runs, sizeof runs, "%s%s%s", *given == '/' ? "" : here, *given == '/' ? "" : "/", given) >= (int)sizeof runs - 300)
        plain();

    /* Names: of the run as run_directory.py makes them, of its span as trace_context.py does. */
    time_t now = time(NULL);
    struct tm utc;
    unsigned char random[24];
    const char *shell = strrchr(arguments[SHELL], '/');
    shell = shell ? shell + 1 : arguments[SHELL];
    if (gmtime_r(&now, &utc) == NULL || !random_bytes(random, sizeof random))
        plain();
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(id, sizeof id, "%s-%.60s-%d", stamp, shell, getpid());
    for (char *letter = id; *letter; letter++)
        if (!isascii((unsigned char)*letter) || (!isalnum((unsigned char)*letter) && !strchr("._+-", *letter)))
            *letter = '_';
    put_trace(trace, sizeof trace, random);
    snprintf(directory, sizeof directory, "%s/%s", runs, id);
    snprintf(store, sizeof store, "%s/recipes.jsonl", runs);
    if (!make_directories(runs))
        plain();
    int file = open(store, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY, 0600);
    if (file < 0 || mkdir(directory, 0700) != 0)
        plain();
    Child *child = mmap(NULL, sizeof *child, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int go[2];
    if (child == MAP_FAILED || pipe2(go, O_CLOEXEC) != 0) {
        rmdir(directory);
        plain();
    }
    make_group();

    /* Start. All signals are blocked from here on; the shell gets the mask and dispositions that we got. */
    sigset_t all, before;
    struct sigaction inherited, defaults = {.sa_handler = SIG_DFL};
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    sigaction(SIGCHLD, NULL, &inherited);
    sigaction(SIGCHLD, &defaults, NULL); /* if ignored, children vanish without their figures */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setenv("OTEL_MEMWATCH_RUN_DIR", directory, 1);
    setenv("TRACEPARENT", trace, 1);
    target = fork();
    if (target == 0) {
        char byte;
        struct rusage own = {0};
        if (group[0]) {
            child->faults_before = enter_group();
            child->misplaced = group[0] == 0;
        }
        sigaction(SIGCHLD, &inherited, NULL);
        close(go[1]);
        if (read(go[0], &byte, 1) < 0)
            byte = 0;
        arguments[end] = arguments[SHELL]; /* instead of "--" */
        getrusage(RUSAGE_SELF, &own);
        child->floor_bytes = own.ru_maxrss * 1024 + (1 << 20);
        child->started = seconds_of(CLOCK_MONOTONIC);
        sigprocmask(SIG_SETMASK, &before, NULL);
        execv(arguments[SHELL], arguments + end);
        child->failure = errno;
        _exit(errno == ENOENT ? 127 : 126);
    }
    unsetenv("OTEL_MEMWATCH_RUN_DIR"); /* Python's recorder is not part of a run */
    unsetenv("TRACEPARENT");
    if (target < 0) {
        if (group[0])
            rmdir(group);
        rmdir(directory);
        sigaction(SIGCHLD, &inherited, NULL);
        sigprocmask(SIG_SETMASK, &before, NULL);
        prctl(PR_SET_CHILD_SUBREAPER, 0);
        plain();
    }
    close_files_of_shell();
    start_witness(0);
    close(go[0]);
    double wall = seconds_of(CLOCK_REALTIME), monotonic = seconds_of(CLOCK_MONOTONIC);
    close(go[1]);

    /* Wait. */
    int signals = signalfd(-1, &all, SFD_CLOEXEC);
    struct pollfd waiting = {.fd = signals, .events = POLLIN};
    siginfo_t ended = {0};
    if (signals >= 0)
        poll(&waiting, 1, (int)(1000 * PATIENCE));
    if (waitid(P_PID, (id_t)target, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid != target) {
        if (child->misplaced && group[0]) {
            rmdir(group);
            group[0] = 0;
        }
        if (child->started == 0)
            child->started = monotonic;
        hand_over(child, trace, directory);
        /* Python is gone. Without it the shell runs on, unrecorded. */
    }

    /* Record. */
    Text line = {0};
    struct rusage usage;
    struct utsname machine;
    int status = 0;
    long assigned = last_pid();
    uname(&machine);
    putf(&line, "{\"schema\":1,\"id\":");
    put_json(&line, id);
    putf(&line, ",\"command\":[");
    for (int word = end; word < count; word++) {
        if (word > end)
            put(&line, ",", 1);
        put_json(&line, word == end ? arguments[SHELL] : arguments[word]);
    }
    putf(&line, "],\"cwd\":");
    put_json(&line, here);
    putf(&line, ",\"host\":{\"name\":");
    put_json(&line, machine.nodename);
    putf(&line, ",\"system\":\"%s\",\"release\":\"%s\",\"machine\":\"%s\"", machine.sysname, machine.release, machine.machine);
    struct sysinfo memory;
    cpu_set_t usable;
    sysinfo(&memory);
    int cpus = sched_getaffinity(0, sizeof usable, &usable) == 0 ? CPU_COUNT(&usable) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    putf(&line, ",\"cpus\":%d,\"memory_bytes\":%lld,\"swap_bytes\":%lld}", cpus, (long long)memory.totalram * memory.mem_unit,
         (long long)memory.totalswap * memory.mem_unit);
    while (waitid(P_PID, (id_t)target, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR)
        ;
    double over = seconds_of(CLOCK_MONOTONIC);
    put_file(&line, "stat");
    put_file(&line, "io");
    wait4(target, &status, 0, &usage);
    if (child->started == 0)
        child->started = monotonic;
    putf(&line, ",\"target\":{\"pid\":%d,\"start\":%.6f,\"floor\":%ld,\"faults_before\":%ld},\"started\":{\"wall\":%.6f,\"monotonic\":%.6f}", target,
         child->started, child->floor_bytes, child->faults_before, wall - (monotonic - child->started), child->started);
    putf(&line, ",\"ended\":{\"wall\":%.6f,\"monotonic\":%.6f}", wall - monotonic + over, over);
    putf(&line, ",\"monitor_pid\":%d,\"processors\":%ld,\"page_bytes\":%ld,\"traceparent\":\"%s\"", getpid(),
         processors(), sysconf(_SC_PAGESIZE), trace);
    put_ending(&line, status, &usage, assigned);
    put_environment(&line);
    if (child->misplaced && group[0]) {
        rmdir(group);
        group[0] = 0;
    }
    put_group(&line);
    putf(&line, "}\n");
    if (witness > 0) {
        kill(witness, SIGKILL);
        waitpid(witness, NULL, 0);
    }
    rmdir(directory); /* unless the recipe marked operations */
    append(file, &line, store);
    end_like(status);
}
