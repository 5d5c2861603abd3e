/* The system calls and lines of an operation's boundaries, for `boundary.py`, which says what each function does.

   The interpreter's lock is kept: each call takes less than a microsecond, while whoever gives the lock up beside a
   thread that computes gets it back after 5 ms (`sys.getswitchinterval()`). A call that all the same took longer than
   that (a disk that cannot keep up, a huge mapping that is being given back, a thread that had to wait for a processor)
   makes the calls of the next 0.1 s give the lock up, so that other threads do not wait for them; and for twice as long
   each time that another such call follows within a second, up to some ten seconds. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024LL * 1024)
#define SECOND 1000000000LL
#define SHORTEST_TIME (SECOND / 10)
#define LONGEST_TIME (10 * SECOND)

/* All are written with the interpreter's lock held only. */
static int64_t long_call = SECOND / 200; /* the interpreter's switch interval, and a tick of the clock used */
static int64_t polite_time = SHORTEST_TIME;
static int64_t polite_until = 0;

/* How often this process has been forked from another: Python's own hooks see no fork of the C library's. */
static int forks = 0;

static void count_fork(void)
{
    forks++;
}

/* Of each interpreter that has loaded this: objects of one must not get into another. */
typedef struct {
    PyTypeObject *moment_type, *reading_type;
    PyObject *id_name, *trace_name, *span_name, *first_name, *time_name, *number_name, *before_name, *closed_name,
        *closing_name;
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

/* `result = call`, once more where a signal interrupted it; `polite`: without the interpreter's lock. */
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

/* Reading, reset, reading. */

enum { OPENING, CLOSING, OPENING_BESIDE, CLOSING_BESIDE };

typedef struct {
    int64_t before, after; /* bytes */
    double user, system;   /* seconds */
    long minor, major;
    long faults; /* between the readings, where that were more than are ignored */
} Turn;

typedef enum { DONE, BELOW, FAILED } Outcome;

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static Outcome take(Turn *turn, int reset, int kind, int64_t least, int64_t ignored, int polite)
{
    struct rusage before, after;
    getrusage(kind == OPENING ? RUSAGE_THREAD : RUSAGE_SELF, &before);
    turn->before = before.ru_maxrss * 1024LL;
    if (turn->before < least)
        return BELOW;
    ssize_t done;
    CALL(done, pwrite(reset, "5", 1, 0), polite);
    if (done < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return FAILED;
    }
    getrusage(kind == CLOSING ? RUSAGE_THREAD : RUSAGE_SELF, &after);
    turn->after = after.ru_maxrss * 1024LL;
    const struct rusage *used = kind == OPENING || kind == OPENING_BESIDE ? &after : &before;
    turn->user = seconds(used->ru_utime);
    turn->system = seconds(used->ru_stime);
    turn->minor = used->ru_minflt;
    turn->major = used->ru_majflt;
    long faults = kind >= OPENING_BESIDE ? after.ru_minflt - before.ru_minflt : 0;
    turn->faults = faults > ignored ? faults : 0;
    return DONE;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

static int as_descriptor(PyObject *number)
{
    return (int)PyLong_AsLong(number);
}

static PyObject *turn(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    Turn turn;
    if (!expect(count, 4))
        return NULL;
    int reset = as_descriptor(args[0]), kind = (int)PyLong_AsLong(args[1]);
    int64_t least = PyLong_AsLongLong(args[2]), ignored = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred())
        return NULL;
    switch (take(&turn, reset, kind, least, ignored, is_polite())) {
    case FAILED:
        return NULL;
    case BELOW:
        Py_RETURN_NONE;
    default:
        return Py_BuildValue("L(ddll)Ll", turn.before, turn.user, turn.system, turn.minor, turn.major, turn.after,
                             turn.faults);
    }
}

/* Files. */

static PyObject *write_line(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    char *data;
    Py_ssize_t size;
    if (!expect(count, 2))
        return NULL;
    int descriptor = as_descriptor(args[0]);
    if (PyErr_Occurred() || PyBytes_AsStringAndSize(args[1], &data, &size) < 0)
        return NULL;
    ssize_t done;
    CALL(done, write(descriptor, data, (size_t)size), is_polite());
    return done < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(done);
}

static PyObject *read_start(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    char data[4096];
    if (!expect(count, 1))
        return NULL;
    int descriptor = as_descriptor(args[0]);
    if (PyErr_Occurred())
        return NULL;
    ssize_t done;
    CALL(done, pread(descriptor, data, sizeof data, 0), is_polite());
    return done < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyBytes_FromStringAndSize(data, done);
}

/* What `name` says in the text of /proc/self/io; below zero: nothing. */
static int64_t field(const char *text, const char *name)
{
    const char *found = strstr(text, name);
    return found != NULL ? strtoll(found + strlen(name), NULL, 10) : -1;
}

/* Bytes read from and written to storage, bytes passed to read and to write calls. */
typedef struct {
    int64_t stored[2], moved[2];
} Moved;

/* The length of what has been read of /proc/self/io, below zero for an error; `known`: it tells all. */
static ssize_t read_io(int io, Moved *moved, int *known, int polite)
{
    char text[1024];
    ssize_t size;
    CALL(size, pread(io, text, sizeof text - 1, 0), polite);
    text[size > 0 ? size : 0] = 0;
    *moved = (Moved){{field(text, "\nread_bytes: "), field(text, "\nwrite_bytes: ")},
                     {field(text, "rchar: "), field(text, "\nwchar: ")}};
    *known = moved->stored[0] >= 0 && moved->stored[1] >= 0 && moved->moved[0] >= 0 && moved->moved[1] >= 0;
    return size;
}

static PyObject *totals(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct rusage used;
    Moved moved;
    int known = 0;
    if (!expect(count, 3))
        return NULL;
    int io = as_descriptor(args[0]);
    long long own_read = PyLong_AsLongLong(args[1]), own_written = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    ssize_t size = io >= 0 ? read_io(io, &moved, &known, is_polite()) : 0;
    if (size < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    getrusage(RUSAGE_CHILDREN, &used);
    PyObject *children =
        Py_BuildValue("ddll", seconds(used.ru_utime), seconds(used.ru_stime), used.ru_minflt, used.ru_majflt);
    if (!known)
        return Py_BuildValue("nNO", (Py_ssize_t)size, children, Py_None);
    return Py_BuildValue("nN(LLLL)", (Py_ssize_t)size, children, (long long)moved.stored[0],
                         (long long)moved.stored[1], (long long)moved.moved[0] - own_read,
                         (long long)moved.moved[1] - own_written);
}

static PyObject *place(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 1))
        return NULL;
    int descriptor = as_descriptor(args[0]);
    if (PyErr_Occurred())
        return NULL;
    off_t found = lseek(descriptor, 0, SEEK_CUR);
    return found < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLongLong(found);
}

