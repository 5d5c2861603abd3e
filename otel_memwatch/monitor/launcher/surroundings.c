/* Surroundings of a command: files, variables, the run's cgroup, signals. `recipe.c` and `launch.c` use them. */

#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher.h"

#define LARGEST_FILE (1 << 20)

/* Surroundings that a run describes: batch systems, ranks, experiments, telemetry. A trailing _ is a prefix. */
const char *const UNKNOWN[] = {
    "OTEL_", "TRACEPARENT", "SLURM_", "PBS_JOBID", "LSB_JOBID", "AWS_BATCH_JOB_ID", "KUBERNETES_SERVICE_HOST",
    "JOB_COMPLETION_INDEX", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "FLUX_TASK_RANK", "RANK",
    "TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "MLFLOW_", "WANDB_", "JENKINS_URL",
    "_OTEL_MEMWATCH_COMPLETE", NULL};

/* -- files */

/* Return the content of a file with a 0 at its end, at most `LARGEST_FILE`; NULL if it cannot be read. */
char *content(const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file < 0)
        return NULL;
    char *text = NULL;
    size_t length = 0, size = 0;
    ssize_t got;
    do {
        if (size <= length + 4096 && (text = realloc(text, size = 2 * (length + 4097))) == NULL)
            _exit(126);
        got = read(file, text + length, 4096);
        length += got > 0 ? (size_t)got : 0;
    } while (got > 0 && length < LARGEST_FILE);
    close(file);
    text[length] = 0;
    return text;
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

static int random_bytes(unsigned char *bytes, size_t count)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, bytes, count);
    if (file >= 0)
        close(file);
    return got == (ssize_t)count;
}

/* Write the traceparent of a new trace; return whether there were random bytes for it. */
int make_trace(char *trace, size_t size)
{
    unsigned char random[24];
    int place = snprintf(trace, size, "00-");
    if (!random_bytes(random, sizeof random))
        return 0;
    for (int number = 0; number < 24; number++)
        place += snprintf(trace + place, size - (size_t)place, number == 16 ? "-%02x" : "%02x", random[number]);
    snprintf(trace + place, size - (size_t)place, "-01");
    return 1;
}

double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* -- variables and projects */

/* Return whether a variable has one of these names. */
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

/* Return whether this process has inherited a timer or a death signal: they survive exec, but not fork. */
int has_timer(void)
{
    struct itimerval timer;
    int death = 0;
    for (int kind = ITIMER_REAL; kind <= ITIMER_PROF; kind++)
        if (getitimer(kind, &timer) == 0 && (timer.it_value.tv_sec || timer.it_value.tv_usec))
            return 1;
    return prctl(PR_GET_PDEATHSIG, &death) != 0 || death;
}

/* -- the run's cgroup */

char group[PATH_MAX + 128];

/* Make the run's cgroup, on version 1: on version 2 moving a process takes longer than a short recipe. */
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

/* Open the file through which one thread enters the cgroup, without waiting for all processors. */
int open_entrance(void)
{
    char path[PATH_MAX + 160];
    snprintf(path, sizeof path, "%s/tasks", group);
    return open(path, O_WRONLY | O_CLOEXEC);
}

/* -- signals */

/* Block all signals and adopt orphans, before a fork. */
void take_signals(Inherited *inherited)
{
    sigset_t all;
    struct sigaction defaults = {.sa_handler = SIG_DFL};
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &inherited->mask);
    sigaction(SIGCHLD, &defaults, &inherited->children); /* if ignored, children vanish without their figures */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* Undo that, in the child or after a failure. */
void give_signals(const Inherited *inherited)
{
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigaction(SIGCHLD, &inherited->children, NULL);
    sigprocmask(SIG_SETMASK, &inherited->mask, NULL);
}

/* End this process as the command ended, with its status of wait4. */
_Noreturn void end_like(int status)
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
