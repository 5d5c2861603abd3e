/* Repeated samples in C. repeated.py is the specification; a test drives both.

   A wake-up finds all caches cold, so most of a sample's cost is the interpreter's own code and data. This loop waits,
   compares files and writes the line without them, and without the interpreter's lock. */

#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
#define LARGEST_FILE 16384
#define MOST_PARTS 8
#define LONGEST_TIME 64 /* characters of a time, with its bracket */

typedef struct {
    const char *data;
    Py_ssize_t size;
} Bytes;

/* A file that must stay as it is. Its bytes belong to Python objects that outlive the loop. */
typedef struct {
    int descriptor;
    int count; /* of parts; 0: the content is parts[0] */
    Bytes parts[MOST_PARTS];
    double next, every;
    char *content; /* last one read, if it has parts */
    Py_ssize_t length; /* -1: not read */
} File;

typedef struct {
    double deadline, interval, until, longest_reading;
    int alarm, output;
    Bytes text;
    File *files;
    Py_ssize_t file_count;
    double *times;
    Py_ssize_t count, most;
    double reading;
    char line[LONGEST_TIME];
    Py_ssize_t line_length, unwritten; /* unwritten: bytes at the end of the last line */
} Loop;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)(time.tv_sec * SECOND + time.tv_nsec) / 1e9;
}

/* Wait until the deadline; return 0 if the alarm rings before. */
static int wait_for(const Loop *loop)
{
    struct pollfd alarm = {loop->alarm, POLLIN, 0};
    for (;;) {
        double left = loop->deadline - now();
        if (left < 0)
            left = 0;
        struct timespec timeout = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
        int found = ppoll(&alarm, 1, &timeout, NULL);
        if (found == 0)
            return now() >= loop->deadline ? 1 : -1;
        if (found > 0 || errno != EINTR)
            return 0;
    }
}

static int has_parts(const File *file)
{
    const char *at = file->content, *end = file->content + file->length;
    for (int i = 0; i < file->count; i++) {
        const Bytes *part = &file->parts[i];
        at = memmem(at, (size_t)(end - at), part->data, (size_t)part->size);
        if (at == NULL)
            return 0;
        at += part->size - 1; /* the newline at the end of a part may begin the next one */
    }
    return 1;
}

static int is_same(File *file, double time)
{
    char data[LARGEST_FILE];
    if (time < file->next)
        return 1;
    file->next = time + file->every;
    if (file->count) {
        file->length = pread(file->descriptor, file->content, LARGEST_FILE, 0);
        return file->length >= 0 && has_parts(file);
    }
    const Bytes *whole = &file->parts[0];
    if (whole->size >= LARGEST_FILE)
        return 0;
    return pread(file->descriptor, data, (size_t)whole->size + 1, 0) == whole->size &&
           memcmp(data, whole->data, (size_t)whole->size) == 0;
}

/* The text that Python's `round(time, 4)` has: without zeros at its end, but with one decimal. With cold caches printf takes
   10 us. So it formats only times within 0.1 us of the middle between two texts: the double may be on either side of it. */
static void format_time(Loop *loop, double time)
{
    long long nanoseconds = (long long)(time * 1e9), rest = nanoseconds % 100000, value = (nanoseconds + 50000) / 100000;
    int decimals = 4, length = LONGEST_TIME;
    if (rest > 49900 && rest < 50100) {
        length = snprintf(loop->line, LONGEST_TIME, "[%.4f", time);
        while (loop->line[length - 1] == '0' && loop->line[length - 2] != '.')
            length--;
        loop->line_length = length;
        return;
    }
    for (; decimals > 1 && value % 10 == 0; decimals--)
        value /= 10;
    for (; decimals >= 0 || value; decimals--) {
        if (decimals == 0)
            loop->line[--length] = '.';
        loop->line[--length] = (char)('0' + value % 10);
        value /= 10;
    }
    loop->line[--length] = '[';
    loop->line_length = LONGEST_TIME - length;
    memmove(loop->line, loop->line + length, (size_t)loop->line_length);
}

static void take_samples(Loop *loop)
{
    while (loop->count < loop->most && loop->deadline < loop->until) {
        int waited = wait_for(loop);
        if (waited < 0)
            continue;
        double time = now();
        if (!waited || time >= loop->until || time >= loop->deadline + loop->interval)
            return;
        for (Py_ssize_t i = 0; i < loop->file_count; i++)
            if (!is_same(&loop->files[i], time))
                return;
        double took = now() - time;
        if (took > loop->longest_reading)
            return;
        format_time(loop, time);
        struct iovec line[] = {{loop->line, (size_t)loop->line_length}, {(void *)loop->text.data, (size_t)loop->text.size}};
        ssize_t written = writev(loop->output, line, 2);
        loop->reading += took;
        loop->times[loop->count++] = time;
        loop->deadline += loop->interval;
        loop->unwritten = loop->line_length + loop->text.size - (written < 0 ? 0 : written);
        if (loop->unwritten)
            return;
    }
}

