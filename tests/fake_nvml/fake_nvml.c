/* A small stand-in for libnvidia-ml.so.1, driven by the text file that SPECPLAN_FAKE_NVML names.
 *
 * One statement a line, words separated by blanks, '~' stands for a blank inside a value:
 *   system  driver=580.65.06 nvml=13.580.65.06 cuda=13000
 *   gpu     uuid=.. name=.. total=.. [used=..] [reserved=..] [free=..] [cc=9.0] [mig=on|off]
 *           [sm=1980] [max_sm=1980] [slowed=4]                                     (MHz, and the bits of the reasons)
 *   slice   gpu=0 uuid=.. name=.. total=.. [used=..] [reserved=..] [free=..]       (a MIG instance of that GPU)
 *   process gpu=0 [slice=0] pid=.. [used=..] [kind=compute|graphics] [name=..]     (no used: not available)
 *   fail    call=nvmlDeviceGetName code=3 [gpu=0] [slice=0]                        (no gpu: for every handle)
 *   hang    call=nvmlInitWithFlags seconds=60
 * "free" overrides the figure that follows from the others; sizes are bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, BAD_VERSION = 25 };
enum { MAX_DEVICES = 32, MAX_PROCESSES = 64, MAX_RULES = 64 };
static const unsigned long long NOT_AVAILABLE = ~0ULL;

struct device {
    int gpu, slice, has_mig, mig_on, major, minor, free_given;
    char uuid[96], name[96];
    unsigned long long total, used, reserved, free, slowed;
    unsigned sm, max_sm;
};
struct process {
    int gpu, slice, graphics;
    unsigned pid;
    char name[96];
    unsigned long long used;
};
struct rule {
    char call[64];
    int code, gpu, slice, seconds;
};
struct memory_v1 { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process_info { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

static struct device devices[MAX_DEVICES];
static struct process processes[MAX_PROCESSES];
static struct rule rules[MAX_RULES];
static int device_count, gpu_count, process_count, rule_count, started;
static char driver_version[64], nvml_version[64];
static int cuda_version;

/* Copies the value of key=value from a line; answers whether the key is there. */
static int text_value(const char *line, const char *key, char *out, size_t size) {
    size_t length = strlen(key);
    for (const char *at = strstr(line, key); at; at = strstr(at + 1, key)) {
        if (at[-1] != ' ' || at[length] != '=') continue;
        size_t n = 0;
        for (at += length + 1; *at && *at != ' ' && *at != '\n' && n + 1 < size; at++) out[n++] = *at == '~' ? ' ' : *at;
        out[n] = 0;
        return 1;
    }
    return 0;
}

static unsigned long long number_value(const char *line, const char *key, unsigned long long missing) {
    char text[96];
    return text_value(line, key, text, sizeof text) ? strtoull(text, NULL, 10) : missing;
}

static void read_device(const char *line, int is_slice) {
    struct device *d = &devices[device_count++];
    char text[96];
    memset(d, 0, sizeof *d);
    d->slice = -1;
    if (is_slice) {
        d->gpu = (int)number_value(line, "gpu", 0);
        for (int i = 0; i < device_count - 1; i++)
            if (devices[i].gpu == d->gpu) d->slice = devices[i].slice + 1;
    } else {
        d->gpu = gpu_count++;
    }
    text_value(line, "uuid", d->uuid, sizeof d->uuid);
    text_value(line, "name", d->name, sizeof d->name);
    d->total = number_value(line, "total", 0);
    d->used = number_value(line, "used", 0);
    d->reserved = number_value(line, "reserved", 0);
    d->free_given = text_value(line, "free", text, sizeof text);
    d->free = number_value(line, "free", d->total - d->used - d->reserved);
    d->sm = (unsigned)number_value(line, "sm", 1980);
    d->max_sm = (unsigned)number_value(line, "max_sm", 1980);
    d->slowed = number_value(line, "slowed", 0);
    d->major = 9;
    if (text_value(line, "cc", text, sizeof text)) sscanf(text, "%d.%d", &d->major, &d->minor);
    d->has_mig = text_value(line, "mig", text, sizeof text);
    d->mig_on = d->has_mig && !strcmp(text, "on");
}

