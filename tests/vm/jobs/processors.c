/* Memory that the counters of many processors see late or early: processors spread|one|ahead FILE
 * spread  127 pages on each processor in turn, held for five seconds, then given back
 * one     64 MiB on one processor, likewise
 * ahead   one page on each processor in turn, not held: the kernel charges 64 pages on each
 * FILE gets what was resident at the maximum by smaps_rollup, which is exact, and the counter that wait4 reports, in bytes; and
 * the monotonic seconds from which and until which it was held. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static long resident(void)
{
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Anonymous: %ld", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib * 1024;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int ahead = !strcmp(argv[1], "ahead"), one = !strcmp(argv[1], "one");
    int processors = one ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
    size_t page = sysconf(_SC_PAGESIZE), pages = ahead ? 1 : one ? (64 << 20) / page : 127;
    size_t bytes = page * pages * processors;
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (int processor = 0; processor < processors; processor++) {
        cpu_set_t only;
        CPU_ZERO(&only);
        CPU_SET(processor, &only);
        sched_setaffinity(0, sizeof only, &only);
        for (size_t i = 0; i < pages; i++)
            memory[((size_t)processor * pages + i) * page] = 1;
    }
    long truth = resident();
    double from = now();
    if (!ahead)
        sleep(5);
    double until = now();
    munmap(memory, bytes);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    FILE *file = fopen(argv[2], "w");
    fprintf(file, "{\"truth\": %ld, \"counter\": %ld, \"from\": %f, \"until\": %f}\n", truth, used.ru_maxrss * 1024L, from, until);
    return fclose(file) != 0;
}
