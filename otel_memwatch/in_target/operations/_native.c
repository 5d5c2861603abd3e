/* Boundaries of operations in C. plain.py is the specification; a test compares the output of both.

   A boundary usually keeps the interpreter's lock: the call takes less than a microsecond. A thread that releases the
   lock beside a computing thread gets it back only after 5 ms (`sys.getswitchinterval()`).

   - A call may still take longer than that: a slow disk, the release of a huge mapping, a wait for a processor. Then
     the calls of the next 0.1 s release the lock, so other threads do not wait for them.
   - This time doubles with each further slow call within a second, up to about ten seconds.
   - A file on a network file system may never answer: its lines are always written without the lock.

   No Python code runs during a boundary, so signal handlers and finalizers never find an incomplete one. Work that
   needs Python code (reopening files) happens between boundaries; then the boundary begins again. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024LL * 1024)
#define SECOND 1000000000LL
#define SHORTEST_TIME (SECOND / 10)
#define LONGEST_TIME (10 * SECOND)

/* Written only with the interpreter's lock held. */
static int64_t long_call = SECOND / 200; /* the interpreter's switch interval plus the resolution of the clock */
static int64_t polite_time = SHORTEST_TIME;
static int64_t polite_until = 0;

/* Number of forks that led to this process. Python's hooks do not see forks by C code. */
static int forks = 0;

static void count_fork(void)
{
    forks++;
}


/* State per interpreter: objects of one interpreter must not enter another. */
typedef struct {
    PyTypeObject *opening_type;
} State;

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

static int is_polite(void)
{
    return nanoseconds(CLOCK_MONOTONIC_COARSE) < polite_until; /* 5 ns */
}

static void be_polite(int64_t began, int64_t ended)
{
    if (polite_until == 0 || began - polite_until > SECOND)
        polite_time = SHORTEST_TIME;
    else if (polite_time < LONGEST_TIME)
        polite_time *= 2;
    polite_until = ended + polite_time;
}

/* `result = call`, retried after an interruption by a signal. `polite`: without the interpreter's lock. */
#define CALL(result, call, polite)                                 \
    do {                                                           \
        if (polite) {                                              \
            Py_BEGIN_ALLOW_THREADS                                 \
            do                                                     \
                result = call;                                     \
            while (result < 0 && errno == EINTR);                  \
            Py_END_ALLOW_THREADS                                   \
        } else {                                                   \
            int64_t began = nanoseconds(CLOCK_MONOTONIC_COARSE);   \
            do                                                     \
                result = call;                                     \
            while (result < 0 && errno == EINTR);                  \
            int error = errno;                                     \
            int64_t ended = nanoseconds(CLOCK_MONOTONIC_COARSE);   \
            if (ended - began > long_call)                         \
                be_polite(began, ended);                           \
            errno = error;                                         \
        }                                                          \
    } while (0)

static int expect(Py_ssize_t given, Py_ssize_t wanted)
{
    if (given == wanted)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments instead of %zd", given, wanted);
    return 0;
}

static double seconds_now(void)
{
    return (double)nanoseconds(CLOCK_MONOTONIC) * 1e-9;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

static int64_t smaller(int64_t one, int64_t other)
{
    return one < other ? one : other;
}

/* As in process_state.py and plain.py. */
#define BRIEF 10e-6 /* seconds */
#define LIFE 100e-6
#define FILL_RATE 8e9 /* bytes a second */
#define HUGE_PAGE (2 * MIB)
#define THREAD_PAGES (3 * 64) /* of each of three counters */
#define IGNORED_FAULTS 8
#define FOREIGN_SLACK (4 * MIB)
#define EXACT_BYTES MIB
#define EXACT_PARTS 200
#define HIGH 768 /* lowest number of a journal's descriptor that ordinary files do not reach */

enum { NO_WATERMARK, LIFETIME, SHARED, RESETTABLE }; /* `kind` of the classes in process_state.py */
#define UNKNOWN (-1)
#define FOREIGN (-1)

/* Lines. */

typedef struct {
    char *text, fixed[4096]; /* most lines are shorter */
    size_t size, room;
} Line;

/* Begin a line with room for `more` bytes beyond the field names and the numbers. */
static int begin_line(Line *line, size_t more)
{
    line->size = 0;
    line->room = more + 2048;
    line->text = line->room <= sizeof line->fixed ? line->fixed : malloc(line->room);
    if (line->text == NULL)
        PyErr_NoMemory();
    return line->text != NULL;
}

static void end_line(Line *line)
{
    if (line->text != line->fixed)
        free(line->text);
}

static void put(Line *line, const char *text, size_t size)
{
    if (size <= line->room - line->size) {
        memcpy(line->text + line->size, text, size);
        line->size += size;
    }
}

#define PUT(line, literal) put(line, literal, sizeof literal - 1)

static void put_number(Line *line, int64_t number)
{
    char digits[20], *first = digits + sizeof digits;
    uint64_t rest = number < 0 ? -(uint64_t)number : (uint64_t)number;
    do
        *--first = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0)
        PUT(line, "-");
    put(line, first, (size_t)(digits + sizeof digits - first));
}

/* Put seconds with six decimals. Negative values become 0: no time and no difference of CPU times is negative. */
static void put_seconds(Line *line, double time)
{
    char digits[7] = {'.'};
    int64_t microseconds = time > 0 ? (int64_t)(time * 1e6 + 0.5) : 0;
    put_number(line, microseconds / 1000000);
    microseconds %= 1000000;
    for (int index = 6; index > 0; index--, microseconds /= 10)
        digits[index] = (char)('0' + microseconds % 10);
    put(line, digits, sizeof digits);
}

