/* Usage: sampler GROUP [READY]: reads a memory cgroup every millisecond until it has gone or SIGTERM, then prints
 *
 *   LEAST MOST MAPPED KERNEL SAMPLES ANONYMOUS LASTING
 *
 * in bytes: LEAST is the largest memory seen (anonymous, shared, kernel), MOST the largest that can have been between two
 * samples (the watermark, which each sample resets, less the smaller page cache of both), MAPPED and KERNEL the parts.
 * ANONYMOUS is the largest without shared memory and files in memory, LASTING the largest MAPPED of the smallest in a third of a
 * second: memory that a monitor with ten samples a second saw.
 * READY: a file to create after the first sample. Another program resets the watermark, so MOST is what was seen and what two
 * processors touch until the next sample, 10 MiB in a millisecond. On a busy machine that sample is late. With version 2, MOST is
 * at most the watermark of all time, and memory is without the kernel memory that can be reclaimed. A reset by this program
 * would take the peak from another one's window there. Before Linux 6.12, version 2 cannot reset a watermark: MOST is the same.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stopped;

static void stop(int number) { (void)number; stopped = 1; }

static int open_file(const char *group, const char *name, int flags) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", group, name);
    return open(path, flags | O_CLOEXEC);
}

static long figure(int file) {
    char text[64] = "";
    return pread(file, text, sizeof text - 1, 0) > 0 ? atol(text) : -1;
}

static long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static long field(const char *text, const char *name) {
    const char *found = strstr(text, name);
    return found ? atol(found + strlen(name)) : 0;
}

enum { LASTING = 334 }; /* samples */

/* Return the smallest of the last LASTING figures, 0 before there were as many. */
static long lasting(long now) {
    static long last[LASTING], count;
    last[count++ % LASTING] = now;
    if (count < LASTING) return 0;
    for (int i = 0; i < LASTING; i++)
        if (last[i] < now) now = last[i];
    return now;
}

int main(int count, char **words) {
    if (count < 2) return 98;
    struct sched_param urgent = {.sched_priority = 10};
    sched_setscheduler(0, SCHED_FIFO, &urgent);
    signal(SIGTERM, stop);
    int stat = open_file(words[1], "memory.stat", O_RDONLY), peak = open_file(words[1], "memory.max_usage_in_bytes", O_RDWR);
    int version_2 = peak < 0, keep = count > 2; /* keep the watermark */
    if (version_2) peak = open_file(words[1], "memory.peak", O_RDWR);
    if (peak < 0) {
        peak = open_file(words[1], "memory.peak", O_RDONLY);
        keep = 1;
    }
    if (!keep && pwrite(peak, "0", 1, 0) < 0) keep = 1; /* root may open it for writing before Linux 6.12 as well */
    int kmem = open_file(words[1], "memory.kmem.usage_in_bytes", O_RDONLY);
    if (stat < 0 || peak < 0) return 97;
    static char text[16384];
    long least = 0, most = 0, mapped = 0, kernel = 0, samples = 0, cache_before = 0, anonymous = 0, lasted = 0;
    long seen_before = 0, at_before = now_us();
    for (; !stopped; samples++) {
        long top = figure(peak);
        ssize_t size = pread(stat, text, sizeof text - 1, 0);
        if (top < 0 || size <= 0) break;
        if (!keep && pwrite(peak, "0", 1, 0) < 0) break;
        text[size] = 0;
        long shared = field(text, version_2 ? "\nshmem " : "\ntotal_shmem ");
        long memory = field(text, version_2 ? "anon " : "\ntotal_rss ") + shared;
        long cache = field(text, version_2 ? "\nfile " : "\ntotal_cache ") - shared;
        long of_kernel = kmem < 0 ? 0 : figure(kmem);
        if (version_2) of_kernel = field(text, "\nkernel ") - field(text, "\nslab_reclaimable ");
        if (of_kernel < 0) of_kernel = 0;
        long less = samples && cache > cache_before ? cache_before : cache;
        if (!keep && top - less > most) most = top - less;
        long seen = memory + of_kernel, larger = seen > seen_before ? seen : seen_before, at = now_us();
        long reach = larger + (at - at_before) * ((10 << 20) / 1000);
        if (keep && reach > most) most = reach;
        if (keep && version_2 && most > top) most = top;
        if (seen > least) least = seen;
        seen_before = seen;
        at_before = at;
        if (count > 2 && !samples) close(open(words[2], O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        if (memory > mapped) mapped = memory;
        if (memory - shared > anonymous) anonymous = memory - shared;
        long low = lasting(memory);
        if (low > lasted) lasted = low;
        if (of_kernel > kernel) kernel = of_kernel;
        cache_before = cache;
        nanosleep(&(struct timespec){0, 1000000}, 0);
    }
    printf("%ld %ld %ld %ld %ld %ld %ld\n", least, most > least ? most : least, mapped, kernel, samples, anonymous, lasted);
    return 0;
}