/* File systems of this machine, by the numbers of statfs(2): a write to them goes to the page cache. */
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

static PyObject *is_local(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    struct statfs system;
    if (!expect(count, 1))
        return NULL;
    int descriptor = as_descriptor(args[0]);
    if (PyErr_Occurred())
        return NULL;
    if (fstatfs(descriptor, &system) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    for (size_t index = 0; index < sizeof LOCAL / sizeof *LOCAL; index++)
        if (LOCAL[index] == (uint32_t)system.f_type)
            Py_RETURN_TRUE;
    Py_RETURN_FALSE;
}

/* Lines. */

typedef struct {
    char text[4096]; /* longer than any: a name has 512 characters, a rest `MOST_MORE` */
    size_t size;
} Line;

static void put(Line *line, const char *text, size_t size)
{
    if (size <= sizeof line->text - line->size) {
        memcpy(line->text + line->size, text, size);
        line->size += size;
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "the line is too long");
    }
}

#define MOST_MORE 2048
#define PUT(line, literal) put(line, literal, sizeof literal - 1)

static void put_text(Line *line, PyObject *text)
{
    Py_ssize_t size;
    const char *data = PyUnicode_AsUTF8AndSize(text, &size);
    if (data != NULL)
        put(line, data, (size_t)size);
}

static void put_bytes(Line *line, PyObject *bytes)
{
    char *data;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(bytes, &data, &size) == 0)
        put(line, data, (size_t)size);
}

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

/* With six digits behind the point; not below zero, where no time and no difference of CPU times is. */
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

/* What a boundary saw: the tuple that `watermark.Moment` is, whose parts are made when they are asked for. */

typedef struct {
    PyObject ob_base;
    int64_t segment, rss, doubt;
    double user, system;
    long minor, major;
} Moment;