static void put_known(Line *line, int64_t number)
{
    if (number == UNKNOWN)
        PUT(line, "null");
    else
        put_number(line, number);
}

/* A text of the program, escaped for use between JSON quotes. */
typedef struct {
    const char *data;
    Py_ssize_t size;
    PyObject *quoted; /* Python's JSON text, if the text needs escapes; else NULL */
} Text;

static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t index = 0; index < size; index++)
        if (text[index] < ' ' || text[index] > '~' || text[index] == '"' || text[index] == '\\')
            return 0;
    return 1;
}

static int as_text(Text *text, PyObject *given, PyObject *quote)
{
    text->quoted = NULL;
    text->data = PyUnicode_AsUTF8AndSize(given, &text->size);
    if (text->data != NULL && is_plain(text->data, text->size))
        return 1;
    if (text->data == NULL && !PyErr_ExceptionMatches(PyExc_UnicodeError))
        return 0;
    PyErr_Clear();
    text->quoted = PyObject_CallFunctionObjArgs(quote, given, NULL);
    text->data = text->quoted != NULL ? PyUnicode_AsUTF8AndSize(text->quoted, &text->size) : NULL;
    if (text->data == NULL) {
        Py_CLEAR(text->quoted);
        return 0;
    }
    text->data++; /* skip the quotes */
    text->size -= 2;
    return 1;
}

static void put_text(Line *line, const Text *text)
{
    PUT(line, "\"");
    put(line, text->data, (size_t)text->size);
    PUT(line, "\"");
}

/* Largest size since any earlier boundary, as in record/segments.py. */

typedef struct {
    int64_t number, value;
} Entry;

typedef struct {
    Entry *entries;
    size_t size, room;
} Stack;

/* Make room for one more entry before a boundary begins: no allocation may fail during a boundary. */
static int reserve(Stack *stack)
{
    if (stack->size == stack->room) {
        size_t room = stack->room ? 2 * stack->room : 64;
        Entry *grown = realloc(stack->entries, room * sizeof *grown);
        if (grown == NULL)
            return 0;
        stack->entries = grown;
        stack->room = room;
    }
    return 1;
}

static void push(Stack *stack, int64_t number, int64_t value)
{
    while (stack->size > 0 && stack->entries[stack->size - 1].value <= value)
        stack->size--;
    stack->entries[stack->size++] = (Entry){number, value};
}

static int64_t since(const Stack *stack, int64_t number)
{
    size_t first = 0, end = stack->size;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (stack->entries[middle].number <= number)
            first = middle + 1;
        else
            end = middle;
    }
    return first < stack->size ? stack->entries[first].value : -1;
}

/* Figures from the kernel. */

typedef struct {
    double user, system; /* seconds */
    int64_t minor, major;
    int known;
} Used;

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static Used used_of(const struct rusage *usage)
{
    return (Used){seconds(usage->ru_utime), seconds(usage->ru_stime), usage->ru_minflt, usage->ru_majflt, 1};
}

typedef struct {
    int64_t segment, rss, doubt;
    Used used;
} Moment;

/* Totals in bytes: read from storage, written to storage, passed to read calls, passed to write calls. */
typedef struct {
    int64_t serial; /* number of this reading */
    int known;
    int64_t moved[4];
    Used children;
} Reading;

/* Return the number after `name` in a text of /proc; negative: `name` is missing. */
static int64_t field(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found != NULL ? strtoll(found + strlen(name), NULL, 10) : -1;
}

/* Peak of an operation. plain.py has the table of cases. */

typedef struct {
    int own_boundary, resets, foreign;
    int64_t start, end, before, after, inside, missed, error;
} Evidence;

typedef struct {
    int64_t peak, low, high;
    const char *certainty;
} Peak;

/* As in exactness.py. */
static int is_small(int64_t error, int64_t value)
{
    return error <= EXACT_BYTES || error * EXACT_PARTS <= value;
}

static const char *exact_if(int exact)
{
    return exact ? "exact" : "interval";
}

static Peak judge(const Evidence *it)
{
    int64_t inside = it->inside, error = it->error;
    if (!it->own_boundary)
        return (Peak){it->end, it->end, UNKNOWN, "interval"};
    if (it->resets && inside != UNKNOWN) {
        int64_t missed = larger(it->missed - inside, 0), low = larger(inside - error, 0), high = inside + error + missed;
        if (it->foreign)
            return (Peak){larger(low, larger(it->start, it->end)), low, UNKNOWN, "interval"};
        return (Peak){inside, low, high, exact_if(is_small(high - inside, inside))};
    }
    if (it->after == UNKNOWN) {
        if (inside == UNKNOWN || it->start == UNKNOWN)
            return (Peak){UNKNOWN, UNKNOWN, UNKNOWN, "sampled"};
        return (Peak){larger(inside, it->start), larger(inside, it->start), UNKNOWN, "interval"};
    }
    if (it->before != UNKNOWN && it->after > it->before)
        return (Peak){it->after, larger(it->after - error, 0), it->after + error, exact_if(is_small(error, it->after))};
    if (inside == UNKNOWN)
        return (Peak){it->after, UNKNOWN, it->after, "censored"};
    int64_t low = larger(inside, larger(it->start, 0));
    return (Peak){low, low, larger(it->after + error, low), "interval"};
}

