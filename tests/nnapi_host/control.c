/* The state of the pretended runtime and the functions by which a test sets and reads it (host_*). */
#include "host.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

Host host = {.lock = PTHREAD_MUTEX_INITIALIZER};

static Object *live_objects;
static int live_counts[KINDS];
static char *log_text, *violation_text;
static size_t log_length, violation_length;
static uint64_t call_count;
static struct {
    char function[96];
    uint64_t countdown; /* 0: not armed */
    int code;
} fault;

static void append(char **text, size_t *length, const char *line) {
    size_t added = strlen(line);
    char *grown = realloc(*text, *length + added + 2);
    if (!grown) abort();
    memcpy(grown + *length, line, added);
    grown[*length + added] = '\n';
    grown[*length + added + 1] = '\0';
    *text = grown;
    *length += added + 1;
}

int host_enter(const char *function, bool fallible, const char *format, ...) {
    if (!host.logging && !fault.countdown) return NO_ERROR; /* the benchmark's path */
    char line[512];
    int used = snprintf(line, sizeof line, "%s(", function);
    va_list arguments;
    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof line - 2) used = (int)sizeof line - 2;
    memcpy(line + used, ")", 2);
    pthread_mutex_lock(&host.lock);
    call_count += fallible;
    int code = NO_ERROR;
    if (fallible && fault.countdown && (!strcmp(fault.function, "*") || !strcmp(fault.function, function)) &&
        --fault.countdown == 0)
        code = fault.code;
    if (host.logging) append(&log_text, &log_length, line);
    pthread_mutex_unlock(&host.lock);
    return code;
}

int host_refuse(const char *function, int code, const char *format, ...) {
    char line[512];
    int used = snprintf(line, sizeof line, "! %s answers %d: ", function, code);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, sizeof line - (size_t)used, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&host.lock);
    if (host.logging) append(&log_text, &log_length, line);
    pthread_mutex_unlock(&host.lock);
    return code;
}

void host_violation(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&host.lock);
    append(&violation_text, &violation_length, line);
    pthread_mutex_unlock(&host.lock);
}

void object_register(void *object, Kind kind) {
    Object *head = object;
    head->kind = kind;
    pthread_mutex_lock(&host.lock);
    head->next = live_objects;
    if (live_objects) live_objects->previous = head;
    live_objects = head;
    live_counts[kind]++;
    pthread_mutex_unlock(&host.lock);
}

/* Without following the pointer, which may be stale. */
static bool is_live(const void *object, Kind kind) {
    for (Object *head = live_objects; head; head = head->next)
        if (head == object) return head->kind == kind;
    return false;
}

bool object_is_live(const void *object, Kind kind) {
    pthread_mutex_lock(&host.lock);
    bool live = is_live(object, kind);
    pthread_mutex_unlock(&host.lock);
    return live;
}

void object_use(void *object) { __atomic_add_fetch(&((Object *)object)->users, 1, __ATOMIC_SEQ_CST); }

void object_release(void *object) { __atomic_sub_fetch(&((Object *)object)->users, 1, __ATOMIC_SEQ_CST); }

bool object_unregister(const char *function, void *object, Kind kind) {
    pthread_mutex_lock(&host.lock);
    bool live = is_live(object, kind);
    int users = live ? ((Object *)object)->users : 0;
    if (live && !users) {
        Object *head = object;
        if (head->previous) head->previous->next = head->next;
        else live_objects = head->next;
        if (head->next) head->next->previous = head->previous;
        live_counts[kind]--;
    }
    pthread_mutex_unlock(&host.lock);
    if (!live) host_violation("%s: freed twice, or never created", function);
    else if (users) host_violation("%s: freed while %d objects still need it", function, users);
    return live && !users;
}

uint64_t host_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void host_sleep(uint64_t nanoseconds) {
    struct timespec left = {.tv_sec = (time_t)(nanoseconds / 1000000000u), .tv_nsec = (long)(nanoseconds % 1000000000u)};
    while (nanoseconds && nanosleep(&left, &left)) {}
}

/* Loaded by a program that knows nothing of host.py (the command line): let the Python that loaded us import it. */
void host_attach_python(void) {
#ifdef HOST_PYTHON
    static bool tried;
    if (host.compute || tried) return;
    tried = true;
    int (*ensure)(void), (*run)(const char *);
    void (*release)(int);
    *(void **)&ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    *(void **)&run = dlsym(RTLD_DEFAULT, "PyRun_SimpleString");
    *(void **)&release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
    Dl_info self;
    if (!ensure || !run || !release || !dladdr((void *)&host_attach_python, &self)) return;
    char script[2048];
    snprintf(script, sizeof script,
             "import sys\nsys.path.append(r'%s')\n"
             "from tests.nnapi_host.host import attach as _attach\n_attach(r'%s')\n",
             HOST_PYTHON, self.dli_fname);
    int state = ensure();
    run(script);
    release(state);
#endif
}

/* ---- For the tests ---- */