static Moment *new_moment(const State *state, const Turn *turn, int64_t rss, int64_t doubt)
{
    PyTypeObject *type = state->moment_type;
    Moment *made = (Moment *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made == NULL)
        return NULL;
    made->segment = larger(turn->before, rss);
    made->rss = rss;
    made->doubt = doubt;
    made->user = turn->user;
    made->system = turn->system;
    made->minor = turn->minor;
    made->major = turn->major;
    return made;
}

static Py_ssize_t moment_length(PyObject *self)
{
    return 4;
}

static PyObject *moment_item(PyObject *self, Py_ssize_t index)
{
    const Moment *moment = (Moment *)self;
    switch (index) {
    case 0:
        return PyLong_FromLongLong(moment->segment);
    case 1:
        return PyLong_FromLongLong(moment->rss);
    case 2:
        return Py_BuildValue("ddll", moment->user, moment->system, moment->minor, moment->major);
    case 3:
        return PyLong_FromLongLong(moment->doubt);
    default:
        PyErr_SetString(PyExc_IndexError, "a moment has four parts");
        return NULL;
    }
}

static PyType_Slot moment_slots[] = {
    {Py_sq_length, (void *)moment_length},
    {Py_sq_item, (void *)moment_item},
    {0, NULL},
};

static PyType_Spec moment_spec = {
    "otel_memwatch.in_target.operations._boundary.Moment", sizeof(Moment), 0, Py_TPFLAGS_DEFAULT, moment_slots,
};

/* `counters.Reading`. */

typedef struct {
    PyObject ob_base;
    PyObject *children; /* a tuple, or None */
    double user, system;
    long minor, major; /* what it tells */
    int known;
    Moved moved;
} Reading;

static Reading *new_reading(const State *state, PyObject *children)
{
    PyTypeObject *type = state->reading_type;
    Reading *made = (Reading *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL) {
        Py_INCREF(children);
        made->children = children;
    }
    return made;
}

static PyObject *reading(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 2))
        return NULL;
    Reading *made = new_reading(PyModule_GetState(module), args[0]);
    if (made == NULL)
        return NULL;
    if (args[0] != Py_None)
        PyArg_ParseTuple(args[0], "ddll", &made->user, &made->system, &made->minor, &made->major);
    if (args[1] != Py_None && !PyErr_Occurred()) {
        long long parts[4];
        made->known = PyArg_ParseTuple(args[1], "LLLL", &parts[0], &parts[1], &parts[2], &parts[3]);
        made->moved = (Moved){{parts[0], parts[1]}, {parts[2], parts[3]}};
    }
    if (PyErr_Occurred())
        Py_CLEAR(made);
    return (PyObject *)made;
}

static PyObject *reading_io(PyObject *self, void *unused)
{
    const Moved *moved = &((Reading *)self)->moved;
    if (!((Reading *)self)->known)
        Py_RETURN_NONE;
    return Py_BuildValue("LLLL", (long long)moved->stored[0], (long long)moved->stored[1], (long long)moved->moved[0],
                         (long long)moved->moved[1]);
}

