/* Kinds of memory use, each a function: takes `mib` MiB in its own way, keeps them for `ms` ms, and gives all back.
 *
 * Included by workload.c, whose word zKIND:MIB:MS calls one. What ends or disturbs a process is done in a child. A kind
 * that this machine or user cannot have ends in a plain block instead, so that a composition always runs; FALLBACK says so.
 */
#include <errno.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <malloc.h>

#define PAGE ((size_t)4096)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

static void touch(char *p, size_t size) {
    for (size_t i = 0; i < size; i += PAGE) p[i] = (char)(i >> 12) | 1;
}

static char *take(size_t mib, int kind) {
    char *p = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) die("mmap");
    return p;
}

static char *block(size_t mib, int kind) {
    char *p = take(mib, kind);
    touch(p, mib * MIB);
    return p;
}

static void plain(size_t mib, long ms) {
    char *p = block(mib, MAP_PRIVATE);
    nap(ms);
    munmap(p, mib * MIB);
}

static void FALLBACK(const char *what, size_t mib, long ms) {
    fprintf(stderr, "zoo: no %s here (%s)\n", what, strerror(errno));
    plain(mib, ms);
}

static pid_t begin(void) {
    pid_t child = fork();
    if (child < 0) die("fork");
    return child;
}

static void reap(pid_t child) {
    while (waitpid(child, 0, 0) < 0 && errno == EINTR) {}
}

#define CHILD(...) do { pid_t child_ = begin(); if (!child_) { __VA_ARGS__; _exit(0); } reap(child_); } while (0)

static void execute_kind(const char *kind, size_t mib, long ms) {
    char word[100];
    snprintf(word, sizeof word, "z%s:%zu:%ld", kind, mib, ms);
    execl("/proc/self/exe", "workload", word, (char *)0);
    _exit(97);
}

/* -- anonymous memory of one process */

static void waves(size_t mib, long ms) {
    for (int wave = 1; wave <= 4; wave++) {
        size_t size = mib * MIB * wave / 4;
        char *p = malloc(size);
        if (!p) die("malloc");
        touch(p, size);
        nap(ms / 4);
        free(p);
    }
}

static void calloc_untouched(size_t mib, long ms) {
    char *p = calloc(16 * mib, MIB);
    if (!p) die("calloc");
    touch(p, mib * MIB / 4);
    nap(ms);
    free(p);
}

static void small_pieces(size_t mib, long ms) {
    size_t count = mib * MIB / 1024;
    char **pieces = malloc(count * sizeof *pieces);
    for (size_t i = 0; i < count; i++) memset(pieces[i] = malloc(1000), 1, 1000);
    nap(ms);
    for (size_t i = 0; i < count; i++) free(pieces[i]);
    free(pieces);
    malloc_trim(0);
}

static void dontneed(size_t mib, long ms) {
    char *p = block(mib, MAP_PRIVATE);
    nap(ms / 3);
    madvise(p, mib * MIB, MADV_DONTNEED);
    nap(ms / 3);
    touch(p, mib * MIB / 2);
    nap(ms / 3);
    munmap(p, mib * MIB);
}

static void lazily_freed(size_t mib, long ms) {
    char *p = block(mib, MAP_PRIVATE);
    madvise(p, mib * MIB, MADV_FREE);
    nap(ms / 2);
    touch(p, mib * MIB / 2);
    nap(ms / 2);
    munmap(p, mib * MIB);
}

static char *aligned(size_t mib, char **start) {
    *start = take(mib + 2, MAP_PRIVATE);
    return (char *)(((size_t)*start + 2 * MIB - 1) & ~(2 * MIB - 1));
}

static void huge(size_t mib, long ms) {
    char *start, *p = aligned(mib, &start);
    madvise(p, mib * MIB, MADV_HUGEPAGE);
    for (size_t i = 0; i < mib; i += 2) p[i * MIB] = 1;
    nap(ms);
    munmap(start, (mib + 2) * MIB);
}

static void huge_split(size_t mib, long ms) {
    char *start, *p = aligned(mib, &start);
    madvise(p, mib * MIB, MADV_HUGEPAGE);
    for (size_t i = 0; i < mib; i += 2) p[i * MIB] = 1;
    nap(ms / 2);
    for (size_t i = 0; i + 2 <= mib; i += 2) munmap(p + i * MIB + PAGE, 2 * MIB - PAGE);
    nap(ms / 2);
    munmap(start, (mib + 2) * MIB);
}

