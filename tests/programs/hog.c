/* A program that takes memory until it is killed: hog KIND LIMIT NOTES [LEAVE]
 *
 * NOTES is a file of 40 bytes that all its processes map, for a referee: bytes touched so far, the Unix seconds of the moment
 * at which 85 % of LIMIT were touched and of the last touch. With LEAVE, the fewest bytes that the machine had available
 * after a touch, and the Unix seconds of the moment at which they were fewer than LEAVE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1 << 20)

static struct notes { volatile long bytes; volatile double crossed, last; volatile long fewest; volatile double below; } *notes;
static long limit, leave;
static int meminfo;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void read_available(void)
{
    char text[1024];
    ssize_t length = pread(meminfo, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    char *found = strstr(text, "MemAvailable:");
    long bytes = found ? atol(found + 13) << 10 : leave;
    if (notes->fewest == 0 || bytes < notes->fewest)
        notes->fewest = bytes;
    if (notes->below == 0 && bytes < leave)
        notes->below = now();
}

static void touched(long bytes)
{
    long sum = __atomic_add_fetch(&notes->bytes, bytes, __ATOMIC_SEQ_CST);
    notes->last = now();
    if (notes->crossed == 0 && sum >= limit / 100 * 85)
        notes->crossed = notes->last;
    if (leave)
        read_available();
}

static void *grow(void *pause)
{
    for (;;) {
        char *part = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (part == MAP_FAILED)
            _exit(1);
        memset(part, 1, MIB);
        touched(MIB);
        usleep((long)pause);
    }
}

static void grow_shared(void)
{
    for (;;) {
        char *part = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        memset(part, 1, MIB);
        touched(MIB);
    }
}

static void grow_tmpfs(void)
{
    static char part[MIB];
    char name[] = "/dev/shm/hog-XXXXXX";
    int file = mkstemp(name);
    unlink(name);
    memset(part, 1, sizeof part);
    while (write(file, part, sizeof part) == sizeof part)
        touched(MIB);
}

static void bomb(void)
{
    char *part = mmap(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(part, 1, MIB);
    touched(MIB);
    for (;;)
        if (fork() == 0) {
            memset(part, 2, MIB); /* a copy of its own */
            touched(MIB);
        }
}

static void apart(int twice)
{
    signal(SIGTERM, SIG_IGN);
    for (int child = 0; child < 3; child++)
        if (fork() == 0) {
            setsid();
            if (twice && fork())
                _exit(0);
            if (child)
                for (;;)
                    pause();
            grow((void *)2000);
        }
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    limit = atol(argv[2]);
    leave = argc > 4 ? atol(argv[4]) : 0;
    meminfo = open("/proc/meminfo", O_RDONLY);
    notes = mmap(0, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED, open(argv[3], O_RDWR), 0);
    switch (argv[1][0]) {
    case 'n': grow(0);                              /* native: a gigabyte a second */
    case 'g': grow((void *)5000);                   /* growing: 200 MiB a second */
    case 'm': grow_shared();                        /* mapped */
    case 't': grow_tmpfs();                         /* tmpfs */
    case 'p':                                       /* pthreads */
        for (int i = 0; i < 7; i++) {
            pthread_t thread;
            pthread_create(&thread, 0, grow, 0);
        }
        grow(0);
    case 'b': bomb();
    case 's': apart(0);                             /* sessions */
    case 'd': apart(1);                             /* double forks */
    }
    return 2;
}