EXPORT void host_reset(void) {
    pthread_mutex_lock(&host.lock);
    memset(host.devices, 0, sizeof host.devices);
    host.device_count = 0;
    host.compile_nanoseconds = host.compute_nanoseconds = 0;
    host.mapping = MAPPABLE;
    host.fences = host.logging = host.caches = host.threads = true;
    host.alignment = host.padding = 64;
    memset(&fault, 0, sizeof fault);
    free(log_text);
    free(violation_text);
    log_text = violation_text = NULL;
    log_length = violation_length = 0;
    call_count = 0;
    pthread_mutex_unlock(&host.lock);
}

__attribute__((constructor)) static void start(void) {
    host_reset();
    Device *cpu = &host.devices[host.device_count++];
    strcpy(cpu->name, "nnapi-reference");
    strcpy(cpu->version, "host");
    cpu->type = 2;
    cpu->level = HOST_LEVEL <= 5 ? 26 + HOST_LEVEL : 1000000 + HOST_LEVEL;
    cpu->everything = true;
}

EXPORT int host_add_device(const char *name, int32_t type, const char *version, int64_t level,
                           const int32_t *operations, int32_t operation_count, const char *extension) {
    if (host.device_count == MAX_DEVICES) return -1;
    Device *device = &host.devices[host.device_count];
    snprintf(device->name, sizeof device->name, "%s", name);
    snprintf(device->version, sizeof device->version, "%s", version);
    snprintf(device->extension, sizeof device->extension, "%s", extension ? extension : "");
    device->type = type;
    device->level = level;
    device->everything = operation_count < 0;
    for (int32_t i = 0; i < operation_count; i++)
        if (operations[i] >= 0 && operations[i] < (int32_t)sizeof device->supported)
            device->supported[operations[i]] = 1;
    return (int)host.device_count++;
}

EXPORT void host_set_callbacks(ValidateCallback validate, ComputeCallback compute) {
    host.validate = validate;
    host.compute = compute;
}

EXPORT void host_set_delays(uint64_t compile_nanoseconds, uint64_t compute_nanoseconds) {
    host.compile_nanoseconds = compile_nanoseconds;
    host.compute_nanoseconds = compute_nanoseconds;
}

EXPORT void host_set_mapping(int mapping) { host.mapping = (enum Mapping)mapping; }
EXPORT void host_set_fences(int on) { host.fences = on; }
EXPORT void host_set_caches(int on) { host.caches = on; }
/* Off: what is started is computed before the call returns, so that a benchmark does not measure threads. */
EXPORT void host_set_threads(int on) { host.threads = on; }
EXPORT void host_set_logging(int on) { host.logging = on; }

EXPORT void host_set_preferences(uint32_t alignment, uint32_t padding) {
    host.alignment = alignment;
    host.padding = padding;
}

/* The nth call from now of the function ("*": of any that answers a result code) answers code. nth 0 disarms. */
EXPORT void host_fail(const char *function, uint64_t nth, int code) {
    pthread_mutex_lock(&host.lock);
    snprintf(fault.function, sizeof fault.function, "%s", function);
    fault.countdown = nth;
    fault.code = code;
    pthread_mutex_unlock(&host.lock);
}

EXPORT int host_fault_pending(void) { return fault.countdown != 0; }
EXPORT uint64_t host_calls(void) { return call_count; }
EXPORT int host_live(int kind) { return kind >= 0 && kind < KINDS ? live_counts[kind] : 0; }

/* A text as it is now, for the caller's thread: other threads may append to it, and so move it, at any time. */
static const char *snapshot(char **kept, char *const *text) {
    pthread_mutex_lock(&host.lock);
    free(*kept);
    *kept = strdup(*text ? *text : "");
    pthread_mutex_unlock(&host.lock);
    return *kept ? *kept : "";
}

EXPORT const char *host_log(void) {
    static _Thread_local char *kept;
    return snapshot(&kept, &log_text);
}

EXPORT const char *host_violations(void) {
    static _Thread_local char *kept;
    return snapshot(&kept, &violation_text);
}

EXPORT void host_clear_log(void) {
    pthread_mutex_lock(&host.lock);
    free(log_text);
    log_text = NULL;
    log_length = 0;
    call_count = 0;
    pthread_mutex_unlock(&host.lock);
}

EXPORT void host_clear_violations(void) {
    free(violation_text);
    violation_text = NULL;
    violation_length = 0;
}

EXPORT void *host_hardware_buffer(uint64_t size, int blob) {
    HardwareBuffer *buffer = calloc(1, sizeof *buffer);
    if (!buffer) return NULL;
    *buffer = (HardwareBuffer){HARDWARE_BUFFER_MAGIC, size, blob != 0, calloc(1, size)};
    return buffer;
}

EXPORT void *host_hardware_buffer_data(void *buffer) { return ((HardwareBuffer *)buffer)->data; }

EXPORT void host_hardware_buffer_free(void *buffer) {
    free(((HardwareBuffer *)buffer)->data);
    free(buffer);
}