/* An allocator gives back a part of each huge page while it takes more: the rest stays charged. */
static void huge_purged(size_t mib, long ms) {
    char *start, *p = aligned(mib, &start);
    madvise(p, mib * MIB, MADV_HUGEPAGE);
    for (size_t i = 0; i + 2 <= mib; i += 2) {
        touch(p + i * MIB, 2 * MIB);
        if (i / 2 % 4) madvise(p + (i + 1) * MIB, 900 * 1024, MADV_DONTNEED);
        nap(1);
    }
    nap(ms);
    munmap(start, (mib + 2) * MIB);
}

static void collapsed(size_t mib, long ms) {
    char *start, *p = aligned(mib, &start);
    for (size_t i = 0; i + 2 <= mib; i += 2) touch(p + i * MIB, 64 * PAGE);
    madvise(p, mib * MIB, MADV_HUGEPAGE);
    madvise(p, mib / 2 * 2 * MIB, MADV_COLLAPSE);
    nap(ms);
    munmap(start, (mib + 2) * MIB);
}

static void populated(size_t mib, long ms) {
    char *p = take(mib, MAP_PRIVATE);
    if (madvise(p, mib * MIB, MADV_POPULATE_WRITE)) touch(p, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
}

static void locked(size_t mib, long ms) {
    char *p = take(mib, MAP_PRIVATE);
    if (mlock(p, mib * MIB)) touch(p, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
}

static void locked_all(size_t mib, long ms) {
    CHILD(mlockall(geteuid() ? MCL_CURRENT : MCL_CURRENT | MCL_FUTURE); plain(mib, ms));
}

static void remapped(size_t mib, long ms) {
    size_t size = mib * MIB / 4;
    char *p = take(mib, MAP_PRIVATE);
    munmap(p + size, mib * MIB - size);
    touch(p, size);
    for (int grown = 2; grown <= 4; grown++) {
        p = mremap(p, size * (grown - 1), size * grown, MREMAP_MAYMOVE);
        if (p == MAP_FAILED) die("mremap");
        touch(p + size * (grown - 1), size);
        nap(ms / 4);
    }
    p = mremap(p, size * 4, size, 0);
    nap(ms / 4);
    munmap(p, size);
}

static void program_break(size_t mib, long ms) {
    char *p = sbrk((intptr_t)(mib * MIB));
    if (p == (void *)-1) { FALLBACK("room above the program break", mib, ms); return; }
    touch(p, mib * MIB);
    nap(ms);
    if (sbrk(0) == p + mib * MIB) sbrk(-(intptr_t)(mib * MIB));
}

static int deeper(int pages) {
    volatile char frame[4096];
    frame[0] = (char)pages;
    frame[4095] = 1;
    return pages > 1 ? deeper(pages - 1) + frame[0] : 0;
}

static void deep_stack(size_t mib, long ms) {
    CHILD(struct rlimit wide = {(mib + 8) * MIB, RLIM_INFINITY};
          if (setrlimit(RLIMIT_STACK, &wide)) _exit(0);
          deeper((int)(mib * 250)); nap(ms));
}

static void *thread_block(void *mib) {
    plain((size_t)mib, 5);
    return 0;
}

static void in_threads(size_t mib, long ms) {
    pthread_t others[4];
    for (int i = 0; i < 4; i++) if (pthread_create(&others[i], 0, thread_block, (void *)(mib / 4 + 1))) die("pthread_create");
    for (int i = 0; i < 4; i++) pthread_join(others[i], 0);
    nap(ms);
}

static void sparse(size_t mib, long ms) {
    size_t tables = mib * 128;
    char *p = mmap(0, tables * 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) die("mmap");
    for (size_t i = 0; i < tables; i++) p[i * 2 * MIB] = 1;
    nap(ms);
    munmap(p, tables * 2 * MIB);
}

static void zero_page(size_t mib, long ms) {
    char *p = take(mib, MAP_PRIVATE);
    volatile char sum = 0;
    for (size_t i = 0; i < mib * MIB; i += PAGE) sum += p[i];
    nap(ms / 2);
    touch(p, mib * MIB / 2);
    nap(ms / 2);
    munmap(p, mib * MIB);
}

static void merged(size_t mib, long ms) {
    char *p = take(mib, MAP_PRIVATE);
    madvise(p, mib * MIB, MADV_MERGEABLE);
    memset(p, 7, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
}

static void faulted_by_hand(size_t mib, long ms) {
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
    struct uffdio_api api = {.api = UFFD_API};
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api)) { FALLBACK("userfaultfd", mib, ms); return; }
    char *p = take(mib, MAP_PRIVATE);
    struct uffdio_register all = {.range = {(size_t)p, mib * MIB}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(fd, UFFDIO_REGISTER, &all)) die("UFFDIO_REGISTER");
    /* Not before: it would be one area with that one, and a huge page in both. */
    char *from = block(1, MAP_PRIVATE);
    for (size_t i = 0; i < mib; i++) {
        struct uffdio_copy copy = {.dst = (size_t)p + i * MIB, .src = (size_t)from, .len = MIB};
        if (ioctl(fd, UFFDIO_COPY, &copy)) die("UFFDIO_COPY");
    }
    nap(ms);
    close(fd);
    munmap(p, mib * MIB);
    munmap(from, MIB);
}

static void secret(size_t mib, long ms) {
    struct rlimit wide = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &wide);
    int fd = (int)syscall(SYS_memfd_secret, 0);
    char *p = fd < 0 || ftruncate(fd, (off_t)(mib * MIB)) ? MAP_FAILED
        : mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) { if (fd >= 0) close(fd); FALLBACK("memfd_secret", mib, ms); return; }
    touch(p, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
    close(fd);
}

