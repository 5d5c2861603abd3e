/* Child of `start.py` that becomes the command: what `_become` there does, without a copy of the interpreter.

   The first process makes a second child of its parent, which becomes the command, and then is the witness of `signals.py`.
   Its arguments are the numbers of five files: the pipe for the report, the pipe with the orders, the file through which
   the second child enters the cgroup, or -1, and both pipes of the witness.
   The orders are 20 digits with the size of the rest, and words that end in a 0 byte: the death signal, the bits of the
   signal mask and of ignored signals, value and interval of three timers; the numbers of paths, arguments and
   variables; these. One more byte, or the end of the pipe, starts the command.

   It is executed without an environment: LD_PRELOAD is for the command alone. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "launcher.h"

#define SIZE 20 /* digits */
#define SHELL "/bin/sh"

int report;

/* Read exactly so many bytes; return 0 if there are fewer. */
static int read_all(int file, char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t got = read(file, bytes, count);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        bytes += got;
        count -= (size_t)got;
    }
    return 1;
}

/* Write a line of the report, with the 0 byte at its end. */
__attribute__((format(printf, 1, 2))) void tell(const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (write(report, line, (size_t)(length < (int)sizeof line ? length + 1 : (int)sizeof line)) < 0)
        _exit(127);
}

static char *next_word(char **orders)
{
    char *word = *orders;
    *orders += strlen(word) + 1;
    return word;
}

static unsigned long long next_number(char **orders)
{
    return strtoull(next_word(orders), NULL, 10);
}

static double next_seconds(char **orders)
{
    return strtod(next_word(orders), NULL);
}

static struct timeval time_of(double seconds)
{
    struct timeval value = {.tv_sec = (time_t)seconds};
    value.tv_usec = (suseconds_t)(1e6 * (seconds - (double)value.tv_sec));
    return value;
}

/* Give the two signals that glibc keeps for itself the disposition that they have in the parent: posix_spawn ignores them. */
static void restore_internal_signals(void)
{
    char path[64], status[4096];
    unsigned long long ignored = 0;
    snprintf(path, sizeof path, "/proc/%d/status", getppid());
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, status, sizeof status - 1);
    if (file >= 0)
        close(file);
    if (got > 0) {
        status[got] = 0;
        char *line = strstr(status, "\nSigIgn:");
        ignored = line ? strtoull(line + sizeof "\nSigIgn:" - 1, NULL, 16) : 0;
    }
    for (int number = 32; number < SIGRTMIN; number++) {
        long action[8] = {0}; /* SIG_DFL, no flags: the kernel's structure differs between machines */
        if (!(ignored >> (number - 1) & 1))
            syscall(SYS_rt_sigaction, number, action, NULL, (size_t)_NSIG / 8);
    }
}

/* Give the command the dispositions, timers and mask that were inherited; the mask last (`let_go` in `signals.py`). */
static void restore_signals(char **orders)
{
    unsigned long long mask = next_number(orders), ignored = next_number(orders);
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (mask >> (number - 1) & 1)
            sigaddset(&blocked, number);
        if (number != SIGKILL && number != SIGSTOP && (number < 32 || number >= SIGRTMIN))
            signal(number, ignored >> (number - 1) & 1 ? SIG_IGN : SIG_DFL);
    }
    restore_internal_signals();
    static const int TIMERS[] = {ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF};
    for (int kind = 0; kind < 3; kind++) {
        double value = next_seconds(orders), interval = next_seconds(orders);
        struct itimerval timer = {.it_value = time_of(value), .it_interval = time_of(interval)};
        if (value > 0)
            setitimer(TIMERS[kind], &timer, NULL);
    }
    sigprocmask(SIG_SETMASK, &blocked, NULL);
}

/* Return whether a file that the kernel cannot execute may be a shell script: no 0 byte in its first line. */
static int looks_like_text(const char *path)
{
    char begin[80];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, begin, sizeof begin);
    if (file >= 0)
        close(file);
    if (got < 0)
        return 0;
    char *end = memchr(begin, '\n', (size_t)got);
    return memchr(begin, 0, end ? (size_t)(end - begin) : (size_t)got) == NULL;
}

static int is_elsewhere(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ESTALE || error == ENODEV || error == ETIMEDOUT ||
           error == ENAMETOOLONG || error == ELOOP;
}

