/* Statistics of this process's memory allocators, by their public calls.

   The functions are found by name, so nothing is linked or loaded. They take the allocator's locks: never call this in a
   signal handler, or in a child that was forked without exec. */

#define _GNU_SOURCE
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes. `scattered`: the part of `free` that lies between blocks in use, so the allocator cannot return it. */
typedef struct {
    const char *name;
    size_t live, free, scattered;
} Books;

/* `struct mallinfo2` of glibc 2.33 and later, declared here for compilation on older systems. */
typedef struct {
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost;
} GlibcInfo;

/* `mi_heap_area_t` of mimalloc 1.7 and later; `used` is a number of blocks. */
typedef struct {
    void *blocks;
    size_t reserved, committed, used, block_size;
} MimallocArea;

#define SMALL_PIECE 8192 /* a free block below two pages hardly contains a whole one */

static int is_in(const void *function, const char *name)
{
    Dl_info one, other;
    void *found = dlsym(RTLD_DEFAULT, name);
    return found != NULL && dladdr(function, &one) && dladdr(found, &other) && one.dli_fbase == other.dli_fbase;
}

/* The malloc of this program. An executable at a fixed address, as Debian's Python, has an entry for it that leads to a library. */
static void *find_malloc(void)
{
    void *found = dlsym(RTLD_DEFAULT, "malloc");
#ifdef __GLIBC__
    Dl_info info;
    const ElfW(Sym) *symbol = NULL;
    struct link_map *map = NULL;
    void *program;
    if (!found || !dladdr1(found, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol || symbol->st_shndx != SHN_UNDEF)
        return found;
    found = NULL;
    program = dlopen(NULL, RTLD_LAZY);
    if (program == NULL || dlinfo(program, RTLD_DI_LINKMAP, &map))
        return NULL;
    /* The first library that defines it, in the order in which the loader searches. */
    for (; map != NULL && found == NULL; map = map->l_next) {
        void *library = strchr(map->l_name, '/') ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        void *defined = library ? dlsym(library, "malloc") : NULL;
        if (defined && dladdr(defined, &info) && info.dli_fbase == (void *)map->l_addr)
            found = defined;
        if (library)
            dlclose(library);
    }
    dlclose(program);
#endif
    return found;
}

static int glibc(Books *books)
{
    GlibcInfo (*mallinfo2)(void);
    *(void **)&mallinfo2 = dlsym(RTLD_DEFAULT, "mallinfo2");
    if (!mallinfo2)
        return 0;
    GlibcInfo info = mallinfo2();
    size_t pieces = info.ordblks + info.smblks;
    books->live = info.uordblks + info.hblkhd;
    books->free = info.fordblks;
    books->scattered = pieces && (info.fordblks - info.keepcost) / pieces < SMALL_PIECE ? info.fordblks - info.keepcost : 0;
    return 1;
}

static int jemalloc(Books *books)
{
    int (*mallctl)(const char *, void *, size_t *, void *, size_t);
    *(void **)&mallctl = dlsym(RTLD_DEFAULT, "mallctl");
    uint64_t epoch = 1;
    size_t allocated, active, resident, metadata, size = sizeof(size_t);
    if (mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)) || mallctl("stats.allocated", &allocated, &size, NULL, 0) ||
        mallctl("stats.active", &active, &size, NULL, 0) || mallctl("stats.resident", &resident, &size, NULL, 0) ||
        mallctl("stats.metadata", &metadata, &size, NULL, 0))
        return 0;
    resident = resident > metadata ? resident - metadata : 0;
    books->live = allocated;
    books->free = resident > allocated ? resident - allocated : 0;
    books->scattered = active > allocated ? active - allocated : 0;
    return 1;
}

static bool add_area(const void *heap, const MimallocArea *area, void *block, size_t block_size, void *books)
{
    Books *sum = books;
    size_t used = area->used * area->block_size;
    sum->live += used;
    if (area->committed > used) {
        sum->free += area->committed - used;
        sum->scattered += used ? area->committed - used : 0;
    }
    return true;
}

typedef struct {
    char text[4096];
    size_t size;
} Output;