static void huge_pages(size_t mib, long ms) {
    size_t size = (mib < 8 ? 2 : 4) * MIB;
    char *p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (p == MAP_FAILED) { FALLBACK("huge page of hugetlbfs", mib, ms); return; }
    p[0] = p[size - 1] = 1;
    nap(ms);
    munmap(p, size);
}

/* -- shared memory and memory files */

static void shared_block(size_t mib, long ms) {
    char *p = block(mib, MAP_SHARED);
    nap(ms);
    munmap(p, mib * MIB);
}

static void shared_writers(size_t mib, long ms) {
    char *p = take(mib, MAP_SHARED);
    pid_t writers[4];
    for (int i = 0; i < 4; i++)
        if (!(writers[i] = begin())) { touch(p, mib * MIB); nap(ms); _exit(0); }
    for (int i = 0; i < 4; i++) reap(writers[i]);
    munmap(p, mib * MIB);
}

static void fill(int fd, size_t mib) {
    static char bytes[1 << 20];
    memset(bytes, 5, sizeof bytes);
    for (size_t i = 0; i < mib; i++)
        if (write(fd, bytes, sizeof bytes) != (ssize_t)sizeof bytes) die("write");
}

static void memory_file(size_t mib, long ms) {
    int fd = memfd_create("zoo", MFD_CLOEXEC);
    fill(fd, mib);
    nap(ms);
    close(fd);
}

static void memory_file_mapped(size_t mib, long ms) {
    int fd = memfd_create("zoo", MFD_CLOEXEC);
    if (ftruncate(fd, (off_t)(mib * MIB))) die("ftruncate");
    char *p = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    touch(p, mib * MIB);
    nap(ms / 2);
    munmap(p, mib * MIB);
    nap(ms / 2);
    close(fd);
}

static void memory_file_allocated(size_t mib, long ms) {
    int fd = memfd_create("zoo", MFD_CLOEXEC);
    if (fallocate(fd, 0, 0, (off_t)(mib * MIB))) die("fallocate");
    nap(ms);
    close(fd);
}

static void memory_file_passed(size_t mib, long ms) {
    int pair[2], fd = memfd_create("zoo", MFD_CLOEXEC);
    fill(fd, mib);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) die("socketpair");
    char room[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec one = {"x", 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    *CMSG_FIRSTHDR(&message) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &fd, sizeof fd);
    if (sendmsg(pair[0], &message, 0) != 1) die("sendmsg");
    close(fd);
    nap(ms);
    close(pair[0]);
    close(pair[1]);
}

static void tmpfs_file(size_t mib, long ms) {
    char path[64];
    snprintf(path, sizeof path, "/dev/shm/zoo-%d-%d", getpid(), rand());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0) { FALLBACK("/dev/shm", mib, ms); return; }
    fill(fd, mib);
    close(fd);
    nap(ms);
    unlink(path);
}

static void tmpfs_blip(size_t mib, long ms) {
    tmpfs_file(mib, 0);
    nap(ms);
}