/* State of an operation that has been opened. */

typedef struct {
    PyObject ob_base;
    long long id, number; /* number of the boundary at its opening */
    double time;
    Moment first;
    Reading before;
    int closed;
    Peak peak;
    int64_t end, moved[4];
    int moved_known;
} Opening;

static void opening_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef opening_members[] = {
    {"id", T_LONGLONG, offsetof(Opening, id), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot opening_slots[] = {
    {Py_tp_dealloc, (void *)opening_dealloc},
    {Py_tp_members, opening_members},
    {0, NULL},
};

static PyType_Spec opening_spec = {
    "otel_memwatch.in_target.operations._native.NativeOpening", sizeof(Opening), 0, Py_TPFLAGS_DEFAULT, opening_slots,
};

/* Magic numbers (statfs(2)) of local file systems: a write to them goes to the page cache. */
static const uint32_t LOCAL[] = {
    0xEF53,     /* ext2, ext3, ext4 */
    0x58465342, /* xfs */
    0x9123683E, /* btrfs */
    0xF2F52010, /* f2fs */
    0x2FC12FC1, /* zfs */
    0xCA451A4E, /* bcachefs */
    0x794C7630, /* overlayfs */
    0x01021994, /* tmpfs */
    0x858458F6, /* ramfs */
};

/* Boundaries of this process. */

typedef struct {
    PyObject ob_base;
    const State *state; /* state of the module; this object's type keeps the module alive */
    PyThread_type_lock lock; /* held during a boundary, which may release the interpreter's lock */
    PyObject *open_again, *write_rest, *quote; /* Python functions; NULL once stopped */
    int forks, stopped;
    int kind, reset, size, status, io, journal; /* kind of the watermark, and descriptors */
    int local, high;                            /* journal: on a local file system; descriptor at least HIGH */
    dev_t device;
    ino_t inode;
    int64_t position; /* start of the next line in the journal's file */
    int per_thread, processors;
    int64_t own_min, last, error, unseen; /* bytes, as in process_state.py and plain.py */
    long long generation, number, open, id;
    int64_t foreign; /* last boundary that follows a reset of the watermark by another program */
    int64_t own_read, own_written; /* bytes */
    double recheck_at;             /* seconds */
    Reading totals;
    Stack sizes, missed;
} Boundaries;

static void acquire(Boundaries *self)
{
    if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(self->lock, WAIT_LOCK);
        Py_END_ALLOW_THREADS
    }
}

static void release(Boundaries *self)
{
    PyThread_release_lock(self->lock);
}

/* Read the text of a /proc file; 0: it is unreadable, and the text is empty. */
static int read_text(Boundaries *self, int descriptor, char *text, size_t room)
{
    ssize_t size = pread(descriptor, text, room - 1, 0);
    text[size > 0 ? size : 0] = 0;
    self->own_read += size > 0 ? size : 0;
    return size > 0;
}

/* Return the current resident size from the exact counters; -1: unknown. */
static int64_t resident(Boundaries *self)
{
    char text[256];
    read_text(self, self->size, text, sizeof text);
    const char *pages = strchr(text, ' ');
    return pages != NULL ? strtoll(pages, NULL, 10) * sysconf(_SC_PAGESIZE) : UNKNOWN;
}

/* Return the watermark of this process, given `ru_maxrss` in `top`. Also learn the minimum of reliable `top` values.
   -1: the program has closed the descriptor of status. */
static int64_t own_peak(Boundaries *self, int64_t top)
{
    char text[4096];
    if (top >= self->own_min)
        return top;
    if (!read_text(self, self->status, text, sizeof text))
        return UNKNOWN;
    int64_t peak = field(text, "\nVmHWM:") * 1024;
    if (peak < 0)
        return top;
    self->own_min = peak >= top ? top : top + 1;
    return peak;
}

/* Return an upper bound of the bytes that these page faults added in `elapsed` seconds. */
static int64_t possible_gap(Boundaries *self, int64_t faults, double elapsed)
{
    char text[4096];
    read_text(self, self->status, text, sizeof text);
    int64_t page = field(text, "\nThreads:") == 1 ? sysconf(_SC_PAGESIZE) : HUGE_PAGE;
    double filled = elapsed * FILL_RATE * self->processors;
    return (double)(faults * page) < filled ? faults * page : (int64_t)filled;
}

/* Return the error of the watermark in bytes. */
static int64_t counter_error(Boundaries *self)
{
    char text[4096];
    if (!self->per_thread)
        return self->error;
    read_text(self, self->status, text, sizeof text);
    return THREAD_PAGES * sysconf(_SC_PAGESIZE) * larger(field(text, "\nThreads:"), 1);
}

/* As `_within_address_space` in plain.py. */
static void end_within_address_space(Boundaries *self, Peak *peak, double seconds)
{
    char text[4096];
    if (peak->high == UNKNOWN || seconds <= LIFE || strcmp(peak->certainty, "interval") != 0)
        return;
    read_text(self, self->status, text, sizeof text);
    int64_t space = field(text, "\nVmPeak:") * 1024;
    if (space > 0 && space < peak->high)
        peak->high = larger(space, peak->peak);
}

/* Take a boundary; 0: the program has closed descriptors, and the boundary was not taken. */
static int reach(Boundaries *self, Moment *moment, int opening, int beside, int polite)
{
    struct rusage before, after;
    *moment = (Moment){UNKNOWN, UNKNOWN, 0, {0, 0, 0, 0, 0}};
    if (self->kind == RESETTABLE) {
        /* RUSAGE_THREAD costs 0.3 us less, and its watermark is that of the process too. */
        double began = beside ? seconds_now() : 0;
        getrusage(opening && !beside ? RUSAGE_THREAD : RUSAGE_SELF, &before);
        int64_t top = own_peak(self, before.ru_maxrss * 1024LL);
        if (top == UNKNOWN)
            return 0;
        ssize_t done;
        CALL(done, pwrite(self->reset, "5", 1, 0), polite);
        if (done < 0)
            return 0;
        self->own_written++;
        getrusage(!opening && !beside ? RUSAGE_THREAD : RUSAGE_SELF, &after);
        int64_t rss = after.ru_maxrss * 1024LL;
        if (rss < self->own_min) {
            int64_t exact = resident(self);
            if (exact != UNKNOWN) {
                rss = smaller(exact, rss);
            } else { /* too late for this boundary: the next one reopens all files */
                close(self->reset);
                self->reset = -1;
            }
        }
        int64_t faults = after.ru_minflt - before.ru_minflt;
        moment->rss = rss;
        moment->segment = larger(top, rss);
        moment->used = used_of(opening ? &after : &before);
        if (moment->segment + FOREIGN_SLACK < self->last && (beside || !opening))
            moment->doubt = FOREIGN;
        else if (beside && faults > IGNORED_FAULTS)
            moment->doubt = possible_gap(self, faults, seconds_now() - began);
        self->last = rss;
    } else if (self->kind != NO_WATERMARK) {
        getrusage(RUSAGE_SELF, &before);
        moment->used = used_of(&before);
        int64_t peak = before.ru_maxrss * 1024LL;
        if (self->size >= 0) {
            moment->rss = resident(self);
            peak = own_peak(self, peak);
            if (moment->rss == UNKNOWN || peak == UNKNOWN)
                return 0;
        }
        if (self->kind == LIFETIME)
            moment->segment = peak;
    }
    self->number++;
    if (self->unseen) {
        moment->segment = larger(moment->segment, self->unseen);
        self->unseen = 0;
    }
    return 1;
}

/* Count the sizes at a boundary for every open operation. */
static void count(Boundaries *self, const Moment *moment)
{
    int64_t size = self->kind == RESETTABLE ? moment->segment : moment->rss;
    if (moment->doubt == FOREIGN)
        self->foreign = self->number;
    if (size != UNKNOWN) {
        push(&self->sizes, self->number, size);
        if (moment->doubt > 0)
            push(&self->missed, self->number, size + moment->doubt);
    }
}

/* Return whether the journal's descriptor still belongs to its file. */
static int has_journal(Boundaries *self)
{
    struct stat found;
    if (self->journal < 0)
        return 1; /* the journal was given up */
    off_t position = lseek(self->journal, 0, SEEK_CUR);
    if (position == self->position)
        return 1;
    if (position < 0 || fstat(self->journal, &found) < 0 || found.st_dev != self->device || found.st_ino != self->inode)
        return 0;
    self->position = position;
    return 1;
}

/* Check the journal and read the totals, as in plain.py; 0: the program has closed descriptors. */
static int look_around(Boundaries *self, double now, int polite)
{
    char text[1024];
    struct rusage children;
    Reading *totals = &self->totals;
    if (!has_journal(self))
        return 0;
    totals->known = 0;
    if (self->io >= 0) {
        ssize_t size;
        CALL(size, pread(self->io, text, sizeof text - 1, 0), polite);
        if (size < 0)
            return 0;
        text[size] = 0;
        const char *names[] = {"\nread_bytes: ", "\nwrite_bytes: ", "rchar: ", "\nwchar: "};
        totals->known = 1;
        for (int index = 0; index < 4; index++) {
            totals->moved[index] = field(text, names[index]);
            totals->known = totals->known && totals->moved[index] >= 0;
        }
        totals->moved[2] -= self->own_read;
        totals->moved[3] -= self->own_written;
        self->own_read += size;
    }
    getrusage(RUSAGE_CHILDREN, &children);
    totals->children = used_of(&children);
    totals->serial++;
    self->recheck_at = self->high ? now + LIFE : 0;
    return 1;
}

/* Stop the use of all files: a second check found them closed, so they cannot be reopened. */
static void give_up(Boundaries *self)
{
    self->kind = NO_WATERMARK;
    self->journal = self->io = -1;
}

/* Reopen files that the program has closed. Runs Python code, so never during a boundary. 0: it raised an exception. */
static int open_again(Boundaries *self)
{
    PyObject *function = self->open_again, *done = NULL;
    if (function == NULL)
        return 1;
    Py_INCREF(function);
    done = PyObject_CallFunction(function, "L", self->generation);
    Py_DECREF(function);
    Py_XDECREF(done);
    return done != NULL;
}

/* Write a line and return the number of bytes written. `error`: errno of a failed write, else 0. */
static size_t write_line(Boundaries *self, const Line *line, int *error, int polite)
{
    ssize_t written;
    *error = 0;
    if (self->journal < 0)
        return line->size;
    CALL(written, write(self->journal, line->text, line->size), polite || !self->local);
    if (written < 0) {
        *error = errno;
        return 0;
    }
    self->position += written;
    self->own_written += written;
    return (size_t)written;
}

/* Let Python write the rest of a line. 0: it raised an exception. */
static int write_rest(Boundaries *self, const Line *line, size_t written, int error)
{
    PyObject *function = self->write_rest, *done = NULL;
    if (written == line->size || function == NULL)
        return 1;
    Py_INCREF(function);
    done = PyObject_CallFunction(function, "y#i", line->text + written, (Py_ssize_t)(line->size - written), error);
    Py_DECREF(function);
    Py_XDECREF(done);
    return done != NULL;
}

/* Return the kernel's number of this thread. Each thread asks for it once. */
static int64_t this_thread(void)
{
    static __thread int64_t known;
    static __thread int known_at = -1;
    if (known_at != forks) {
        known = syscall(SYS_gettid);
        known_at = forks;
    }
    return known;
}

/* Begin a boundary: hold the lock, with all files open and room for the sizes. `NULL` with an exception;
   `Py_None`: this is another process, after a fork. `due`: check files and totals in any case. */
static PyObject *prepare(Boundaries *self, double now, int due, int *polite)
{
    for (int attempt = 0;; attempt++) {
        if (self->forks != forks)
            return Py_None;
        acquire(self);
        *polite = is_polite();
        if (!reserve(&self->sizes) || !reserve(&self->missed)) {
            release(self);
            return PyErr_NoMemory();
        }
        if ((!due && now < self->recheck_at) || look_around(self, now, *polite))
            return (PyObject *)self;
        if (attempt > 0) {
            give_up(self);
            return (PyObject *)self;
        }
        release(self);
        if (!open_again(self))
            return NULL;
    }
}

/* Call `reach`. If files are closed, release the lock, reopen them and retry. Returns the same as `prepare`. */
static PyObject *reach_surely(Boundaries *self, double now, Moment *moment, int opening, int others, int *polite)
{
    for (int attempt = 0;; attempt++) {
        if (reach(self, moment, opening, self->open > others, *polite))
            return (PyObject *)self;
        if (attempt > 0) {
            give_up(self);
            continue;
        }
        release(self);
        if (!open_again(self))
            return NULL;
        PyObject *ready = prepare(self, now, 1, polite);
        if (ready != (PyObject *)self)
            return ready;
    }
}

static PyObject *boundaries_open(Boundaries *self, PyObject *const *args, Py_ssize_t given)
{
    Text texts[4] = {{NULL, 0, NULL}};
    char *more;
    Py_ssize_t rest;
    Line line;
    Moment moment;
    PyObject *result = NULL;
    int polite, error;
    if (!expect(given, 5) || PyBytes_AsStringAndSize(args[4], &more, &rest) < 0)
        return NULL;
    if (self->forks != forks || self->quote == NULL)
        Py_RETURN_NONE;
    int has_parent = args[3] != Py_None;
    for (int index = 0; index < 3 + has_parent; index++)
        if (!as_text(&texts[index], args[index], self->quote))
            goto end;
    size_t needed = (size_t)(texts[0].size + texts[1].size + texts[2].size + texts[3].size + rest);
    PyTypeObject *type = self->state->opening_type;
    Opening *made = (Opening *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made == NULL || !begin_line(&line, needed)) {
        Py_XDECREF((PyObject *)made);
        goto end;
    }
    double now = seconds_now();
    PyObject *ready = prepare(self, now, 0, &polite);
    if (ready == (PyObject *)self)
        ready = reach_surely(self, now, &moment, 1, 0, &polite);
    if (ready != (PyObject *)self) {
        Py_XINCREF(ready); /* NULL or None */
        result = ready;
        end_line(&line);
        Py_DECREF((PyObject *)made);
        goto end;
    }
    if (self->open > 0)
        count(self, &moment);
    self->open++;
    made->id = ++self->id;
    made->number = self->number;
    made->time = seconds_now();
    made->first = moment;
    made->before = self->totals;
    PUT(&line, "{\"open\":");
    put_number(&line, made->id);
    PUT(&line, ",\"time\":");
    put_seconds(&line, made->time);
    PUT(&line, ",\"name\":");
    put_text(&line, &texts[0]);
    PUT(&line, ",\"trace\":");
    put_text(&line, &texts[1]);
    PUT(&line, ",\"span\":");
    put_text(&line, &texts[2]);
    PUT(&line, ",\"parent\":");
    if (has_parent)
        put_text(&line, &texts[3]);
    else
        PUT(&line, "null");
    PUT(&line, ",\"thread\":");
    put_number(&line, this_thread());
    PUT(&line, ",\"rss\":");
    put_known(&line, moment.rss);
    PUT(&line, ",\"segment\":");
    put_known(&line, moment.segment);
    put(&line, more, (size_t)rest);
    size_t written = write_line(self, &line, &error, polite);
    release(self);
    result = (PyObject *)made;
    if (!write_rest(self, &line, written, error))
        Py_CLEAR(result);
    end_line(&line);
end:
    for (int index = 0; index < 4; index++)
        Py_XDECREF(texts[index].quoted);
    return result;
}

static void put_used(Line *line, const Opening *opening, const Moment *last, const Reading *after)
{
    const Used *first = &opening->first.used, *end = &last->used, *old = &opening->before.children, *new = &after->children;
    if (!first->known || !end->known) {
        PUT(line, "null,\"cpu_system\":null,\"minor_faults\":null,\"major_faults\":null");
        return;
    }
    put_seconds(line, end->user - first->user + new->user - old->user);
    PUT(line, ",\"cpu_system\":");
    put_seconds(line, end->system - first->system + new->system - old->system);
    PUT(line, ",\"minor_faults\":");
    put_number(line, end->minor - first->minor + new->minor - old->minor);
    PUT(line, ",\"major_faults\":");
    put_number(line, end->major - first->major + new->major - old->major);
}

/* Compute the I/O between two readings. Bytes passed to calls are never negative. */
static void find_moved(Opening *opening, const Reading *after)
{
    const Reading *before = &opening->before;
    opening->moved_known = before->serial == after->serial || (before->known && after->known);
    for (int index = 0; index < 4 && opening->moved_known && before->serial != after->serial; index++) {
        int64_t moved = after->moved[index] - before->moved[index];
        opening->moved[index] = index >= 2 ? larger(moved, 0) : moved;
    }
}

static PyObject *boundaries_close(Boundaries *self, PyObject *const *args, Py_ssize_t given)
{
    Text failure = {NULL, 0, NULL};
    char *more;
    Py_ssize_t rest;
    Line line;
    Moment moment;
    int polite, error;
    if (!expect(given, 3) || PyBytes_AsStringAndSize(args[2], &more, &rest) < 0)
        return NULL;
    if (Py_TYPE(args[0]) != self->state->opening_type) {
        PyErr_SetString(PyExc_TypeError, "not an operation that was opened here");
        return NULL;
    }
    Opening *opening = (Opening *)args[0];
    double now = seconds_now();
    if (self->forks != forks)
        Py_RETURN_NONE;
    if (opening->closed || self->stopped)
        Py_RETURN_FALSE;
    if (args[1] != Py_None && !as_text(&failure, args[1], self->quote))
        return NULL;
    PyObject *result = NULL;
    if (!begin_line(&line, (size_t)(failure.size + rest)))
        goto end;
    PyObject *ready = prepare(self, now, now - opening->time > BRIEF, &polite);
    if (ready == (PyObject *)self && (opening->closed || self->stopped)) { /* another thread closed it meanwhile */
        release(self);
        ready = Py_False;
    }
    if (ready == (PyObject *)self) {
        opening->closed = 1;
        ready = reach_surely(self, now, &moment, 0, 1, &polite);
    }
    if (ready != (PyObject *)self) {
        Py_XINCREF(ready);
        result = ready;
        goto written;
    }
    count(self, &moment);
    int64_t inside = since(&self->sizes, opening->number), missed = since(&self->missed, opening->number);
    Evidence evidence = {
        .own_boundary = 1,
        .resets = self->kind == RESETTABLE,
        .foreign = self->foreign > opening->number,
        .start = opening->first.rss,
        .end = moment.rss,
        .before = opening->first.segment,
        .after = moment.segment,
        .inside = inside,
        .missed = larger(missed, 0),
        .error = counter_error(self),
    };
    opening->peak = judge(&evidence);
    end_within_address_space(self, &opening->peak, now - opening->time);
    opening->end = moment.rss;
    if (--self->open == 0)
        self->sizes.size = self->missed.size = 0; /* no operation needs earlier sizes */
    find_moved(opening, &self->totals);
    PUT(&line, "{\"close\":");
    put_number(&line, opening->id);
    PUT(&line, ",\"time\":");
    put_seconds(&line, now);
    if (args[1] == Py_None) {
        PUT(&line, ",\"status\":\"ok\",\"error\":null");
    } else {
        PUT(&line, ",\"status\":\"error\",\"error\":");
        put_text(&line, &failure);
    }
    PUT(&line, ",\"rss\":");
    put_known(&line, moment.rss);
    PUT(&line, ",\"segment\":");
    put_known(&line, moment.segment);
    PUT(&line, ",\"peak\":");
    put_known(&line, opening->peak.peak);
    PUT(&line, ",\"low\":");
    put_known(&line, opening->peak.low);
    PUT(&line, ",\"high\":");
    put_known(&line, opening->peak.high);
    PUT(&line, ",\"certainty\":\"");
    put(&line, opening->peak.certainty, strlen(opening->peak.certainty));
    PUT(&line, "\",\"cpu_user\":");
    put_used(&line, opening, &moment, &self->totals);
    const char *names[] = {",\"read_bytes\":", ",\"write_bytes\":", ",\"read_chars\":", ",\"write_chars\":"};
    for (int index = 0; index < 4; index++) {
        put(&line, names[index], strlen(names[index]));
        if (opening->moved_known)
            put_number(&line, opening->moved[index]);
        else
            PUT(&line, "null");
    }
    put(&line, more, (size_t)rest);
    size_t written = write_line(self, &line, &error, polite);
    release(self);
    if (write_rest(self, &line, written, error)) {
        result = Py_True;
        Py_INCREF(result);
    }
written:
    end_line(&line);
end:
    Py_XDECREF(failure.quoted);
    return result;
}

/* Return a new reference to a number; `None`: unknown. */
static PyObject *known(int64_t number)
{
    if (number == UNKNOWN)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(number);
}

static PyObject *as_tuple(const Peak *peak)
{
    return Py_BuildValue("NNNs", known(peak->peak), known(peak->low), known(peak->high), peak->certainty);
}

static PyObject *boundaries_figures(Boundaries *self, PyObject *const *args, Py_ssize_t given)
{
    if (!expect(given, 1))
        return NULL;
    if (Py_TYPE(args[0]) != self->state->opening_type) {
        PyErr_SetString(PyExc_TypeError, "not an operation that was opened here");
        return NULL;
    }
    const Opening *opening = (Opening *)args[0];
    if (opening->peak.certainty == NULL)
        Py_RETURN_NONE;
    PyObject *moved = Py_None;
    if (opening->moved_known)
        moved = Py_BuildValue("LLLL", (long long)opening->moved[0], (long long)opening->moved[1],
                              (long long)opening->moved[2], (long long)opening->moved[3]);
    else
        Py_INCREF(moved);
    return Py_BuildValue("NNNN", as_tuple(&opening->peak), known(opening->first.rss), known(opening->end), moved);
}

/* Set the journal's descriptor. The lock is held. */
static void set_journal(Boundaries *self, int journal)
{
    struct stat found;
    struct statfs system;
    self->journal = journal;
    self->high = journal >= HIGH;
    self->local = 0;
    self->position = lseek(journal, 0, SEEK_CUR);
    if (fstat(journal, &found) == 0) {
        self->device = found.st_dev;
        self->inode = found.st_ino;
    }
    if (fstatfs(journal, &system) == 0)
        for (size_t index = 0; index < sizeof LOCAL / sizeof *LOCAL; index++)
            self->local = self->local || LOCAL[index] == (uint32_t)system.f_type;
}

static PyObject *boundaries_use(Boundaries *self, PyObject *args)
{
    int kind, reset, size, status, io, journal, per_thread, processors;
    long long own_min, last, error, unseen, own_read, own_written;
    if (!PyArg_ParseTuple(args, "iiiiiiiiLLLLLL", &kind, &reset, &size, &status, &io, &journal, &per_thread,
                          &processors, &own_min, &last, &error, &unseen, &own_read, &own_written))
        return NULL;
    acquire(self);
    self->kind = kind;
    self->reset = reset;
    self->size = size;
    self->status = status;
    self->io = io;
    self->per_thread = per_thread;
    self->processors = processors;
    self->own_min = own_min;
    self->last = last;
    self->error = error;
    self->unseen = larger(self->unseen, unseen);
    self->own_read += own_read;
    self->own_written += own_written;
    self->generation++;
    set_journal(self, journal);
    release(self);
    Py_RETURN_NONE;
}

static PyObject *boundaries_use_journal(Boundaries *self, PyObject *args)
{
    int journal;
    long long written, read;
    if (!PyArg_ParseTuple(args, "iLL", &journal, &written, &read))
        return NULL;
    acquire(self);
    self->own_written += written;
    self->own_read += read;
    set_journal(self, journal);
    release(self);
    Py_RETURN_NONE;
}

static PyObject *boundaries_stop(Boundaries *self, PyObject *unused)
{
    int here = self->forks == forks; /* after a fork, the thread that holds the lock may not exist */
    if (here)
        acquire(self);
    self->stopped = 1;
    give_up(self);
    if (here)
        release(self);
    Py_CLEAR(self->open_again);
    Py_CLEAR(self->write_rest);
    Py_RETURN_NONE;
}

static PyObject *boundaries_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    long long first_id;
    PyObject *open_again, *write_rest, *quote;
    if (!PyArg_ParseTuple(args, "LOOO", &first_id, &open_again, &write_rest, &quote))
        return NULL;
    Boundaries *made = (Boundaries *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made == NULL)
        return NULL;
    made->state = PyType_GetModuleState(type);
    made->forks = forks;
    made->id = first_id;
    made->journal = made->io = -1;
    Py_INCREF(open_again);
    Py_INCREF(write_rest);
    Py_INCREF(quote);
    made->open_again = open_again;
    made->write_rest = write_rest;
    made->quote = quote;
    if ((made->lock = PyThread_allocate_lock()) == NULL) {
        Py_DECREF((PyObject *)made);
        return PyErr_NoMemory();
    }
    return (PyObject *)made;
}

