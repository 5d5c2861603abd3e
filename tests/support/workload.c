/* Does what its arguments say, one after the other, so that a test knows the truth.
 *
 *   aN  map N MiB of private memory and touch every page     f   unmap the newest mapping
 *   hN  the same, with huge pages where the kernel gives them  cN  write into the first N MiB of the newest mapping
 *   mN  map N MiB of shared anonymous memory and touch it    sN  sleep N ms
 *   (   fork a child that does what follows up to ) and exits
 *   w   wait for all children                                xN  exit with code N
 *   tN  start N threads that touch 64 KiB each and stay      i   ignore SIGCHLD
 *   d   become non-dumpable                                  u   become user nobody
 *   S   setsid                                               kN  send signal N to itself
 *   oN  write N MiB to the file "out" in the working directory
 *   bN  burn N ms of CPU time
 *   e   execute itself with what follows, up to its own )
 *   p   print one line: pid, then VmHWM in KiB
 *   zKIND:MIB:MS  use memory in one of the ways of tests/zoo/kinds.c
 *   G   make a memory group inside the one that it is in, and enter it: a referee; G/DIRECTORY enters that one. Of version 2,
 *       which has no group inside one with processes, the one that it is in is the referee
 *   g   wait until nobody else is in that group, print one line: "referee", its watermark, that of its kernel memory
 *       (version 2: the most that was seen), and the most without page cache, then without kernel memory too, that was seen
 *       whenever a process of it slept, and the page cache that is left, in bytes; leave it and remove it, unless others made it
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
static struct { char *start; size_t size; } maps[4096];
static int top;

static void die(const char *what) { perror(what); _exit(99); }

static void map(size_t size, int kind) {
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("mmap");
    for (size_t i = 0; i < size; i += 4096) p[i] = (char)(i >> 12) | 1;
    maps[top].start = p;
    maps[top++].size = size;
}

static char outer[512], referee[600];
static int version; /* of control groups */
static struct { long needed, mapped, kernel; } *seen; /* the most of each; shared with all children, up to an exec */

static long get(const char *group, const char *name);

static void most(long *last, long value) {
    for (long old = *last; value > old && !__atomic_compare_exchange_n(last, &old, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);) {}
}

static void look(void) {
    char path[700], line[128];
    long value, mapped = 0, kernel = version == 1 ? get(referee, "memory.kmem.usage_in_bytes") : 0;
    snprintf(path, sizeof path, "%s/memory.stat", referee);
    FILE *stat = fopen(path, "r");
    while (stat && fgets(line, sizeof line, stat))
        if (sscanf(line, version == 1 ? "total_rss %ld" : "anon %ld", &value) == 1
            || sscanf(line, version == 1 ? "total_shmem %ld" : "shmem %ld", &value) == 1) mapped += value;
        else if (version == 2 && sscanf(line, "kernel %ld", &value) == 1) kernel = value;
    if (stat) fclose(stat);
    most(&seen->needed, mapped + kernel);
    most(&seen->mapped, mapped);
    most(&seen->kernel, kernel);
}

static void nap(long ms) {
    if (seen) look();
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&t, &t)) {}
}

static int started, touched;

static void *thread(void *unused) {
    (void)unused;
    volatile char stack[65536];
    for (size_t i = 0; i < sizeof stack; i += 4096) stack[i] = 1;
    __atomic_add_fetch(&touched, 1, __ATOMIC_SEQ_CST);
    for (;;) pause();
    return 0;
}

static void threads(long n) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 128 * 1024);
    while (n--) {
        pthread_t t;
        if (pthread_create(&t, &attr, thread, 0)) die("pthread_create");
        started++;
        while (__atomic_load_n(&touched, __ATOMIC_SEQ_CST) < started) sched_yield();
    }
}

static void burn(long ms) {
    struct timespec t;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); while (t.tv_sec * 1000 + t.tv_nsec / 1000000 < ms);
}

static void write_file(size_t mib) {
    static char block[1 << 20];
    int fd = open("out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) die("open");
    memset(block, 7, sizeof block);
    while (mib--)
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) die("write");
    close(fd);
}

static void print_peak(void) {
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    long peak = -1;
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmHWM: %ld", &peak);
    printf("%d %ld\n", getpid(), peak);
    fflush(stdout);
}

static void put(const char *group, const char *name, const char *text) {
    char path[700];
    snprintf(path, sizeof path, "%s/%s", group, name);
    int fd = open(path, O_WRONLY);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) die(path);
    close(fd);
}

static long get(const char *group, const char *name) {
    char path[700];
    long value = -1;
    snprintf(path, sizeof path, "%s/%s", group, name);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%ld", &value) != 1) return -1;
    fclose(file);
    return value;
}

/* Processes in the referee, but for the one that the monitor has in a scope, which comes when it likes. */
static int count_members(void) {
    char path[700], line[64], name[64];
    int count = 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", referee);
    FILE *file = fopen(path, "r");
    if (!file) die(path);
    while (fgets(line, sizeof line, file)) {
        snprintf(path, sizeof path, "/proc/%ld/comm", atol(line));
        FILE *comm = fopen(path, "r");
        if (!comm || !fgets(name, sizeof name, comm) || strcmp(name, "signal-witness\n")) count++;
        if (comm) fclose(comm);
    }
    fclose(file);
    return count;
}