static void reading_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(((Reading *)self)->children);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef reading_members[] = {
    {"children", T_OBJECT, offsetof(Reading, children), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef reading_getters[] = {
    {"io", reading_io, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot reading_slots[] = {
    {Py_tp_dealloc, (void *)reading_dealloc},
    {Py_tp_members, reading_members},
    {Py_tp_getset, reading_getters},
    {0, NULL},
};

static PyType_Spec reading_spec = {
    "otel_memwatch.in_target.operations._boundary.Reading", sizeof(Reading), 0, Py_TPFLAGS_DEFAULT, reading_slots,
};

/* `Segments` of segments.py. */

typedef struct {
    int64_t number, value;
} Entry;

typedef struct {
    Entry *entries;
    size_t size, room;
} Stack;

static int push(Stack *stack, int64_t number, int64_t value)
{
    while (stack->size > 0 && stack->entries[stack->size - 1].value <= value)
        stack->size--;
    if (stack->size == stack->room) {
        size_t room = stack->room ? 2 * stack->room : 64;
        Entry *grown = realloc(stack->entries, room * sizeof *grown);
        if (grown == NULL)
            return 0;
        stack->entries = grown;
        stack->room = room;
    }
    stack->entries[stack->size++] = (Entry){number, value};
    return 1;
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

/* Boundaries. Nothing between the first and the last step of one runs Python code or lets another thread run it: it
   needs no lock, and can leave a boundary to the recorder only as long as nothing has been done. */

typedef struct {
    PyObject ob_base;
    const State *state; /* of the module, which the type of this object keeps */
    int forks;
    long long genuine, last, error, ignored, slack; /* bytes, but `ignored` */
    long long number, open, id;
    long long own_read, written;                 /* bytes */
    long long place, read_before, written_before; /* bytes */
    long long modules;
    double stale; /* seconds */
    int quick, busy, asks, per_thread;
    int reset, journal, size, status, io; /* descriptors */
    PyObject *counted;
    Stack segments, gaps;
} Ledger;

/* As in counters.py, watermark.py, recorder.py and text.py. */
#define BRIEF 10e-6   /* seconds */
#define LIFE 100e-6
#define FILL_RATE 8e9 /* bytes a second */
#define HUGE_PAGE (2 * MIB)
#define THREAD_PAGES 64
#define LARGE_GAP MIB
#define LONGEST_NAME 512

static double seconds_now(void)
{
    return (double)nanoseconds(CLOCK_MONOTONIC) * 1e-9;
}

/* Whether a name is its own JSON text. */
static int is_plain(const char *text, Py_ssize_t size)
{
    for (Py_ssize_t index = 0; index < size; index++)
        if (text[index] < ' ' || text[index] > '~' || text[index] == '"' || text[index] == '\\')
            return 0;
    return size <= LONGEST_NAME;
}

/* The text of a file of /proc; empty where it cannot be read. */
static void read_text(Ledger *ledger, int descriptor, char *text, size_t room)
{
    ssize_t size = pread(descriptor, text, room - 1, 0);
    text[size > 0 ? size : 0] = 0;
    ledger->own_read += size > 0 ? size : 0;
}

/* Resident size after the reset: the watermark where that cannot be an inherited one. */
static int64_t present(Ledger *ledger, int64_t top)
{
    char text[256], *pages;
    if (top >= ledger->genuine)
        return top;
    read_text(ledger, ledger->size, text, sizeof text);
    pages = strchr(text, ' ');
    int64_t size = pages != NULL ? strtoll(pages, NULL, 10) * sysconf(_SC_PAGESIZE) : top;
    return size < top ? size : top;
}

/* As `watermark.local_counter_error`; below zero: not known. That folder has two links and one for each thread. */
static int64_t counter_error(const Ledger *ledger)
{
    struct stat threads;
    if (!ledger->per_thread)
        return ledger->error;
    if (stat("/proc/self/task", &threads) < 0 || threads.st_nlink < 3)
        return -1;
    return THREAD_PAGES * sysconf(_SC_PAGESIZE) * ((int64_t)threads.st_nlink - 2);
}

/* As `Resettable._gap`: how much page faults may have added in so many seconds. */
static int64_t possible_gap(Ledger *ledger, long faults, double elapsed)
{
    char text[4096];
    read_text(ledger, ledger->status, text, sizeof text);
    int64_t page = field(text, "\nThreads:") == 1 ? sysconf(_SC_PAGESIZE) : HUGE_PAGE;
    double filled = elapsed * FILL_RATE * (double)sysconf(_SC_NPROCESSORS_ONLN);
    return (double)faults * (double)page < filled ? faults * page : (int64_t)filled;
}

/* Whether a boundary can be taken at this moment. */
static int is_free(const Ledger *ledger)
{
    return ledger->quick && !ledger->busy && ledger->forks == forks && !is_polite();
}

/* As the recorder's look around, where nothing has changed but the counters of I/O. */
static int look_around(Ledger *ledger, double now)
{
    Moved moved;
    struct rusage used;
    int known;
    Reading *last = (Reading *)ledger->counted;
    if (last == NULL || Py_TYPE(last) != ledger->state->reading_type || ledger->asks ||
        PyDict_Size(PyImport_GetModuleDict()) != ledger->modules ||
        lseek(ledger->journal, 0, SEEK_CUR) != ledger->place + ledger->written)
        return 0;
    getrusage(RUSAGE_CHILDREN, &used);
    if (seconds(used.ru_utime) != last->user || seconds(used.ru_stime) != last->system ||
        used.ru_minflt != last->minor || used.ru_majflt != last->major)
        return 0;
    ssize_t size = read_io(ledger->io, &moved, &known, 0);
    Reading *made = size > 0 && known ? new_reading(ledger->state, last->children) : NULL;
    if (made == NULL) {
        PyErr_Clear();
        return 0;
    }
    moved.moved[0] -= ledger->read_before + ledger->own_read;
    moved.moved[1] -= ledger->written_before + ledger->written + ledger->number;
    ledger->own_read += size;
    made->user = last->user;
    made->system = last->system;
    made->minor = last->minor;
    made->major = last->major;
    made->known = 1;
    made->moved = moved;
    ledger->counted = (PyObject *)made;
    Py_DECREF(last);
    ledger->stale = now + LIFE;
    return 1;
}

/* Take a boundary; `BELOW`: it is not for us, and nothing has been done. */
static Outcome reach(Ledger *ledger, Turn *turn, int kind, int64_t *rss, int64_t *gap)
{
    int64_t least = ledger->genuine;
    if (kind != OPENING)
        least = larger(least, ledger->last - ledger->slack); /* below it somebody else has reset the watermark */
    double began = kind >= OPENING_BESIDE ? seconds_now() : 0;
    Outcome outcome = take(turn, ledger->reset, kind, least, ledger->ignored, 0);
    if (outcome == FAILED) {
        PyErr_Clear(); /* the recorder will meet that again */
        return BELOW;
    }
    if (outcome == DONE) {
        ledger->last = *rss = present(ledger, turn->after);
        *gap = turn->faults > 0 ? possible_gap(ledger, turn->faults, seconds_now() - began) : 0;
        ledger->number++;
    }
    return outcome;
}

static int fold(Ledger *ledger, int64_t segment, int64_t gap)
{
    if (push(&ledger->segments, ledger->number, segment) && (gap == 0 || push(&ledger->gaps, ledger->number, segment + gap)))
        return 1;
    PyErr_NoMemory();
    return 0;
}

static Py_ssize_t record(Ledger *ledger, const Line *line)
{
    ssize_t written;
    CALL(written, write(ledger->journal, line->text, line->size), 0);
    if (written < 0)
        written = 0;
    ledger->written += written;
    return (size_t)written == line->size ? -1 : written;
}

/* An attribute of an operation, put into its line. */
static void put_attribute(Line *line, PyObject *opened, PyObject *name)
{
    PyObject *text = PyObject_GetAttr(opened, name);
    if (text != NULL) {
        put_text(line, text);
        Py_DECREF(text);
    }
}

/* Takes the reference to the value. */
static void set_attribute(PyObject *opened, PyObject *name, PyObject *value)
{
    if (value != NULL && !PyErr_Occurred())
        PyObject_SetAttr(opened, name, value);
    Py_XDECREF(value);
}

static PyObject *ledger_begin(Ledger *ledger, PyObject *const *args, Py_ssize_t count)
{
    Turn turn;
    Line line;
    int64_t rss, gap;
    Py_ssize_t size;
    if (!expect(count, 5))
        return NULL;
    const State *state = ledger->state;
    PyObject *opened = args[0], *parent = args[2], *more = args[4];
    const char *name = PyUnicode_AsUTF8AndSize(args[1], &size);
    if (name == NULL) { /* no Unicode text */
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    long long thread = PyLong_AsLongLong(args[3]);
    Py_ssize_t rest = PyBytes_Size(more);
    if (PyErr_Occurred())
        return NULL;
    int beside = ledger->open > 0;
    double now = seconds_now();
    if (!is_free(ledger) || rest > MOST_MORE || !is_plain(name, size) ||
        (now >= ledger->stale && !look_around(ledger, now)) ||
        reach(ledger, &turn, beside ? OPENING_BESIDE : OPENING, &rss, &gap) != DONE)
        Py_RETURN_NONE;
    double time = seconds_now();
    if (beside && !fold(ledger, larger(turn.before, rss), gap))
        return NULL;
    ledger->open++;
    line.size = 0;
    PUT(&line, "{\"open\":");
    put_number(&line, ++ledger->id);
    PUT(&line, ",\"time\":");
    put_seconds(&line, time);
    PUT(&line, ",\"name\":\"");
    put(&line, name, (size_t)size);
    PUT(&line, "\",\"trace\":\"");
    put_attribute(&line, opened, state->trace_name);
    PUT(&line, "\",\"span\":\"");
    put_attribute(&line, opened, state->span_name);
    if (parent == Py_None) {
        PUT(&line, "\",\"parent\":null");
    } else {
        PUT(&line, "\",\"parent\":\"");
        put_text(&line, parent);
        PUT(&line, "\"");
    }
    PUT(&line, ",\"thread\":");
    put_number(&line, thread);
    PUT(&line, ",\"rss\":");
    put_number(&line, rss);
    PUT(&line, ",\"segment\":");
    put_number(&line, larger(turn.before, rss));
    put_bytes(&line, more);
    Py_ssize_t told = PyErr_Occurred() ? 0 : record(ledger, &line);
    set_attribute(opened, state->id_name, PyLong_FromLongLong(ledger->id));
    set_attribute(opened, state->time_name, PyFloat_FromDouble(time));
    set_attribute(opened, state->number_name, PyLong_FromLongLong(ledger->number));
    set_attribute(opened, state->first_name, (PyObject *)new_moment(state, &turn, rss, gap));
    if (!PyErr_Occurred())
        PyObject_SetAttr(opened, state->before_name, ledger->counted);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(told);
}

/* The number of an operation's opening where it can be closed here, else 0. */
static int64_t open_number(const State *state, PyObject *opened)
{
    int64_t found = 0;
    PyObject *closed = PyObject_GetAttr(opened, state->closed_name), *number = PyObject_GetAttr(opened, state->number_name);
    if (closed == Py_False && number != NULL)
        found = PyLong_AsLongLong(number);
    Py_XDECREF(closed);
    Py_XDECREF(number);
    PyErr_Clear();
    return found;
}

/* Whether the difference of two readings can be told here: children are the recorder's. */
static int has_io(const State *state, PyObject *before, PyObject *after)
{
    const Reading *first = (Reading *)before, *last = (Reading *)after;
    return before == after || (last != NULL && Py_TYPE(last) == state->reading_type && first->children == last->children &&
                               first->known && last->known);
}

static void put_io(Line *line, const Reading *before, const Reading *after)
{
    const Moved *first = &before->moved, *last = &after->moved;
    PUT(line, ",\"read_bytes\":");
    put_number(line, last->stored[0] - first->stored[0]);
    PUT(line, ",\"write_bytes\":");
    put_number(line, last->stored[1] - first->stored[1]);
    PUT(line, ",\"read_chars\":");
    put_number(line, larger(last->moved[0] - first->moved[0], 0));
    PUT(line, ",\"write_chars\":");
    put_number(line, larger(last->moved[1] - first->moved[1], 0));
    PUT(line, "}\n");
}

static PyObject *ledger_finish(Ledger *ledger, PyObject *const *args, Py_ssize_t count)
{
    Turn turn;
    Line line;
    int64_t rss, gap;
    if (!expect(count, 3))
        return NULL;
    const State *state = ledger->state;
    PyObject *opened = args[0], *more = args[2];
    double now = PyFloat_AsDouble(args[1]);
    if (PyErr_Occurred())
        return NULL;
    if (!is_free(ledger) || ledger->number != open_number(ledger->state, opened))
        Py_RETURN_NONE;
    Moment *first = (Moment *)PyObject_GetAttr(opened, state->first_name);
    PyObject *before = PyObject_GetAttr(opened, state->before_name), *after = NULL;
    PyObject *when = PyObject_GetAttr(opened, state->time_name), *result = NULL;
    if (PyErr_Occurred())
        goto end;
    result = Py_None;
    if (Py_TYPE(first) != state->moment_type || Py_TYPE(before) != state->reading_type)
        goto end;
    if (more == Py_None && (now - PyFloat_AsDouble(when) > BRIEF || now >= ledger->stale) && !look_around(ledger, now))
        goto end;
    after = ledger->counted;
    Py_XINCREF(after);
    if (more == Py_None && !has_io(state, before, after))
        goto end;
    int beside = ledger->open > 1;
    int64_t error = counter_error(ledger);
    if (error < 0 || reach(ledger, &turn, beside ? CLOSING_BESIDE : CLOSING, &rss, &gap) != DONE)
        goto end;
    int64_t segment = larger(turn.before, rss);
    if (beside && !fold(ledger, segment, gap)) {
        result = NULL;
        goto end;
    }
    if (--ledger->open == 0)
        ledger->segments.size = ledger->gaps.size = 0; /* nothing that was before now will be asked for */
    int64_t low = larger(segment - error, 0), high = segment + error + gap;
    int exact = (gap <= LARGE_GAP || gap * 64 <= segment) &&
                (!ledger->per_thread || error <= LARGE_GAP || error * 64 <= segment);
    int64_t peak = exact ? segment : low;
    const char *certainty = exact ? "exact" : "interval";
    PyObject *identity = PyObject_GetAttr(opened, state->id_name);
    line.size = 0;
    PUT(&line, "{\"close\":");
    put_number(&line, identity != NULL ? PyLong_AsLongLong(identity) : 0);
    PUT(&line, ",\"time\":");
    put_seconds(&line, now);
    PUT(&line, ",\"status\":\"ok\",\"error\":null,\"rss\":");
    put_number(&line, rss);
    PUT(&line, ",\"segment\":");
    put_number(&line, segment);
    PUT(&line, ",\"peak\":");
    put_number(&line, peak);
    PUT(&line, ",\"low\":");
    put_number(&line, low);
    PUT(&line, ",\"high\":");
    put_number(&line, high);
    PUT(&line, ",\"certainty\":\"");
    put(&line, certainty, strlen(certainty));
    PUT(&line, "\",\"cpu_user\":");
    put_seconds(&line, turn.user - first->user);
    PUT(&line, ",\"cpu_system\":");
    put_seconds(&line, turn.system - first->system);
    PUT(&line, ",\"minor_faults\":");
    put_number(&line, turn.minor - first->minor);
    PUT(&line, ",\"major_faults\":");
    put_number(&line, turn.major - first->major);
    if (more == Py_None)
        put_io(&line, (Reading *)before, (Reading *)after);
    else
        put_bytes(&line, more);
    Py_XDECREF(identity);
    Py_ssize_t told = PyErr_Occurred() ? 0 : record(ledger, &line);
    if (!PyErr_Occurred())
        PyObject_SetAttr(opened, state->closed_name, Py_True);
    /* Making tuples may collect garbage, which runs Python code: all else has been done. */
    set_attribute(opened, state->closing_name,
                  Py_BuildValue("d(LLLs)ONOOO", now, (long long)peak, (long long)low, (long long)high, certainty, first,
                                new_moment(state, &turn, rss, gap), before, after, Py_None));
    result = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(told);
end:
    if (result == Py_None)
        Py_INCREF(result);
    Py_XDECREF(first);
    Py_XDECREF(before);
    Py_XDECREF(after);
    Py_XDECREF(when);
    return result;
}

static PyObject *ledger_fold(Ledger *ledger, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 2))
        return NULL;
    int64_t segment = PyLong_AsLongLong(args[0]), gap = PyLong_AsLongLong(args[1]);
    if (PyErr_Occurred() || !fold(ledger, segment, gap))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *ledger_since(Ledger *ledger, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 1))
        return NULL;
    int64_t number = PyLong_AsLongLong(args[0]);
    if (PyErr_Occurred())
        return NULL;
    int64_t segment = since(&ledger->segments, number), gap = since(&ledger->gaps, number);
    return segment < 0 ? Py_BuildValue("OL", Py_None, (long long)larger(gap, 0))
                       : Py_BuildValue("LL", (long long)segment, (long long)larger(gap, 0));
}

static PyObject *ledger_forget(Ledger *ledger, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 0))
        return NULL;
    ledger->segments.size = ledger->gaps.size = 0;
    Py_RETURN_NONE;
}

static PyObject *ledger_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    Ledger *made = (Ledger *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (made != NULL) {
        made->state = PyType_GetModuleState(type);
        made->forks = forks;
    }
    return (PyObject *)made;
}

static void ledger_dealloc(Ledger *ledger)
{
    PyTypeObject *type = Py_TYPE(ledger);
    free(ledger->segments.entries);
    free(ledger->gaps.entries);
    Py_XDECREF(ledger->counted);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(ledger);
    Py_DECREF(type);
}

#define FUNCTION(name, function) {name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, NULL}
#define MEMBER(name, type) {#name, type, offsetof(Ledger, name), 0, NULL}

static PyMethodDef ledger_methods[] = {
    FUNCTION("begin", ledger_begin), FUNCTION("finish", ledger_finish), FUNCTION("fold", ledger_fold),
    FUNCTION("since", ledger_since), FUNCTION("forget", ledger_forget), {NULL, NULL, 0, NULL},
};

static PyMemberDef ledger_members[] = {
    MEMBER(genuine, T_LONGLONG), MEMBER(last, T_LONGLONG),        MEMBER(error, T_LONGLONG),
    MEMBER(ignored, T_LONGLONG), MEMBER(slack, T_LONGLONG),       MEMBER(number, T_LONGLONG),
    MEMBER(open, T_LONGLONG),    MEMBER(id, T_LONGLONG),          MEMBER(own_read, T_LONGLONG),
    MEMBER(written, T_LONGLONG), MEMBER(place, T_LONGLONG),       MEMBER(read_before, T_LONGLONG),
    MEMBER(modules, T_LONGLONG), MEMBER(written_before, T_LONGLONG), MEMBER(stale, T_DOUBLE),
    MEMBER(quick, T_INT),        MEMBER(busy, T_INT),             MEMBER(asks, T_INT),
    MEMBER(reset, T_INT),        MEMBER(journal, T_INT),          MEMBER(size, T_INT),
    MEMBER(status, T_INT),       MEMBER(io, T_INT),               MEMBER(per_thread, T_INT),
    MEMBER(counted, T_OBJECT),
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot ledger_slots[] = {
    {Py_tp_new, (void *)ledger_new},
    {Py_tp_dealloc, (void *)ledger_dealloc},
    {Py_tp_methods, ledger_methods},
    {Py_tp_members, ledger_members},
    {0, NULL},
};

static PyType_Spec ledger_spec = {
    "otel_memwatch.in_target.operations._boundary.Ledger", sizeof(Ledger), 0, Py_TPFLAGS_DEFAULT, ledger_slots,
};

/* A lock that one thread may take several times. It is waited for without running signal handlers. */

typedef struct {
    PyObject ob_base;
    PyThread_type_lock lock;
    unsigned long owner; /* a thread, while `count` is not 0 */
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
    "otel_memwatch.in_target.operations._boundary.Lock", sizeof(Lock), 0, Py_TPFLAGS_DEFAULT, lock_slots,
};

/* The module. */

static PyObject *in_main_interpreter(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    if (!expect(count, 0))
        return NULL;
    return PyBool_FromLong(PyInterpreterState_GetID(PyInterpreterState_Get()) == 0);
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
    state->id_name = PyUnicode_InternFromString("id");
    state->trace_name = PyUnicode_InternFromString("trace");
    state->span_name = PyUnicode_InternFromString("span");
    state->first_name = PyUnicode_InternFromString("first");
    state->time_name = PyUnicode_InternFromString("time");
    state->number_name = PyUnicode_InternFromString("number");
    state->before_name = PyUnicode_InternFromString("before");
    state->closed_name = PyUnicode_InternFromString("closed");
    state->closing_name = PyUnicode_InternFromString("closing");
    state->moment_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &moment_spec, NULL);
    state->reading_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &reading_spec, NULL);
    PyObject *shared = Py_BuildValue("dddLLii", BRIEF, LIFE, FILL_RATE, HUGE_PAGE, LARGE_GAP, THREAD_PAGES,
                                     LONGEST_NAME);
    if (shared == NULL || PyModule_AddObject(module, "SHARED", shared) < 0)
        return -1;
    PyObject *ledger = PyType_FromModuleAndSpec(module, &ledger_spec, NULL);
    if (ledger == NULL || PyErr_Occurred() || PyModule_AddObject(module, "Ledger", ledger) < 0)
        return -1;
    PyObject *lock = PyType_FromModuleAndSpec(module, &lock_spec, NULL);
    if (lock == NULL || PyModule_AddObject(module, "Lock", lock) < 0)
        return -1;
    return 0;
}

