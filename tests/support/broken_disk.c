/* A library to be preloaded: a disk that breaks while it is written to.

   While the file named by BROKEN_DISK_SWITCH exists, every write to a file below BROKEN_DISK fails as on a device with an
   error. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int broken(int descriptor)
{
    const char *place = getenv("BROKEN_DISK"), *trigger = getenv("BROKEN_DISK_SWITCH");
    char link[64], path[4096];
    if (!place || !trigger || access(trigger, F_OK) != 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path);
    return length >= (ssize_t)strlen(place) && strncmp(path, place, strlen(place)) == 0;
}

ssize_t write(int descriptor, const void *data, size_t size)
{
    static ssize_t (*real)(int, const void *, size_t);
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    int before = errno;
    if (broken(descriptor)) {
        errno = EIO;
        return -1;
    }
    errno = before;
    return real(descriptor, data, size);
}