static void enter_referee(const char *given) {
    char line[512], *found = 0;
    seen = mmap(0, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) die("mmap");
    if (given) {
        snprintf(referee, sizeof referee, "%s", given);
        version = get(referee, "memory.peak") < 0 ? 1 : 2;
        put(referee, version == 1 ? "tasks" : "cgroup.procs", "0");
        return;
    }
    FILE *groups = fopen("/proc/self/cgroup", "r");
    for (version = 1; groups && !found && fgets(line, sizeof line, groups);) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "0::", 3) && access("/sys/fs/cgroup/cgroup.controllers", F_OK) == 0) {
            version = 2;
            found = line + 3;
        } else if ((found = strstr(line, ":memory:"))) found += 8;
    }
    if (!found) die("no memory group");
    fclose(groups);
    if (version == 2) {
        snprintf(referee, sizeof referee, "/sys/fs/cgroup%s", found);
    } else {
        snprintf(outer, sizeof outer, "/sys/fs/cgroup/memory%s", found);
        snprintf(referee, sizeof referee, "%s/referee-%d", outer, getpid());
        if (mkdir(referee, 0755)) die(referee);
        put(referee, "cgroup.procs", "0");
    }
}

/* Pages of files that are charged to the referee: what others had read before and the kernel had dropped, too. */
static long page_cache(void) {
    char path[700], line[128];
    long value, cache = 0;
    snprintf(path, sizeof path, "%s/memory.stat", referee);
    FILE *stat = fopen(path, "r");
    while (stat && fgets(line, sizeof line, stat))
        if (sscanf(line, version == 1 ? "total_cache %ld" : "file %ld", &value) == 1) cache += value;
        else if (sscanf(line, version == 1 ? "total_shmem %ld" : "shmem %ld", &value) == 1) cache -= value;
    if (stat) fclose(stat);
    return cache;
}

static void leave_referee(void) {
    while (count_members() > 1) nap(2);
    printf("referee %ld %ld %ld %ld %ld\n", get(referee, version == 1 ? "memory.max_usage_in_bytes" : "memory.peak"),
           version == 1 ? get(referee, "memory.kmem.max_usage_in_bytes") : seen->kernel, seen->needed, seen->mapped,
           page_cache());
    fflush(stdout);
    if (!*outer) return;
    put(outer, "cgroup.procs", "0");
    if (rmdir(referee)) die(referee);
}

#ifdef ZOO
#include "../zoo/kinds.c"
#endif

static void execute(int argc, char **argv, int at) {
    int end = at + 1;
    for (int depth = 0; end < argc; end++)
        if (*argv[end] == '(') depth++;
        else if (*argv[end] == ')' && depth-- == 0) break;
    argv[end] = 0;
    argv[at] = argv[0];
    execv("/proc/self/exe", argv + at);
    die("exec");
}

int main(int argc, char **argv) {
    int inside = 0;
    for (int i = 1; i < argc; i++) {
        char *word = argv[i];
        long n = atol(word + 1);
        switch (*word) {
        case 'a': map(n * MIB, MAP_PRIVATE); break;
        case 'm': map(n * MIB, MAP_SHARED); break;
        case 'h': {
            char *p = mmap(0, n * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) die("mmap");
            madvise(p, n * MIB, MADV_HUGEPAGE);
            for (size_t at = 0; at < n * MIB; at += 4096) p[at] = 1;
            maps[top].start = p;
            maps[top++].size = n * MIB;
            break;
        }
        case 'c':
            for (size_t at = 0; top && at < maps[top - 1].size && at < n * MIB; at += 4096)
                maps[top - 1].start[at]++;
            break;
        case 'f': top--; munmap(maps[top].start, maps[top].size); break;
        case 's': nap(n); break;
        case 'w': while (wait(0) > 0) {} break;
        case 'x': exit((int)n);
        case 't': threads(n); break;
        case 'i': signal(SIGCHLD, SIG_IGN); break;
        case 'd': prctl(PR_SET_DUMPABLE, 0); break;
        case 'u': if (setgroups(0, 0) || setgid(65534) || setuid(65534)) die("setuid"); break;
        case 'S': setsid(); break;
        case 'k': kill(getpid(), (int)n); break;
        case 'o': write_file(n); break;
        case 'b': burn(n); break;
        case 'e': execute(argc, argv, i); break;
        case 'p': print_peak(); break;
#ifdef ZOO
        case 'z': use_kind(word + 1); break;
#endif
        case 'G': enter_referee(word[1] ? word + 1 : 0); break;
        case 'g': leave_referee(); break;
        case ')': if (inside) exit(0); break;
        case '(': {
            pid_t child = fork();
            if (child < 0) die("fork");
            if (child == 0) { inside = 1; break; }
            for (int depth = 1; depth && ++i < argc;) depth += *argv[i] == '(' ? 1 : *argv[i] == ')' ? -1 : 0;
            break;
        }
        default: fprintf(stderr, "workload: what is %s?\n", word); return 98;
        }
    }
    return 0;
}