static void read_process(const char *line) {
    struct process *p = &processes[process_count++];
    char text[96];
    memset(p, 0, sizeof *p);
    p->gpu = (int)number_value(line, "gpu", 0);
    p->slice = (int)number_value(line, "slice", (unsigned long long)-1);
    p->pid = (unsigned)number_value(line, "pid", 0);
    p->used = number_value(line, "used", NOT_AVAILABLE);
    p->graphics = text_value(line, "kind", text, sizeof text) && !strcmp(text, "graphics");
    text_value(line, "name", p->name, sizeof p->name);
}

static void read_rule(const char *line) {
    struct rule *r = &rules[rule_count++];
    memset(r, 0, sizeof *r);
    text_value(line, "call", r->call, sizeof r->call);
    r->code = (int)number_value(line, "code", 0);
    r->gpu = (int)number_value(line, "gpu", (unsigned long long)-1);
    r->slice = (int)number_value(line, "slice", (unsigned long long)-1);
    r->seconds = (int)number_value(line, "seconds", 0);
}

static void load(void) {
    const char *path = getenv("SPECPLAN_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    device_count = gpu_count = process_count = rule_count = 0;
    strcpy(driver_version, "580.65.06");
    strcpy(nvml_version, "13.580.65.06");
    cuda_version = 13000;
    while (file && fgets(line, sizeof line, file)) {
        if (!strncmp(line, "gpu ", 4) && device_count < MAX_DEVICES) read_device(line, 0);
        if (!strncmp(line, "slice ", 6) && device_count < MAX_DEVICES) read_device(line, 1);
        if (!strncmp(line, "process ", 8) && process_count < MAX_PROCESSES) read_process(line);
        if ((!strncmp(line, "fail ", 5) || !strncmp(line, "hang ", 5)) && rule_count < MAX_RULES) read_rule(line);
        if (!strncmp(line, "system ", 7)) {
            text_value(line, "driver", driver_version, sizeof driver_version);
            text_value(line, "nvml", nvml_version, sizeof nvml_version);
            cuda_version = (int)number_value(line, "cuda", 13000);
        }
    }
    if (file) fclose(file);
}

static int rule_for(const char *call, int gpu, int slice) {
    for (int i = 0; i < rule_count; i++) {
        struct rule *r = &rules[i];
        if (strcmp(r->call, call)) continue;
        if (r->gpu >= 0 && (r->gpu != gpu || r->slice != slice)) continue;
        if (r->seconds) sleep((unsigned)r->seconds);
        return r->code;
    }
    return SUCCESS;
}

#define CHECK(gpu, slice)                                      \
    do {                                                       \
        int code_ = rule_for(__func__, (gpu), (slice));        \
        if (code_) return code_;                               \
        if (!started) return UNINITIALIZED;                    \
    } while (0)
#define CHECK_DEVICE(d) CHECK((d)->gpu, (d)->slice)

static int put_text(char *out, unsigned size, const char *text) {
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    load();
    int code = rule_for(__func__, -1, -1);
    started = !code;
    return code;
}
int nvmlShutdown(void) {
    started = 0;
    return SUCCESS;
}
const char *nvmlErrorString(int code) {
    (void)code;
    return "an error of the stand-in library";
}
int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    CHECK(-1, -1);
    return put_text(out, size, driver_version);
}
int nvmlSystemGetNVMLVersion(char *out, unsigned size) {
    CHECK(-1, -1);
    return put_text(out, size, nvml_version);
}
int nvmlSystemGetCudaDriverVersion_v2(int *out) {
    CHECK(-1, -1);
    *out = cuda_version;
    return SUCCESS;
}
int nvmlSystemGetProcessName(unsigned pid, char *out, unsigned size) {
    CHECK(-1, -1);
    for (int i = 0; i < process_count; i++)
        if (processes[i].pid == pid && processes[i].name[0]) return put_text(out, size, processes[i].name);
    return NOT_FOUND;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    CHECK(-1, -1);
    *out = (unsigned)gpu_count;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct device **out) {
    CHECK((int)index, -1);
    for (int i = 0; i < device_count; i++) {
        if (devices[i].slice >= 0 || devices[i].gpu != (int)index) continue;
        *out = &devices[i];
        return SUCCESS;
    }
    return INVALID_ARGUMENT;
}
int nvmlDeviceGetName(struct device *d, char *out, unsigned size) {
    CHECK_DEVICE(d);
    return put_text(out, size, d->name);
}
int nvmlDeviceGetUUID(struct device *d, char *out, unsigned size) {
    CHECK_DEVICE(d);
    return put_text(out, size, d->uuid);
}
int nvmlDeviceGetMemoryInfo(struct device *d, struct memory_v1 *out) {
    CHECK_DEVICE(d);
    out->total = d->total;
    out->free = d->free;
    out->used = d->used == NOT_AVAILABLE ? d->used : d->used + d->reserved; /* as the real one: no reserve of its own */
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(struct device *d, struct memory_v2 *out) {
    CHECK_DEVICE(d);
    if (out->version != 0x02000028) return BAD_VERSION;
    out->total = d->total;
    out->reserved = d->reserved;
    out->free = d->free;
    out->used = d->used;
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(struct device *d, int *major, int *minor) {
    CHECK_DEVICE(d);
    *major = d->major;
    *minor = d->minor;
    return SUCCESS;
}
int nvmlDeviceGetClockInfo(struct device *d, int type, unsigned *out) {
    CHECK_DEVICE(d);
    if (type != 1) return INVALID_ARGUMENT;
    *out = d->sm;
    return SUCCESS;
}
int nvmlDeviceGetMaxClockInfo(struct device *d, int type, unsigned *out) {
    CHECK_DEVICE(d);
    if (type != 1) return INVALID_ARGUMENT;
    *out = d->max_sm;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksEventReasons(struct device *d, unsigned long long *out) {
    CHECK_DEVICE(d);
    *out = d->slowed;
    return SUCCESS;
}
int nvmlDeviceGetMigMode(struct device *d, unsigned *current, unsigned *pending) {
    CHECK_DEVICE(d);
    if (!d->has_mig) return NOT_SUPPORTED;
    *current = *pending = (unsigned)d->mig_on;
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(struct device *d, unsigned *out) {
    CHECK_DEVICE(d);
    *out = d->has_mig ? 7 : 0;
    return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(struct device *d, unsigned index, struct device **out) {
    CHECK(d->gpu, (int)index);
    for (int i = 0; i < device_count; i++) {
        if (devices[i].gpu != d->gpu || devices[i].slice != (int)index) continue;
        *out = &devices[i];
        return SUCCESS;
    }
    return NOT_FOUND;
}

static int list_processes(struct device *d, int graphics, unsigned *count, struct process_info *out) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < process_count; i++) {
        struct process *p = &processes[i];
        if (p->gpu != d->gpu || p->slice != d->slice || p->graphics != graphics) continue;
        if (out && found < room) out[found] = (struct process_info){p->pid, p->used, ~0U, ~0U};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
int nvmlDeviceGetComputeRunningProcesses_v3(struct device *d, unsigned *count, struct process_info *out) {
    CHECK_DEVICE(d);
    return list_processes(d, 0, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(struct device *d, unsigned *count, struct process_info *out) {
    CHECK_DEVICE(d);
    return list_processes(d, 1, count, out);
}
int nvmlDeviceGetComputeRunningProcesses_v2(struct device *d, unsigned *count, struct process_info *out) {
    CHECK_DEVICE(d);
    return list_processes(d, 0, count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v2(struct device *d, unsigned *count, struct process_info *out) {
    CHECK_DEVICE(d);
    return list_processes(d, 1, count, out);
}