static void system_v(size_t mib, long ms) {
    int id = shmget(IPC_PRIVATE, mib * MIB, 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, 0, 0);
    if (p == (char *)-1) { FALLBACK("shmget", mib, ms); return; }
    shmctl(id, IPC_RMID, 0);
    touch(p, mib * MIB);
    nap(ms);
    shmdt(p);
}

static void system_v_detached(size_t mib, long ms) {
    int id = shmget(IPC_PRIVATE, mib * MIB, 0600);
    char *p = id < 0 ? (char *)-1 : shmat(id, 0, 0);
    if (p == (char *)-1) { FALLBACK("shmget", mib, ms); return; }
    touch(p, mib * MIB);
    shmdt(p);
    nap(ms);
    shmctl(id, IPC_RMID, 0);
}

/* -- files: ZOO_FILE has at least 64 MiB and is in the page cache already, charged to nobody here */

static int old_file(void) {
    const char *path = getenv("ZOO_FILE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) die("ZOO_FILE");
    return fd;
}

static void file_mapped(size_t mib, long ms) {
    int fd = old_file();
    char *p = mmap(0, mib * MIB, PROT_READ, MAP_PRIVATE, fd, 0);
    volatile char sum = 0;
    for (size_t i = 0; i < mib * MIB; i += PAGE) sum += p[i];
    nap(ms);
    munmap(p, mib * MIB);
    close(fd);
}

static void file_private_written(size_t mib, long ms) {
    int fd = old_file();
    char *p = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    touch(p, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
    close(fd);
}

static void file_shared_written(size_t mib, long ms) {
    int fd = old_file();
    char *p = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    touch(p, mib * MIB);
    nap(ms);
    munmap(p, mib * MIB);
    close(fd);
}

/* As ripgrep does with a named file: maps it and ends within a tick, before a sample reads its file pages. */
static void file_mapped_briefly(size_t mib, long ms) {
    CHILD(file_mapped(mib, 0));
    nap(ms);
}

static void file_read(size_t mib, long ms) {
    static char bytes[1 << 20];
    int fd = old_file();
    for (size_t i = 0; i < mib; i++) if (read(fd, bytes, sizeof bytes) < 0) die("read");
    nap(ms);
    close(fd);
}

static int new_file(size_t mib) {
    char path[64];
    snprintf(path, sizeof path, "zoo-%d-%d", getpid(), rand());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) die("new file");
    unlink(path);
    fill(fd, mib);
    return fd;
}

static void file_written(size_t mib, long ms) {
    int fd = new_file(mib);
    nap(ms);
    close(fd);
}

/* As a linker does: a child maps its input, writes its output through a mapping, and ends within a tick. */
static void file_linked_briefly(size_t mib, long ms) {
    char path[64];
    snprintf(path, sizeof path, "zoo-%d-%d", getpid(), rand());
    int out = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0) die("new file");
    unlink(path);
    if (ftruncate(out, (off_t)(mib * MIB))) die("ftruncate");
    CHILD(int in = old_file();
          char *from = mmap(0, mib * MIB, PROT_READ, MAP_PRIVATE, in, 0);
          char *to = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, out, 0);
          if (from == MAP_FAILED || to == MAP_FAILED) die("mmap");
          memcpy(to, from, mib * MIB));
    nap(ms);
    close(out);
}

static void file_written_and_mapped(size_t mib, long ms) {
    int fd = new_file(mib);
    char *p = mmap(0, mib * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    touch(p, mib * MIB);
    nap(ms / 2);
    char *own = block(mib / 2 + 1, MAP_PRIVATE);
    nap(ms / 2);
    munmap(own, (mib / 2 + 1) * MIB);
    munmap(p, mib * MIB);
    close(fd);
}

static void cache_then_memory(size_t mib, long ms) {
    int fd = new_file(mib);
    fsync(fd);
    nap(ms / 2);
    if (ftruncate(fd, 0)) die("ftruncate");
    plain(mib / 2 + 1, ms / 2);
    close(fd);
}

/* -- kernel memory */

static void pipes(size_t mib, long ms) {
    int ends[2 * 256], count = 0;
    static char bytes[1 << 20];
    for (; count < (int)mib && count < 256; count++) {
        if (pipe2(ends + 2 * count, O_CLOEXEC | O_NONBLOCK)) break;
        fcntl(ends[2 * count], F_SETPIPE_SZ, 1 << 20);
        while (write(ends[2 * count + 1], bytes, sizeof bytes) > 0) {}
    }
    nap(ms);
    while (count--) { close(ends[2 * count]); close(ends[2 * count + 1]); }
}

static void sockets(size_t mib, long ms) {
    int ends[2 * 256], count = 0, room = 1 << 20;
    static char bytes[1 << 16];
    for (; count < (int)mib && count < 256; count++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends + 2 * count)) break;
        setsockopt(ends[2 * count], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        while (send(ends[2 * count], bytes, sizeof bytes, 0) > 0) {}
    }
    nap(ms);
    while (count--) { close(ends[2 * count]); close(ends[2 * count + 1]); }
}

