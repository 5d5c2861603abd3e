/* A stand-in for libnvidia-ml.so.1: the functions that the product and nvidia-ml-py call, answering from a file.

   The file is named by STANDIN_NVML and read anew at every call, so that a test changes the machine by replacing it.
   One fact a line; words are separated by blanks, blanks inside a value written as "_":

     driver VERSION                       init CODE
     device I uuid= pci= name= total= used= reserved= power= energy= temperature= throttle= corrected= uncorrected=
              gpu= memory= rx= tx= nvrx= nvtx= mig=0|1 accounting=0|1
     mig I J uuid= name= total= used= gi= ci=
     process I pid= used= [list=compute|graphics|mps] [mig=J]
     account I pid= peak= start= running=
     sample I KIND TIMESTAMP VALUE        (KIND: 0 power in mW, 1 GPU, 2 memory)
     event I CODE                         (told once, to an event set that was there before the line)
     fail FUNCTION CODE [I]               (CODE of nvmlReturn_t; every device, or one)
     hang FUNCTION                        (does not return while the line is there)
     log PATH                             (the name of every function called is appended)

   A figure that a device does not have is NOT_SUPPORTED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef unsigned int uint;
typedef unsigned long long u64;
typedef int ret;
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10 };

#define MIG_BASE 1000 /* a handle is index + 1, of an instance MIG_BASE + 100 * card + instance */
#define NONE 0xFFFFFFFFFFFFFFFFULL

static int opened;
static int events_told;