static void boundaries_dealloc(Boundaries *self)
{
    PyTypeObject *type = Py_TYPE(self);
    free(self->sizes.entries);
    free(self->missed.entries);
    Py_XDECREF(self->open_again);
    Py_XDECREF(self->write_rest);
    Py_XDECREF(self->quote);
    if (self->lock != NULL)
        PyThread_free_lock(self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#define FUNCTION(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
#define VARIADIC(name, function) {name, (PyCFunction)(void (*)(void))function, METH_VARARGS, NULL}

static PyMethodDef boundaries_methods[] = {
    FUNCTION("open", boundaries_open),
    FUNCTION("close", boundaries_close),
    FUNCTION("figures", boundaries_figures),
    VARIADIC("use", boundaries_use),
    VARIADIC("use_journal", boundaries_use_journal),
    {"stop", (PyCFunction)boundaries_stop, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef boundaries_members[] = {
    {"generation", T_LONGLONG, offsetof(Boundaries, generation), READONLY, NULL},
    {"number", T_LONGLONG, offsetof(Boundaries, number), READONLY, NULL},
    {"is_local", T_INT, offsetof(Boundaries, local), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot boundaries_slots[] = {
    {Py_tp_new, (void *)boundaries_new},
    {Py_tp_dealloc, (void *)boundaries_dealloc},
    {Py_tp_methods, boundaries_methods},
    {Py_tp_members, boundaries_members},
    {0, NULL},
};

static PyType_Spec boundaries_spec = {
    "otel_memwatch.in_target.operations._native.Boundaries", sizeof(Boundaries), 0, Py_TPFLAGS_DEFAULT, boundaries_slots,
};

/* Reentrant lock. No signal handlers run during a wait for it. */

typedef struct {
    PyObject ob_base;
    PyThread_type_lock lock;
    unsigned long owner; /* thread that holds it, while `count` is not 0 */
    long count;
} Lock;

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    Lock *made = (Lock *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL && (made->lock = PyThread_allocate_lock()) == NULL) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    return (PyObject *)made;
}

static PyObject *lock_enter(Lock *self, PyObject *const *args, Py_ssize_t count)
{
    unsigned long thread = PyThread_get_thread_ident();
    if (self->count == 0 || self->owner != thread) {
        if (!PyThread_acquire_lock(self->lock, NOWAIT_LOCK)) {
            Py_BEGIN_ALLOW_THREADS
            PyThread_acquire_lock(self->lock, WAIT_LOCK);
            Py_END_ALLOW_THREADS
        }
        self->owner = thread;
    }
    self->count++;
    Py_RETURN_NONE;
}

static PyObject *lock_exit(Lock *self, PyObject *const *args, Py_ssize_t count)
{
    if (--self->count == 0)
        PyThread_release_lock(self->lock);
    Py_RETURN_NONE;
}

static void lock_dealloc(Lock *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (self->lock != NULL)
        PyThread_free_lock(self->lock);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef lock_methods[] = {
    FUNCTION("__enter__", lock_enter),
    FUNCTION("__exit__", lock_exit),
    {NULL, NULL, 0, NULL},
};

static PyType_Slot lock_slots[] = {
    {Py_tp_new, (void *)lock_new},
    {Py_tp_dealloc, (void *)lock_dealloc},
    {Py_tp_methods, lock_methods},
    {0, NULL},
};

static PyType_Spec lock_spec = {
    "otel_memwatch.in_target.operations._native.Lock", sizeof(Lock), 0, Py_TPFLAGS_DEFAULT, lock_slots,
};

/* The module. */

/* Expose `judge` to the test that compares it with plain.py. Negative values: unknown. */
static PyObject *judged(PyObject *module, PyObject *args)
{
    Evidence it;
    long long start, end, before, after, inside, missed, error;
    if (!PyArg_ParseTuple(args, "iiiLLLLLLL", &it.own_boundary, &it.resets, &it.foreign, &start, &end,
                          &before, &after, &inside, &missed, &error))
        return NULL;
    it.start = start;
    it.end = end;
    it.before = before;
    it.after = after;
    it.inside = inside;
    it.missed = missed;
    it.error = error;
    Peak peak = judge(&it);
    return as_tuple(&peak);
}

/* Return page faults and largest size of the reaped children, and this process's page faults without them.

   As `plain_mark` in children.py. */
static PyObject *children_mark(PyObject *module, PyObject *unused)
{
    siginfo_t found;
    struct rusage children, own;
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) < 0 || action.sa_handler == SIG_IGN || action.sa_flags & SA_NOCLDWAIT)
        Py_RETURN_NONE;
    if (waitid(P_ALL, 0, &found, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD)
        Py_RETURN_NONE;
    getrusage(RUSAGE_CHILDREN, &children);
    getrusage(RUSAGE_SELF, &own);
    return Py_BuildValue("(LLL)", (long long)children.ru_minflt + children.ru_majflt, children.ru_maxrss * 1024LL,
                         (long long)own.ru_minflt + own.ru_majflt);
}

static PyObject *in_main_interpreter(PyObject *module, PyObject *unused)
{
    return PyBool_FromLong(PyInterpreterState_GetID(PyInterpreterState_Get()) == 0);
}

static PyObject *add_type(PyObject *module, PyType_Spec *spec, const char *name)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type != NULL && PyModule_AddObject(module, name, type) < 0)
        Py_CLEAR(type);
    return type;
}

static int fill(PyObject *module)
{
    static int counts_forks = 0;
    struct timespec tick;
    State *state = PyModule_GetState(module);
    if (!counts_forks)
        counts_forks = pthread_atfork(NULL, NULL, count_fork) == 0;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0)
        long_call = SECOND / 200 + tick.tv_nsec;
    PyObject *shared = Py_BuildValue("dddLLLiiii", BRIEF, LIFE, FILL_RATE, HUGE_PAGE, EXACT_BYTES, FOREIGN_SLACK, EXACT_PARTS, THREAD_PAGES,
                                     IGNORED_FAULTS, HIGH);
    if (shared == NULL || PyModule_AddObject(module, "SHARED", shared) < 0)
        return -1;
    state->opening_type = (PyTypeObject *)add_type(module, &opening_spec, "NativeOpening");
    Py_XINCREF((PyObject *)state->opening_type);
    if (state->opening_type == NULL || add_type(module, &boundaries_spec, "Boundaries") == NULL ||
        add_type(module, &lock_spec, "Lock") == NULL)
        return -1;
    return 0;
}

PyObject *heap_books(PyObject *module, PyObject *threads); /* _heap.c */

static PyMethodDef functions[] = {
    {"children_mark", children_mark, METH_NOARGS, NULL},
    {"heap_books", heap_books, METH_O, NULL},
    {"in_main_interpreter", in_main_interpreter, METH_NOARGS, NULL},
    VARIADIC("judge", judged),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static int visit_types(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    if (state != NULL)
        Py_VISIT(state->opening_type);
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (state != NULL)
        Py_CLEAR(state->opening_type);
    return 0;
}

static void forget(void *module)
{
    clear(module);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", NULL, sizeof(State), functions, slots, visit_types, clear, forget,
};

PyMODINIT_FUNC PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