static void pages_in_pipes(size_t mib, long ms) {
    int ends[2 * 64], count = 0;
    for (; count < (int)mib && count < 64; count++) {
        if (pipe2(ends + 2 * count, O_CLOEXEC | O_NONBLOCK)) break;
        fcntl(ends[2 * count], F_SETPIPE_SZ, 1 << 20);
        char *p = block(1, MAP_PRIVATE);
        struct iovec all = {p, MIB};
        /* The pipe may be as small as a page, where the user has used up what pipes may have: vmsplice asks no O_NONBLOCK. */
        while (all.iov_len) {
            ssize_t done = vmsplice(ends[2 * count + 1], &all, 1, SPLICE_F_GIFT | SPLICE_F_NONBLOCK);
            if (done <= 0) break;
            all.iov_base = (char *)all.iov_base + done;
            all.iov_len -= done;
        }
        munmap(p, MIB);
    }
    nap(ms);
    while (count--) { close(ends[2 * count]); close(ends[2 * count + 1]); }
}

static void spliced_file(size_t mib, long ms) {
    int ends[2], fd = old_file(), sink = open("/dev/null", O_WRONLY);
    if (pipe(ends)) die("pipe");
    for (size_t i = 0; i < mib * 16; i++) {
        ssize_t got = splice(fd, 0, ends[1], 0, 1 << 16, 0);
        if (got <= 0) break;
        splice(ends[0], 0, sink, 0, got, 0);
    }
    nap(ms);
    close(fd); close(sink); close(ends[0]); close(ends[1]);
}

static void descriptors(size_t mib, long ms) {
    CHILD(struct rlimit most; getrlimit(RLIMIT_NOFILE, &most); most.rlim_cur = most.rlim_max;
          setrlimit(RLIMIT_NOFILE, &most);
          for (size_t i = 0; i < mib * 200; i++) if (dup(0) < 0 || open("/dev/null", O_RDONLY) < 0) break;
          nap(ms));
}

static void dentries(size_t mib, long ms) {
    char path[80];
    for (size_t i = 0; i < mib * 200; i++) {
        snprintf(path, sizeof path, "/dev/shm/zoo-absent-%d-%zu", getpid(), i);
        access(path, F_OK);
    }
    nap(ms);
}

/* -- processes */

static void fork_reading(size_t mib, long ms) {
    char *p = block(mib, MAP_PRIVATE);
    pid_t others[4];
    for (int i = 0; i < 4; i++)
        if (!(others[i] = begin())) {
            volatile char sum = 0;
            for (size_t k = 0; k < mib * MIB; k += PAGE) sum += p[k];
            nap(ms);
            _exit(0);
        }
    for (int i = 0; i < 4; i++) reap(others[i]);
    munmap(p, mib * MIB);
}

static void fork_writing(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t others[3];
    for (int i = 0; i < 3; i++)
        if (!(others[i] = begin())) { nap(ms / 2); touch(p, (mib / 4 + 1) * MIB); nap(ms / 2); _exit(0); }
    for (int i = 0; i < 3; i++) reap(others[i]);
    munmap(p, (mib / 2 + 1) * MIB);
}

static void fork_kept(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { nap(ms); _exit(0); }
    munmap(p, (mib / 2 + 1) * MIB);
    plain(mib / 2 + 1, ms / 2);
    reap(child);
}

/* As a database that saves itself: the child only reads, the parent rewrites all meanwhile. */
static void fork_snapshot(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { nap(ms); _exit(0); }
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = i * PAGE; k < (mib / 2 + 1) * MIB; k += 4 * PAGE) p[k]++;
        nap(ms / 5);
    }
    reap(child);
    munmap(p, (mib / 2 + 1) * MIB);
}