static char *script(void) {
    const char *path = getenv("STANDIN_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char *text = calloc(1, 1 << 16);
    if (file) {
        size_t got = fread(text, 1, (1 << 16) - 2, file);
        text[got] = 0;
        fclose(file);
    }
    return text;
}

/* The n-th line that begins with `head` and a blank; its rest in a static buffer, or NULL. */
static char *line(const char *head, int n) {
    static __thread char found[1024];
    char *text = script(), *at = text, *result = NULL;
    size_t length = strlen(head);
    while (*at) {
        size_t end = strcspn(at, "\n");
        if (!strncmp(at, head, length) && at[length] == ' ' && n-- == 0) {
            snprintf(found, sizeof found, "%.*s ", (int)(end - length - 1), at + length + 1);
            result = found;
            break;
        }
        at += end + (at[end] == '\n');
    }
    free(text);
    return result;
}

static int value(const char *rest, const char *key, char *out, size_t size) {
    char wanted[64];
    const char *at = rest;
    snprintf(wanted, sizeof wanted, "%s=", key);
    while (at && *at) {
        if (!strncmp(at, wanted, strlen(wanted)) && (at == rest || at[-1] == ' ')) {
            at += strlen(wanted);
            snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
            for (char *c = out; *c; c++)
                if (*c == '_') *c = ' ';
            return 1;
        }
        at = strchr(at, ' ');
        if (at) at++;
    }
    return 0;
}

static u64 number(const char *rest, const char *key, u64 otherwise) {
    char text[128];
    return rest && value(rest, key, text, sizeof text) ? strtoull(text, NULL, 0) : otherwise;
}

static int card_of(void *handle) {
    long h = (long)handle;
    return h >= MIG_BASE ? (int)(h - MIG_BASE) / 100 : (int)h - 1;
}
static int instance_of(void *handle) {
    long h = (long)handle;
    return h >= MIG_BASE ? (int)(h - MIG_BASE) % 100 : -1;
}

static char *device(void *handle) {
    char head[64];
    if (instance_of(handle) >= 0)
        snprintf(head, sizeof head, "mig %d %d", card_of(handle), instance_of(handle));
    else
        snprintf(head, sizeof head, "device %d", card_of(handle));
    return line(head, 0);
}

/* Notes the call, hangs or fails as the script says. */
static ret called(const char *function, void *handle) {
    char head[128], *found;
    if ((found = line("log", 0))) {
        found[strcspn(found, " ")] = 0;
        FILE *log = fopen(found, "a");
        if (log) {
            fprintf(log, "%s\n", function);
            fclose(log);
        }
    }
    snprintf(head, sizeof head, "hang %s", function);
    for (;;) {
        char *text = script();
        int hangs = strstr(text, head) != NULL;
        free(text);
        if (!hangs) break;
        usleep(10000);
    }
    snprintf(head, sizeof head, "fail %s", function);
    for (int n = 0; (found = line(head, n)); n++) {
        int code = 0, card = -1;
        sscanf(found, "%d %d", &code, &card);
        if (card < 0 || (handle && card == card_of(handle))) return code;
    }
    if (!opened && strcmp(function, "nvmlInitWithFlags")) return UNINITIALIZED;
    return OK;
}

#define ENTER(handle)                         \
    do {                                      \
        ret code = called(__func__, handle);  \
        if (code) return code;                \
    } while (0)

static ret figure(void *handle, const char *key, u64 *out) {
    u64 got = number(device(handle), key, NONE);
    if (got == NONE) return UNSUPPORTED;
    *out = got;
    return OK;
}
static ret small_figure(void *handle, const char *key, uint *out) {
    u64 got;
    ret code = figure(handle, key, &got);
    if (!code) *out = (uint)got;
    return code;
}
static ret text(void *handle, const char *key, char *out, uint size) {
    char *rest = device(handle);
    return rest && value(rest, key, out, size) ? OK : UNSUPPORTED;
}

ret nvmlInitWithFlags(uint flags) {
    (void)flags;
    ENTER(NULL);
    char *rest = line("init", 0);
    int code = rest ? atoi(rest) : 0;
    if (!code) opened++;
    return code;
}
ret nvmlShutdown(void) {
    ENTER(NULL);
    opened--;
    return OK;
}
const char *nvmlErrorString(ret code) {
    (void)code;
    return "scripted error";
}
ret nvmlSystemGetDriverVersion(char *out, uint size) {
    ENTER(NULL);
    char *rest = line("driver", 0);
    if (!rest) return UNSUPPORTED;
    snprintf(out, size, "%.*s", (int)strcspn(rest, " "), rest);
    return OK;
}
ret nvmlDeviceGetCount_v2(uint *count) {
    ENTER(NULL);
    char head[32];
    for (*count = 0;; ++*count) {
        snprintf(head, sizeof head, "device %u", *count);
        if (!line(head, 0)) return OK;
    }
}
ret nvmlDeviceGetHandleByIndex_v2(uint index, void **handle) {
    *handle = (void *)(long)(index + 1);
    ENTER(*handle);
    return device(*handle) ? OK : INVALID;
}
ret nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char got[128];
    ENTER(NULL);
    for (long h = 1; h < 32; h++)
        if (!text((void *)h, "uuid", got, sizeof got) && !strcmp(got, uuid)) {
            *handle = (void *)h;
            return called("nvmlDeviceGetHandleByUUID", *handle);
        }
    for (int card = 0; card < 8; card++)
        for (int j = 0; j < 8; j++) {
            *handle = (void *)(long)(MIG_BASE + 100 * card + j);
            if (!text(*handle, "uuid", got, sizeof got) && !strcmp(got, uuid)) return OK;
        }
    return NOT_FOUND;
}
ret nvmlDeviceGetUUID(void *handle, char *out, uint size) {
    ENTER(handle);
    return text(handle, "uuid", out, size);
}
ret nvmlDeviceGetName(void *handle, char *out, uint size) {
    ENTER(handle);
    return text(handle, "name", out, size);
}
struct pci { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; };
ret nvmlDeviceGetPciInfo_v3(void *handle, struct pci *out) {
    ENTER(handle);
    memset(out, 0, sizeof *out);
    return text(handle, "pci", out->bus_id, sizeof out->bus_id);
}
ret nvmlDeviceGetMigMode(void *handle, uint *current, uint *pending) {
    ENTER(handle);
    ret code = small_figure(handle, "mig", current);
    *pending = *current;
    return code;
}
ret nvmlDeviceGetMaxMigDeviceCount(void *handle, uint *count) {
    ENTER(handle);
    *count = 7;
    return OK;
}
ret nvmlDeviceGetMigDeviceHandleByIndex(void *card, uint index, void **handle) {
    ENTER(card);
    *handle = (void *)(long)(MIG_BASE + 100 * card_of(card) + index);
    return device(*handle) ? OK : NOT_FOUND;
}
ret nvmlDeviceGetGpuInstanceId(void *handle, uint *id) {
    ENTER(handle);
    return small_figure(handle, "gi", id);
}
ret nvmlDeviceGetComputeInstanceId(void *handle, uint *id) {
    ENTER(handle);
    return small_figure(handle, "ci", id);
}