/* Fill in a file from (descriptor, parts, whole, next, every); return 0 with an exception on failure. */
static int read_file(PyObject *item, File *file)
{
    PyObject *parts;
    int whole;
    if (!PyArg_ParseTuple(item, "iO!pdd", &file->descriptor, &PyTuple_Type, &parts, &whole, &file->next, &file->every))
        return 0;
    Py_ssize_t count = PyTuple_Size(parts);
    if (count < 1 || count > MOST_PARTS) {
        PyErr_SetString(PyExc_ValueError, "a file has too many parts, or none");
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        char *data;
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(parts, i), &data, &file->parts[i].size) < 0)
            return 0;
        file->parts[i].data = data;
        if (!file->parts[i].size && !whole) {
            PyErr_SetString(PyExc_ValueError, "a part is empty");
            return 0;
        }
    }
    file->length = -1;
    file->count = whole ? 0 : (int)count;
    if (!whole && (file->content = malloc(LARGEST_FILE)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    return 1;
}

static PyObject *result_of(const Loop *loop)
{
    PyObject *times = PyList_New(loop->count), *contents = PyList_New(loop->file_count), *result = NULL;
    PyObject *unwritten = PyBytes_FromStringAndSize(NULL, loop->unwritten);
    if (times == NULL || contents == NULL || unwritten == NULL)
        goto done;
    for (Py_ssize_t i = 0; i < loop->count; i++) {
        PyObject *time = PyFloat_FromDouble(loop->times[i]);
        if (time == NULL || PyList_SetItem(times, i, time) < 0)
            goto done;
    }
    for (Py_ssize_t i = 0; i < loop->file_count; i++) {
        const File *file = &loop->files[i];
        PyObject *content = Py_None;
        if (file->length >= 0 && file->count)
            content = PyBytes_FromStringAndSize(file->content, file->length);
        else
            Py_INCREF(content);
        if (content == NULL || PyList_SetItem(contents, i, content) < 0)
            goto done;
    }
    if (loop->unwritten) {
        char *rest = PyBytes_AsString(unwritten);
        Py_ssize_t of_text = loop->unwritten < loop->text.size ? loop->unwritten : loop->text.size;
        Py_ssize_t of_line = loop->unwritten - of_text;
        memcpy(rest, loop->line + loop->line_length - of_line, (size_t)of_line);
        memcpy(rest + of_line, loop->text.data + loop->text.size - of_text, (size_t)of_text);
    }
    result = Py_BuildValue("OddOO", times, loop->deadline, loop->reading, contents, unwritten);
done:
    Py_XDECREF(times);
    Py_XDECREF(contents);
    Py_XDECREF(unwritten);
    return result;
}

static PyObject *take_repeated(PyObject *module, PyObject *args)
{
    Loop loop = {0};
    PyObject *files, *result = NULL;
    (void)module;
    if (!PyArg_ParseTuple(args, "ddddiiy#O!n", &loop.deadline, &loop.interval, &loop.until, &loop.longest_reading, &loop.alarm,
                          &loop.output, &loop.text.data, &loop.text.size, &PyTuple_Type, &files, &loop.most))
        return NULL;
    loop.file_count = PyTuple_Size(files);
    loop.files = calloc((size_t)loop.file_count + 1, sizeof(File));
    loop.times = calloc((size_t)loop.most + 1, sizeof(double));
    if (loop.files == NULL || loop.times == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < loop.file_count; i++)
        if (!read_file(PyTuple_GetItem(files, i), &loop.files[i]))
            goto done;
    Py_BEGIN_ALLOW_THREADS
    take_samples(&loop);
    Py_END_ALLOW_THREADS
    result = result_of(&loop);
done:
    for (Py_ssize_t i = 0; loop.files != NULL && i < loop.file_count; i++)
        free(loop.files[i].content);
    free(loop.files);
    free(loop.times);
    return result;
}

static PyMethodDef functions[] = {
    {"take_repeated", take_repeated, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_repeated", NULL, 0, functions, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__repeated(void)
{
    return PyModuleDef_Init(&definition);
}