/* As a web server: several workers at once, each writes to what it inherited, and is replaced soon. */
static void fork_prefork(size_t mib, long ms) {
    char *p = block(mib / 4 + 1, MAP_PRIVATE);
    for (int live = 0, left = 24; left || live;) {
        while (live < 6 && left) {
            if (!begin()) { touch(p, mib * MIB / 16); plain(mib / 16 + 1, ms / 4); _exit(0); }
            live++, left--;
        }
        if (wait(0) > 0) live--;
    }
    munmap(p, (mib / 4 + 1) * MIB);
}

static void fork_exchanged(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { nap(ms / 3); munmap(p, (mib / 2 + 1) * MIB); plain(mib / 2 + 1, ms / 2); _exit(0); }
    nap(ms);
    reap(child);
    munmap(p, (mib / 2 + 1) * MIB);
}

static void fork_then_exec(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { touch(p, mib / 4 * MIB); execute_kind("plain", mib / 2 + 1, ms); }
    reap(child);
    munmap(p, (mib / 2 + 1) * MIB);
}

static void pool_churning(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    pid_t others[3];
    for (int i = 0; i < 3; i++)
        if (!(others[i] = begin())) { for (int k = 0; k < 5; k++) plain(mib / 4 + 1, ms / 5); _exit(0); }
    for (int i = 0; i < 3; i++) reap(others[i]);
    munmap(p, (mib / 2 + 1) * MIB);
}

static void workers_replaced(size_t mib, long ms) {
    char *p = block(mib / 2 + 1, MAP_PRIVATE);
    for (int i = 0; i < 8; i++) CHILD(touch(p, mib / 8 * MIB); plain(mib / 4 + 1, ms / 8));
    munmap(p, (mib / 2 + 1) * MIB);
}

static void bursts(size_t mib, long ms) {
    for (int i = 0; i < 20; i++) CHILD(plain(mib / 4 + 1, 0));
    nap(ms);
}

static void burst_together(size_t mib, long ms) {
    pid_t others[8];
    for (int i = 0; i < 8; i++) if (!(others[i] = begin())) { plain(mib / 8 + 1, ms / 4); _exit(0); }
    for (int i = 0; i < 8; i++) reap(others[i]);
}

static void deep_tree(size_t mib, long ms) {
    char *p = block(mib / 8 + 1, MAP_PRIVATE);
    if (mib > 2) CHILD(deep_tree(mib - mib / 8 - 1, ms));
    else nap(ms);
    munmap(p, (mib / 8 + 1) * MIB);
}

static void spawned(size_t mib, long ms) {
    char word[100];
    snprintf(word, sizeof word, "zplain:%zu:%ld", mib, ms);
    pid_t child = vfork();
    if (!child) { execl("/proc/self/exe", "workload", word, (char *)0); _exit(97); }
    reap(child);
}

static int in_our_memory(void *mib) {
    touch(((char **)mib)[0], ((size_t *)mib)[1] * MIB);
    /* nap() looks at the referee by way of stdio, whose state these processes share without its locks. */
    long ms = ((long *)mib)[2];
    struct timespec t = {ms / 1000, ms % 1000 * 1000000L};
    syscall(SYS_nanosleep, &t, 0);
    return 0;
}

static void memory_in_common(size_t mib, long ms) {
    static char stacks[2][65536];
    long said[3] = {(long)take(mib, MAP_PRIVATE), (long)mib, ms};
    pid_t others[2];
    for (int i = 0; i < 2; i++)
        others[i] = clone(in_our_memory, stacks[i] + sizeof stacks[i], CLONE_VM | SIGCHLD, said);
    for (int i = 0; i < 2; i++) if (others[i] > 0) reap(others[i]);
    munmap((char *)said[0], mib * MIB);
}

static void exec_chain(size_t mib, long ms) {
    CHILD(char *p = block(mib, MAP_PRIVATE); nap(ms / 4); (void)p;
          if (mib > 2) execute_kind("exec_chain", mib / 2, ms / 2);
          execute_kind("plain", 1, ms / 4));
}

static void *exec_from_thread(void *said) {
    execute_kind("plain", ((size_t *)said)[0], ((long *)said)[1]);
    return 0;
}

static void exec_in_thread(size_t mib, long ms) {
    CHILD(long said[2]; pthread_t other; said[0] = (long)mib / 2 + 1; said[1] = ms;
          block(mib / 2 + 1, MAP_PRIVATE);
          if (pthread_create(&other, 0, exec_from_thread, said)) _exit(1);
          nap(10000));
}