struct memory { u64 total, free, used; };
struct memory_v2 { uint version; u64 total, reserved, free, used; };
ret nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *out) {
    ENTER(handle);
    ret code = figure(handle, "total", &out->total);
    if (code || (code = figure(handle, "used", &out->used))) return code;
    out->reserved = number(device(handle), "reserved", 0);
    out->free = out->total - out->used - out->reserved;
    return OK;
}
ret nvmlDeviceGetMemoryInfo(void *handle, struct memory *out) {
    ENTER(handle);
    ret code = figure(handle, "total", &out->total);
    if (code || (code = figure(handle, "used", &out->used))) return code;
    out->used += number(device(handle), "reserved", 0);
    out->free = out->total - out->used;
    return OK;
}
struct rates { uint gpu, memory; };
ret nvmlDeviceGetUtilizationRates(void *handle, struct rates *out) {
    ENTER(handle);
    ret code = small_figure(handle, "gpu", &out->gpu);
    return code ? code : small_figure(handle, "memory", &out->memory);
}
ret nvmlDeviceGetPowerUsage(void *handle, uint *out) {
    ENTER(handle);
    return small_figure(handle, "power", out);
}
ret nvmlDeviceGetTotalEnergyConsumption(void *handle, u64 *out) {
    ENTER(handle);
    return figure(handle, "energy", out);
}
ret nvmlDeviceGetTemperature(void *handle, uint sensor, uint *out) {
    (void)sensor;
    ENTER(handle);
    return small_figure(handle, "temperature", out);
}
struct temperature { uint version, sensor; int celsius; };
ret nvmlDeviceGetTemperatureV(void *handle, struct temperature *out) {
    ENTER(handle);
    return small_figure(handle, "temperature", (uint *)&out->celsius);
}
ret nvmlDeviceGetCurrentClocksEventReasons(void *handle, u64 *out) {
    ENTER(handle);
    return figure(handle, "throttle", out);
}
ret nvmlDeviceGetTotalEccErrors(void *handle, uint kind, uint counter, u64 *out) {
    (void)counter;
    ENTER(handle);
    return figure(handle, kind ? "uncorrected" : "corrected", out);
}
union number { double d; uint u; unsigned long ul; u64 ull; };
struct field { uint id, scope; long long stamp, latency; uint type; ret code; union number value; };
ret nvmlDeviceGetFieldValues(void *handle, int count, struct field *fields) {
    ENTER(handle);
    for (int i = 0; i < count; i++) {
        const char *key = fields[i].id == 198 ? "rx" : fields[i].id == 197 ? "tx" : fields[i].id == 139 ? "nvrx" : "nvtx";
        fields[i].type = 3;
        fields[i].code = figure(handle, key, &fields[i].value.ull);
    }
    return OK;
}
struct sample { u64 stamp; union number value; };
ret nvmlDeviceGetSamples(void *handle, uint kind, u64 since, uint *type, uint *count, struct sample *out) {
    char head[64], *rest;
    uint found = 0;
    ENTER(handle);
    snprintf(head, sizeof head, "sample %d %u", card_of(handle), kind);
    if (!line(head, 0)) return UNSUPPORTED;
    *type = 1;
    for (int n = 0; (rest = line(head, n)); n++) {
        struct sample one;
        memset(&one, 0, sizeof one);
        sscanf(rest, "%llu %u", &one.stamp, &one.value.u);
        if (one.stamp <= since) continue;
        if (out && found < *count) out[found] = one;
        found++;
    }
    *count = found;
    return found ? OK : NOT_FOUND;
}

