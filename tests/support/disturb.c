/* A library to be preloaded: memory comes and goes between the reading of the watermark and its reset.

   `disturb(MIB)` arms it for the next write of "5", which is what starts the watermark anew. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

static int mib;

void disturb(int wanted) { mib = wanted; }

static void meddle(void)
{
    size_t size = (size_t)mib << 20;
    mib = 0;
    if (size > 0) {
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t place = 0; place < size; place += 4096)
            memory[place] = 1;
        munmap(memory, size);
    }
}

typedef ssize_t (*writer)(int, const void *, size_t, off_t);

static ssize_t meddled(const char *name, int descriptor, const void *data, size_t size, off_t place)
{
    if (size == 1 && *(const char *)data == '5')
        meddle();
    return ((writer)dlsym(RTLD_NEXT, name))(descriptor, data, size, place);
}

ssize_t pwrite(int descriptor, const void *data, size_t size, off_t place)
{
    return meddled("pwrite", descriptor, data, size, place);
}

ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t place)
{
    return meddled("pwrite64", descriptor, data, size, place);
}
