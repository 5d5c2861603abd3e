/* The witness: a process in the command's process group that separates signals to the group from signals to us (`signals.py`). */

#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "launcher.h"

pid_t witness = -1;
int ask = -1, answers = -1;
char **words;

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
_Noreturn void stand_witness(int questions, int replies, int command, int watched)
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