struct process { uint pid; u64 used; uint gi, ci; };
static ret running(void *handle, uint *count, struct process *out, const char *which) {
    char head[32], list[32], *rest;
    uint room = out ? *count : 0, found = 0;
    snprintf(head, sizeof head, "process %d", card_of(handle));
    for (int n = 0; (rest = line(head, n)); n++) {
        if (!value(rest, "list", list, sizeof list)) strcpy(list, "compute");
        if (strcmp(list, which) || (int)number(rest, "mig", -1) != instance_of(handle)) continue;
        if (found < room) out[found] = (struct process){(uint)number(rest, "pid", 0), number(rest, "used", NONE), 0, 0};
        found++;
    }
    *count = found;
    return found > room ? SMALL : OK;
}
ret nvmlDeviceGetComputeRunningProcesses_v3(void *handle, uint *count, struct process *out) {
    ENTER(handle);
    return running(handle, count, out, "compute");
}
ret nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, uint *count, struct process *out) {
    ENTER(handle);
    return running(handle, count, out, "graphics");
}
ret nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, uint *count, struct process *out) {
    ENTER(handle);
    return running(handle, count, out, "mps");
}
ret nvmlDeviceGetAccountingMode(void *handle, uint *mode) {
    ENTER(handle);
    return small_figure(handle, "accounting", mode);
}
ret nvmlDeviceGetAccountingBufferSize(void *handle, uint *size) {
    ENTER(handle);
    *size = 64;
    return OK;
}
ret nvmlDeviceGetAccountingPids(void *handle, uint *count, uint *pids) {
    char head[32], *rest;
    ENTER(handle);
    snprintf(head, sizeof head, "account %d", card_of(handle));
    for (*count = 0; (rest = line(head, *count)); ++*count) pids[*count] = (uint)number(rest, "pid", 0);
    return OK;
}
struct account { uint gpu, memory; u64 peak, time, start; uint running, reserved[5]; };
ret nvmlDeviceGetAccountingStats(void *handle, uint pid, struct account *out) {
    char head[32], *rest;
    ENTER(handle);
    snprintf(head, sizeof head, "account %d", card_of(handle));
    for (int n = 0; (rest = line(head, n)); n++)
        if (number(rest, "pid", 0) == pid) {
            memset(out, 0, sizeof *out);
            out->peak = number(rest, "peak", NONE);
            out->start = number(rest, "start", 0);
            out->running = (uint)number(rest, "running", 0);
            return OK;
        }
    return NOT_FOUND;
}

struct event { void *device; u64 type, data; uint gi, ci; };
ret nvmlEventSetCreate(void **set) {
    ENTER(NULL);
    for (events_told = 0; line("event", events_told); events_told++) {
    }
    *set = &events_told;
    return OK;
}
ret nvmlEventSetFree(void *set) {
    (void)set;
    ENTER(NULL);
    return OK;
}
ret nvmlDeviceRegisterEvents(void *handle, u64 types, void *set) {
    (void)types, (void)set;
    ENTER(handle);
    return OK;
}
ret nvmlEventSetWait_v2(void *set, struct event *out, uint milliseconds) {
    (void)set;
    ENTER(NULL);
    for (uint waited = 0; waited < milliseconds; waited += 10) {
        char *rest = line("event", events_told);
        int card = 0;
        u64 code = 0;
        if (rest && sscanf(rest, "%d %llu", &card, &code) == 2) {
            events_told++;
            *out = (struct event){(void *)(long)(card + 1), 8, code, 0, 0};
            return OK;
        }
        usleep(10000);
    }
    return TIMEOUT;
}