static void *outlives_leader(void *said) {
    plain(((size_t *)said)[0], ((long *)said)[1]);
    _exit(0);
}

static void leader_gone(size_t mib, long ms) {
    CHILD(long *said = malloc(2 * sizeof *said); pthread_t other; said[0] = (long)mib; said[1] = ms;
          if (pthread_create(&other, 0, outlives_leader, said)) _exit(1);
          syscall(SYS_exit, 0));
}

static void daemonized(size_t mib, long ms) {
    int done[2];
    if (pipe2(done, O_CLOEXEC)) die("pipe");
    CHILD(setsid(); if (!begin()) { close(done[0]); plain(mib, ms); _exit(0); });
    close(done[1]);
    char end;
    while (read(done[0], &end, 1) > 0) {}
    close(done[0]);
}

static void adopting(size_t mib, long ms) {
    CHILD(prctl(PR_SET_CHILD_SUBREAPER, 1);
          CHILD(if (!begin()) { plain(mib, ms); _exit(0); });
          while (wait(0) > 0) {});
}

static void unawaited(size_t mib, long ms) {
    CHILD(prctl(PR_SET_NAME, "unawaited"); signal(SIGCHLD, SIG_IGN);
          for (int i = 0; i < 3; i++) if (!begin()) { plain(mib / 3 + 1, ms / 2); _exit(0); }
          while (wait(0) > 0) {});
}

/* A helper outlives its parent, which ignores the ends of its children. */
static void helper_left(size_t mib, long ms) {
    CHILD(int ends[2]; if (pipe(ends)) die("pipe");
          signal(SIGCHLD, SIG_IGN);
          if (!begin()) { close(ends[1]); char b; while (read(ends[0], &b, 1) > 0) {} _exit(0); }
          close(ends[0]); plain(mib, ms));
}

static void zombies(size_t mib, long ms) {
    pid_t others[5];
    for (int i = 0; i < 5; i++) if (!(others[i] = begin())) { plain(mib / 5 + 1, 0); _exit(0); }
    nap(ms);
    for (int i = 0; i < 5; i++) reap(others[i]);
}

static void killed(size_t mib, long ms) {
    pid_t child = begin();
    if (!child) { block(mib, MAP_PRIVATE); nap(ms); kill(getpid(), SIGKILL); }
    reap(child);
}

static void core_dumped(size_t mib, long ms) {
    CHILD(struct rlimit none; none.rlim_cur = 0; none.rlim_max = 0; setrlimit(RLIMIT_CORE, &none);
          block(mib, MAP_PRIVATE); nap(ms); *(volatile int *)8 = 1);
}

static void stopped(size_t mib, long ms) {
    pid_t child = begin();
    if (!child) { block(mib, MAP_PRIVATE); raise(SIGSTOP); nap(ms / 2); _exit(0); }
    waitpid(child, 0, WUNTRACED);
    nap(ms / 2);
    kill(child, SIGCONT);
    reap(child);
}

static void traced(size_t mib, long ms) {
    pid_t child = begin();
    if (!child) { ptrace(PTRACE_TRACEME, 0, 0, 0); raise(SIGSTOP); plain(mib, ms); _exit(0); }
    int status = 0;
    while (waitpid(child, &status, 0) == child && WIFSTOPPED(status)) ptrace(PTRACE_CONT, child, 0, 0);
}

static void written_into(size_t mib, long ms) {
    char *p = take(mib, MAP_PRIVATE), *from = block(1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { nap(10000); _exit(0); }
    for (size_t i = 0; i < mib; i++) {
        struct iovec here = {from, MIB}, there = {p + i * MIB, MIB};
        if (process_vm_writev(child, &here, 1, &there, 1, 0) < 0) break;
    }
    nap(ms);
    kill(child, SIGKILL);
    reap(child);
    munmap(from, MIB);
    munmap(p, mib * MIB);
}

static void written_by_proc(size_t mib, long ms) {
    char path[64], *p = take(mib, MAP_PRIVATE), *from = block(1, MAP_PRIVATE);
    pid_t child = begin();
    if (!child) { nap(10000); _exit(0); }
    snprintf(path, sizeof path, "/proc/%d/mem", child);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (size_t i = 0; fd >= 0 && i < mib; i++) if (pwrite(fd, from, MIB, (off_t)(size_t)(p + i * MIB)) < 0) break;
    nap(ms);
    if (fd >= 0) close(fd);
    kill(child, SIGKILL);
    reap(child);
    munmap(from, MIB);
    munmap(p, mib * MIB);
}

static void privileges_dropped(size_t mib, long ms) {
    CHILD(if (setgroups(0, 0) || setgid(65534) || setuid(65534)) errno = 0; plain(mib, ms));
}

static void not_dumpable(size_t mib, long ms) {
    CHILD(prctl(PR_SET_DUMPABLE, 0); plain(mib, ms));
}

static void in_namespaces(size_t mib, long ms) {
    CHILD(if (unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS)) unshare(CLONE_NEWNS);
          CHILD(plain(mib, ms)));
}

