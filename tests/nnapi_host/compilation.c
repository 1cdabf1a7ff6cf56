/* Devices and ANeuralNetworksCompilation. */
#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_LOOP_NANOSECONDS 2000000000ull
#define MAXIMUM_LOOP_NANOSECONDS 15000000000ull

int device_index(const void *device) {
    const Device *found = device;
    return found >= host.devices && found < host.devices + host.device_count ? (int)(found - host.devices) : -1;
}

#define REQUIRE_DEVICE(device) REQUIRE(device_index(device) >= 0, BAD_DATA, "%p is no device", (const void *)(device))

SINCE_3 int ANeuralNetworks_getDeviceCount(uint32_t *count) {
    ENTER("%p", (void *)count);
    REQUIRE(count, UNEXPECTED_NULL, "numDevices is null");
    *count = host.device_count;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworks_getDevice(uint32_t index, Device **device) {
    ENTER("%u", index);
    REQUIRE(device, UNEXPECTED_NULL, "device is null");
    REQUIRE(index < host.device_count, BAD_DATA, "device %u of %u", index, host.device_count);
    *device = &host.devices[index];
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksDevice_getName(const Device *device, const char **name) {
    ENTER("%p", (const void *)device);
    REQUIRE(device && name, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_DEVICE(device);
    *name = device->name;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksDevice_getType(const Device *device, int32_t *type) {
    ENTER("%p", (const void *)device);
    REQUIRE(device && type, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_DEVICE(device);
    *type = device->type;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksDevice_getVersion(const Device *device, const char **version) {
    ENTER("%p", (const void *)device);
    REQUIRE(device && version, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_DEVICE(device);
    *version = device->version;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksDevice_getFeatureLevel(const Device *device, int64_t *level) {
    ENTER("%p", (const void *)device);
    REQUIRE(device && level, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_DEVICE(device);
    *level = device->level;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksDevice_wait(const Device *device) {
    ENTER("%p", (const void *)device);
    REQUIRE(device, UNEXPECTED_NULL, "device is null");
    REQUIRE_DEVICE(device);
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksDevice_getExtensionSupport(const Device *device, const char *name, bool *supported) {
    ENTER("%p, %s", (const void *)device, name ? name : "null");
    REQUIRE(device && name && supported, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_DEVICE(device);
    *supported = device->extension[0] && !strcmp(device->extension, name);
    return NO_ERROR;
}

bool device_supports(uint32_t device, const ModelData *model, uint32_t operation) {
    int32_t type = model->operations[operation].type;
    return host.devices[device].everything ||
           (type < (int32_t)sizeof host.devices[device].supported && host.devices[device].supported[type]);
}

static int check_devices(const char *function, const Device *const *devices, uint32_t count) {
    if (!count || count > MAX_DEVICES) return host_refuse(function, BAD_DATA, "%u devices", count);
    for (uint32_t i = 0; i < count; i++) {
        if (!devices[i]) return host_refuse(function, UNEXPECTED_NULL, "device %u is null", i);
        if (device_index(devices[i]) < 0) return host_refuse(function, BAD_DATA, "device %u is none", i);
        for (uint32_t j = 0; j < i; j++)
            if (devices[i] == devices[j]) return host_refuse(function, BAD_DATA, "a device twice");
    }
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksModel_getSupportedOperationsForDevices(Model *model, const Device *const *devices,
                                                                  uint32_t count, bool *supported) {
    ENTER("%p, %u devices", (void *)model, count);
    REQUIRE(model && devices && supported, UNEXPECTED_NULL, "an argument is null");
    int code = check_devices(__func__, devices, count);
    if (code) return code;
    REQUIRE_LIVE(model, MODEL);
    REQUIRE(model->finished && !model->invalid, BAD_STATE, "the model is not finished");
    for (uint32_t i = 0; i < model->data.operation_count; i++) {
        supported[i] = false;
        for (uint32_t j = 0; j < count; j++)
            supported[i] |= device_supports((uint32_t)device_index(devices[j]), &model->data, i);
    }
    return NO_ERROR;
}

static int create(const char *function, Model *model, const Device *const *devices, uint32_t count,
                  Compilation **compilation) {
    if (!model->finished || model->invalid) return host_refuse(function, BAD_STATE, "the model is not finished");
    Compilation *created = calloc(1, sizeof *created);
    if (!created) return OUT_OF_MEMORY;
    created->model = model;
    created->device_count = count;
    for (uint32_t i = 0; i < count; i++) created->devices[i] = (uint32_t)device_index(devices[i]);
    object_use(model);
    object_register(created, COMPILATION);
    *compilation = created;
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksCompilation_create(Model *model, Compilation **compilation) {
    if (compilation) *compilation = NULL;
    ENTER("%p", (void *)model);
    REQUIRE(model && compilation, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(model, MODEL);
    return create(__func__, model, NULL, 0, compilation);
}

SINCE_3 int ANeuralNetworksCompilation_createForDevices(Model *model, const Device *const *devices, uint32_t count,
                                                        Compilation **compilation) {
    if (compilation) *compilation = NULL;
    ENTER("%p, %u devices", (void *)model, count);
    REQUIRE(model && devices && compilation, UNEXPECTED_NULL, "an argument is null");
    int code = check_devices(__func__, devices, count);
    if (code) return code;
    REQUIRE_LIVE(model, MODEL);
    return create(__func__, model, devices, count, compilation);
}

SINCE_1 void ANeuralNetworksCompilation_free(Compilation *compilation) {
    NOTE("%p", (void *)compilation);
    if (!compilation || !object_unregister(__func__, compilation, COMPILATION)) return;
    object_release(compilation->model);
    free(compilation->cache_file);
    free(compilation->attributes);
    free(compilation);
}

#define REQUIRE_UNFINISHED(compilation)                                                      \
    do {                                                                                     \
        REQUIRE_LIVE(compilation, COMPILATION);                                              \
        REQUIRE(!(compilation)->finished, BAD_STATE, "the compilation is finished");         \
    } while (0)

SINCE_1 int ANeuralNetworksCompilation_setPreference(Compilation *compilation, int32_t preference) {
    ENTER("%p, %d", (void *)compilation, preference);
    REQUIRE_UNFINISHED(compilation);
    REQUIRE(preference >= 0 && preference <= 2, BAD_DATA, "preference %d", preference);
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksCompilation_setPriority(Compilation *compilation, int priority) {
    ENTER("%p, %d", (void *)compilation, priority);
    REQUIRE_UNFINISHED(compilation);
    REQUIRE(priority == 90 || priority == 100 || priority == 110, BAD_DATA, "priority %d", priority);
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksCompilation_setTimeout(Compilation *compilation, uint64_t duration) {
    ENTER("%p, %llu", (void *)compilation, (unsigned long long)duration);
    REQUIRE_UNFINISHED(compilation);
    REQUIRE(compilation->device_count == 1, BAD_DATA, "a timeout needs one chosen device");
    compilation->timeout = duration;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksCompilation_setCaching(Compilation *compilation, const char *directory,
                                                  const uint8_t *token) {
    ENTER("%p, %s", (void *)compilation, directory ? directory : "null");
    REQUIRE(compilation && directory && token, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_UNFINISHED(compilation);
    size_t length = strlen(directory);
    free(compilation->cache_file);
    compilation->cache_file = malloc(length + 80);
    if (!compilation->cache_file) abort();
    memcpy(compilation->cache_file, directory, length);
    char *end = compilation->cache_file + length;
    if (length && end[-1] != '/') *end++ = '/';
    for (int i = 0; i < 32; i++) { /* the letters that Android's runtime uses */
        *end++ = (char)('A' + (token[i] & 15));
        *end++ = (char)('A' + (token[i] >> 4));
    }
    strcpy(end, "10");
    return NO_ERROR;
}

SINCE_8 int ANeuralNetworksCompilation_addExtensionAttribute(Compilation *compilation, const char *name, uint16_t code,
                                                             const void *data, size_t length) {
    ENTER("%p, %s, %u, length=%zu", (void *)compilation, name ? name : "null", code, length);
    REQUIRE(compilation && name && (data || !length), UNEXPECTED_NULL, "an argument is null");
    REQUIRE_UNFINISHED(compilation);
    REQUIRE(compilation->device_count == 1, BAD_DATA, "an attribute needs one chosen device");
    int32_t type;
    int result = extension_type(__func__, name, code, &type);
    if (result) return result;
    for (uint32_t i = 0; i < compilation->attribute_count; i++)
        REQUIRE(compilation->attributes[i] != type, BAD_DATA, "the attribute is set already");
    compilation->attributes = realloc(compilation->attributes, (compilation->attribute_count + 1) * sizeof(int32_t));
    if (!compilation->attributes) abort();
    compilation->attributes[compilation->attribute_count++] = type;
    return NO_ERROR;
}

static bool load_cache(const Compilation *compilation) {
    struct stat status;
    return host.caches && compilation->cache_file && stat(compilation->cache_file, &status) == 0 && status.st_size;
}

static void store_cache(const Compilation *compilation) {
    if (!host.caches || !compilation->cache_file) return;
    FILE *file = fopen(compilation->cache_file, "wb");
    if (!file) return;
    fputs("compiled", file);
    fclose(file);
}

static int compile(const char *function, const Compilation *compilation) {
    const ModelData *model = &compilation->model->data;
    if (compilation->model->has_file_memory && host.mapping == FILES_REFUSED_AT_COMPILATION)
        return host_refuse(function, OP_FAILED, "the driver cannot map files");
    for (uint32_t i = 0; i < model->operation_count && compilation->device_count; i++) {
        bool supported = false;
        for (uint32_t j = 0; j < compilation->device_count; j++)
            supported |= device_supports(compilation->devices[j], model, i);
        if (!supported) return host_refuse(function, BAD_DATA, "operation %u is supported by no chosen device", i);
    }
    if (load_cache(compilation)) return NO_ERROR;
    if (compilation->timeout && compilation->timeout < host.compile_nanoseconds) {
        host_sleep(compilation->timeout);
        return host_refuse(function, MISSED_DEADLINE_TRANSIENT, "the compilation took too long");
    }
    host_sleep(host.compile_nanoseconds);
    store_cache(compilation);
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksCompilation_finish(Compilation *compilation) {
    ENTER("%p", (void *)compilation);
    REQUIRE_UNFINISHED(compilation);
    compilation->finished = true;
    uint64_t begun = host_now();
    int code = compile(__func__, compilation);
    compilation->valid = code == NO_ERROR;
    host_report_compilation(compilation, code, host_now() - begun);
    return code;
}

#define PREFERENCE(name, count, value)                                                                              \
    SINCE_5 int ANeuralNetworksCompilation_getPreferredMemory##name(Compilation *compilation, uint32_t index,       \
                                                                    uint32_t *result) {                             \
        ENTER("%p, %u", (void *)compilation, index);                                                                \
        REQUIRE(compilation && result, UNEXPECTED_NULL, "an argument is null");                                     \
        REQUIRE_LIVE(compilation, COMPILATION);                                                                     \
        REQUIRE(compilation->finished && compilation->valid, BAD_STATE, "the compilation is not finished");         \
        REQUIRE(index < compilation->model->data.count, BAD_DATA, "index %u is out of range", index);               \
        *result = value;                                                                                            \
        return NO_ERROR;                                                                                            \
    }

PREFERENCE(AlignmentForInput, input_count, host.alignment)
PREFERENCE(AlignmentForOutput, output_count, host.alignment)
PREFERENCE(PaddingForInput, input_count, host.padding)
PREFERENCE(PaddingForOutput, output_count, host.padding)

SINCE_5 int64_t ANeuralNetworks_getRuntimeFeatureLevel(void) {
    NOTE("%d", HOST_LEVEL);
    return HOST_LEVEL <= 5 ? 26 + HOST_LEVEL : 1000000 + HOST_LEVEL;
}

SINCE_4 uint64_t ANeuralNetworks_getDefaultLoopTimeout(void) {
    NOTE("%llu", DEFAULT_LOOP_NANOSECONDS);
    return DEFAULT_LOOP_NANOSECONDS;
}

SINCE_4 uint64_t ANeuralNetworks_getMaximumLoopTimeout(void) {
    NOTE("%llu", MAXIMUM_LOOP_NANOSECONDS);
    return MAXIMUM_LOOP_NANOSECONDS;
}