static void add_text(const char *message, void *output)
{
    Output *into = output;
    size_t size = strlen(message), room = sizeof into->text - 1 - into->size;
    memcpy(into->text + into->size, message, size < room ? size : room);
    into->size += size < room ? size : room;
    into->text[into->size] = 0;
}

/* Whether ended threads left blocks behind, which are in no heap: the rows "-abandoned" of segments and of pages. */
static int has_abandoned(void (*print)(void (*)(const char *, void *), void *))
{
    static const char ROW[] = "-abandoned:";
    Output output = {{0}, 0};
    char current[32];
    int rows = 0;
    print(add_text, &output);
    for (const char *row = output.text; (row = strstr(row, ROW)) != NULL; rows++) {
        row += sizeof ROW - 1;
        if (sscanf(row, "%*s %*s %*s %31s", current) != 1 || strcmp(current, "0") != 0)
            return 1;
    }
    return rows != 2;
}

/* The heap of the calling thread, which must be the only thread. Free segments belong to it if no ended thread left blocks.
   Otherwise they stay unknown. */
static int mimalloc(Books *books)
{
    int (*version)(void);
    void *(*own_heap)(void);
    bool (*visit)(const void *, bool, bool (*)(const void *, const MimallocArea *, void *, size_t, void *), void *);
    void (*print)(void (*)(const char *, void *), void *);
    void (*process)(size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *, size_t *);
    *(void **)&version = dlsym(RTLD_DEFAULT, "mi_version");
    *(void **)&own_heap = dlsym(RTLD_DEFAULT, "mi_heap_get_default");
    *(void **)&visit = dlsym(RTLD_DEFAULT, "mi_heap_visit_blocks");
    *(void **)&print = dlsym(RTLD_DEFAULT, "mi_stats_print_out");
    *(void **)&process = dlsym(RTLD_DEFAULT, "mi_process_info");
    if (version == NULL || own_heap == NULL || visit == NULL || print == NULL || process == NULL || version() < 170 || version() >= 300)
        return 0;
    if (!visit(own_heap(), false, add_area, books))
        return 0;
    size_t committed = 0, other;
    process(&other, &other, &other, &other, &other, &committed, &other, &other);
    if (committed > books->live + books->free && !has_abandoned(print))
        books->free = committed - books->live;
    return 1;
}

static int read_books(Books *books, int threads)
{
    void *allocate = find_malloc();
    if (allocate == NULL)
        return 0;
    if (is_in(allocate, "gnu_get_libc_version")) { /* other allocators have a `mallinfo2` too */
        books->name = "glibc";
        return glibc(books);
    }
    if (is_in(allocate, "mallctl")) {
        books->name = "jemalloc";
        return jemalloc(books);
    }
    if (threads == 1 && is_in(allocate, "mi_version")) {
        books->name = "mimalloc";
        return mimalloc(books);
    }
    return 0;
}

/* Return the text of sys._debugmallocstats(); None: not available. */
static PyObject *pymalloc_text(void)
{
    int (*write_statistics)(FILE *);
    char *text = NULL;
    size_t size = 0;
    *(void **)&write_statistics = dlsym(RTLD_DEFAULT, "_PyObject_DebugMallocStats");
    FILE *file = write_statistics == NULL ? NULL : open_memstream(&text, &size);
    if (file == NULL)
        Py_RETURN_NONE;
    write_statistics(file);
    fclose(file);
    PyObject *found = PyBytes_FromStringAndSize(text, (Py_ssize_t)size);
    free(text);
    return found;
}

/* Return the name of the allocator behind malloc, its live, free and scattered bytes, and the statistics of pymalloc as text.

   The first four are None if malloc has no known statistics. */
PyObject *heap_books(PyObject *module, PyObject *threads)
{
    Books books = {NULL, 0, 0, 0};
    long number = PyLong_AsLong(threads);
    int known;
    if (number == -1 && PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    known = read_books(&books, (int)number);
    Py_END_ALLOW_THREADS
    PyObject *text = pymalloc_text();
    if (text == NULL)
        return NULL;
    if (!known)
        return Py_BuildValue("OOOON", Py_None, Py_None, Py_None, Py_None, text);
    return Py_BuildValue("sKKKN", books.name, (unsigned long long)books.live, (unsigned long long)books.free,
                         (unsigned long long)books.scattered, text);
}