static PyMethodDef functions[] = {
    FUNCTION("turn", turn),
    FUNCTION("totals", totals),
    FUNCTION("reading", reading),
    FUNCTION("write_line", write_line),
    FUNCTION("read_start", read_start),
    FUNCTION("place", place),
    FUNCTION("in_main_interpreter", in_main_interpreter),
    FUNCTION("is_local", is_local),
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
    {0, NULL},
};

static int visit_types(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    if (state != NULL) {
        Py_VISIT(state->moment_type);
        Py_VISIT(state->reading_type);
    }
    return 0;
}

static int clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    if (state != NULL) {
        Py_CLEAR(state->moment_type);
        Py_CLEAR(state->reading_type);
    }
    return 0;
}

static void release(void *module)
{
    State *state = PyModule_GetState(module);
    if (state == NULL)
        return;
    clear(module);
    PyObject *names[] = {state->id_name,     state->trace_name,  state->span_name,   state->first_name,  state->time_name,
                         state->number_name, state->before_name, state->closed_name, state->closing_name};
    for (size_t index = 0; index < sizeof names / sizeof *names; index++)
        Py_XDECREF(names[index]);
}

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_boundary", NULL, sizeof(State), functions, slots, visit_types, clear, release,
};

PyMODINIT_FUNC PyInit__boundary(void)
{
    return PyModuleDef_Init(&definition);
}