/* Become the command; return only if that fails, with errno and path of the reason (`Command.execute` in `start.py`). */
static int execute(char **paths, char **arguments, char **variables, const char **reason)
{
    int failure = ENOENT;
    *reason = arguments[0];
    for (; *paths; paths++) {
        struct stat found;
        execve(*paths, arguments, variables);
        int error = errno;
        if (error == ENOEXEC && looks_like_text(*paths)) {
            size_t count = 0;
            while (arguments[count])
                count++;
            char **shell = calloc(count + 2, sizeof *shell);
            if (shell == NULL)
                return ENOMEM;
            shell[0] = SHELL;
            shell[1] = *paths;
            memcpy(shell + 2, arguments + 1, count * sizeof *shell);
            execve(SHELL, shell, variables);
            error = errno;
        }
        if ((!is_elsewhere(error) && error != EACCES) || strchr(arguments[0], '/')) {
            *reason = *paths;
            return error;
        }
        if (error == EACCES || (failure != EACCES && lstat(*paths, &found) == 0)) {
            failure = error;
            *reason = *paths;
        }
    }
    return failure;
}

/* Enter the cgroup of this open file; return the page faults of this process before that, -1: it cannot enter. No new page may
   be used between the count and the entry. */
long enter(int entrance)
{
    struct rusage own = {0};
    for (int round = 0; round < 2; round++) /* the first one loads the pages that the second one counts, also for write */
        if (write(-1, "", 0) < 0)
            getrusage(RUSAGE_SELF, &own);
    char self = '0'; /* on the stack, whose page is loaded */
    return write(entrance, &self, 1) == 1 ? own.ru_minflt + own.ru_majflt : -1;
}

/* Enter the cgroup, unless `entrance` is -1, and become the command once a byte or the end arrives in `go`. `state`: of the
   signals to restore; NULL: they are as they were inherited. */
void become(int entrance, int go, char *state, char **paths, char **arguments, char **variables)
{
    char byte;
    struct rusage own = {0};
    long faults = entrance < 0 ? -1 : enter(entrance);
    if (faults >= 0)
        tell("entered %ld", faults);
    else if (entrance >= 0)
        tell("misplaced [Errno %d] %s", errno, strerror(errno));
    if (state)
        restore_signals(&state);
    while (read(go, &byte, 1) < 0 && errno == EINTR)
        ;
    for (int round = 0; round < 2; round++) { /* likewise */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        getrusage(RUSAGE_SELF, &own);
        tell("started %lld.%09ld %lld", (long long)now.tv_sec, now.tv_nsec, 1024LL * own.ru_maxrss);
    }
    const char *reason;
    int failure = execute(paths, arguments, variables, &reason);
    char header[32];
    int length = snprintf(header, sizeof header, "failed %d ", failure);
    if (write(report, header, (size_t)length) == length && write(report, reason, strlen(reason) + 1) < 0)
        _exit(126);
    _exit(127);
}

/* Return the pid of the second child, in the first. */
int start_command(char **numbers)
{
    report = atoi(numbers[0]);
    int orders = atoi(numbers[1]), entrance = atoi(numbers[2]);
    for (char **number = numbers; *number; number++)
        fcntl(atoi(*number), F_SETFD, FD_CLOEXEC);
    char digits[SIZE + 1] = "";
    /* wait4 reports the peak of this process at least, and vfork has given it that of the interpreter. So the command is a
       second child of the same parent. */
    long second = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
    if (second < 0)
        _exit(1);
    if (second > 0) {
        for (int number = 0; number < 3; number++) /* the report ends once no process has it open */
            close(atoi(numbers[number]));
        return (int)second;
    }
    close(atoi(numbers[3]));
    close(atoi(numbers[4]));
    if (!read_all(orders, digits, SIZE))
        _exit(127);
    size_t size = strtoull(digits, NULL, 10);
    char *words = malloc(size + 1);
    if (words == NULL || !read_all(orders, words, size))
        _exit(127);
    words[size] = 0;
    int death = (int)next_number(&words);
    if (death)
        prctl(PR_SET_PDEATHSIG, death);
    char *state = words; /* of the signals, with 2 + 6 words */
    for (int number = 0; number < 8; number++)
        next_word(&words);
    size_t counts[3];
    char **lists[3];
    for (int list = 0; list < 3; list++)
        counts[list] = next_number(&words);
    for (int list = 0; list < 3; list++) {
        lists[list] = calloc(counts[list] + 1, sizeof **lists);
        if (lists[list] == NULL)
            _exit(127);
        for (size_t number = 0; number < counts[list]; number++)
            lists[list][number] = next_word(&words);
    }
    become(entrance, orders, state, lists[0], lists[1], lists[2]);
    return 0;
}