/* Gives a tick the time to see it. */
static void own_watermark_reset(size_t mib, long ms) {
    nap(300);
    char *p = block(mib, MAP_PRIVATE);
    munmap(p, mib * MIB);
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0 || write(fd, "5", 1) != 1) errno = 0;
    if (fd >= 0) close(fd);
    plain(mib / 4 + 1, ms);
}

/* Half of it in another control group: ZOO_ELSEWHERE, where the harness made one. */
static void elsewhere(size_t mib, long ms) {
    const char *group = getenv("ZOO_ELSEWHERE");
    char path[600];
    snprintf(path, sizeof path, "%s/%s", group ? group : "", version == 2 ? "cgroup.procs" : "tasks");
    CHILD(int fd = group ? open(path, O_WRONLY) : -1;
          if (fd >= 0) { if (write(fd, "0", 1) != 1) errno = 0; close(fd); }
          plain(mib, ms));
}

#define KIND(f) {#f, f}
static const struct { const char *name; void (*use)(size_t, long); } kinds[] = {
    KIND(plain), KIND(waves), KIND(calloc_untouched), KIND(small_pieces), KIND(dontneed), KIND(lazily_freed), KIND(huge),
    KIND(huge_split), KIND(huge_purged), KIND(helper_left), KIND(collapsed), KIND(populated), KIND(locked), KIND(locked_all), KIND(remapped), KIND(program_break),
    KIND(deep_stack), KIND(in_threads), KIND(sparse), KIND(zero_page), KIND(merged), KIND(faulted_by_hand), KIND(secret),
    KIND(huge_pages), KIND(shared_block), KIND(shared_writers), KIND(memory_file), KIND(memory_file_mapped),
    KIND(memory_file_allocated), KIND(memory_file_passed), KIND(tmpfs_file), KIND(tmpfs_blip), KIND(system_v),
    KIND(system_v_detached), KIND(file_mapped), KIND(file_mapped_briefly), KIND(file_linked_briefly), KIND(file_private_written), KIND(file_shared_written), KIND(file_read),
    KIND(file_written), KIND(file_written_and_mapped), KIND(cache_then_memory), KIND(pipes), KIND(sockets),
    KIND(pages_in_pipes), KIND(spliced_file), KIND(descriptors), KIND(dentries), KIND(fork_reading), KIND(fork_writing),
    KIND(fork_kept), KIND(fork_exchanged), KIND(fork_snapshot), KIND(fork_prefork), KIND(fork_then_exec), KIND(pool_churning), KIND(workers_replaced), KIND(bursts),
    KIND(burst_together), KIND(deep_tree), KIND(spawned), KIND(memory_in_common), KIND(exec_chain), KIND(exec_in_thread),
    KIND(leader_gone), KIND(daemonized), KIND(adopting), KIND(unawaited), KIND(zombies), KIND(killed), KIND(core_dumped),
    KIND(stopped), KIND(traced), KIND(written_into), KIND(written_by_proc), KIND(privileges_dropped), KIND(not_dumpable),
    KIND(in_namespaces), KIND(own_watermark_reset), KIND(elsewhere),
};

/* KIND:MIB:MS */
static void use_kind(const char *word) {
    size_t mib;
    long ms, length = (long)strcspn(word, ":");
    if (sscanf(word + length, ":%zu:%ld", &mib, &ms) != 2 || mib < 1 || mib > 64) die(word);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strncmp(kinds[i].name, word, length) && !kinds[i].name[length]) { kinds[i].use(mib, ms); return; }
    fprintf(stderr, "zoo: no kind %s\n", word);
    _exit(98);
}
