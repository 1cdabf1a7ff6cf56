/* The same NNAPI as a support library driver: its struct of functions, and the functions that only drivers have. */
#ifdef HOST_DRIVER
#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FEATURE_LEVEL (HOST_LEVEL <= 5 ? 26 + HOST_LEVEL : 1000000 + HOST_LEVEL)

typedef struct {
    float time, power;
} Performance;
typedef struct {
    int32_t type;
    Performance performance;
} OperandPerformance;
typedef struct {
    uint32_t bytes;
    uint16_t type;
    bool is_tensor;
} ExtensionType;

/* What a diagnostic callback may ask about the compilation or the execution that it reports. */
typedef struct {
    int32_t session;
    int code;
    int mode;
    uint64_t nanoseconds;
    bool caching, control_flow;
    char devices[sizeof((Device *)0)->name];
} Info;

static void (*compilation_callback)(const void *context, const Info *info);
static void (*execution_callback)(const void *context, const Info *info);
static void *callback_context;

static Info describe(const Compilation *compilation, int code, int mode, uint64_t nanoseconds) {
    Info info = {.session = 1, .code = code, .mode = mode, .nanoseconds = nanoseconds};
    info.caching = compilation->cache_file != NULL;
    for (uint32_t i = 0; i < compilation->model->data.operand_count; i++)
        info.control_flow |= compilation->model->data.operands[i].lifetime == SUBGRAPH;
    strcpy(info.devices, host.devices[compilation->device_count ? compilation->devices[0] : 0].name);
    return info;
}

void host_report_compilation(const Compilation *compilation, int code, uint64_t nanoseconds) {
    if (!compilation_callback) return;
    Info info = describe(compilation, code, 0, nanoseconds);
    compilation_callback(callback_context, &info);
}

void host_report_execution(const Execution *execution, int code, int mode) {
    if (!execution_callback) return;
    Info info = describe(execution->compilation, code, mode, execution->duration);
    execution_callback(callback_context, &info);
}

ABSENT void SL_ANeuralNetworksDiagnostic_registerCallbacks(void (*compilation)(const void *, const Info *),
                                                           void (*execution)(const void *, const Info *),
                                                           void *context) {
    NOTE("%p", context);
    compilation_callback = compilation;
    execution_callback = execution;
    callback_context = context;
}

#define GETTER(kind, name, type, value) \
    ABSENT type SL_ANeuralNetworksDiagnostic##kind##Info_##name(const Info *info) { return value; }
#define GETTERS(kind, code_type)                              \
    GETTER(kind, getSessionId, int32_t, info->session)        \
    GETTER(kind, getNnApiVersion, int64_t, ((void)info, FEATURE_LEVEL)) \
    GETTER(kind, getModelArchHash, const uint8_t *, ((void)info, (const uint8_t *)"0123456789abcdef0123456789abcdef")) \
    GETTER(kind, getDeviceIds, const char *, info->devices)   \
    GETTER(kind, getErrorCode, code_type, (code_type)info->code) \
    GETTER(kind, getInputDataClass, int, ((void)info, 2))     \
    GETTER(kind, getOutputDataClass, int, ((void)info, 2))    \
    GETTER(kind, isCachingEnabled, bool, info->caching)       \
    GETTER(kind, isControlFlowUsed, bool, info->control_flow) \
    GETTER(kind, areDynamicTensorsUsed, bool, ((void)info, false))

GETTERS(Compilation, int32_t)
GETTERS(Execution, uint32_t)
GETTER(Compilation, getCompilationTimeNanos, uint64_t, info->nanoseconds)
GETTER(Execution, getExecutionMode, int, info->mode)
GETTER(Execution, getRuntimeExecutionTimeNanos, uint64_t, info->nanoseconds)
GETTER(Execution, getDriverExecutionTimeNanos, uint64_t, info->nanoseconds)
GETTER(Execution, getHardwareExecutionTimeNanos, uint64_t, info->nanoseconds / 2)

#define REQUIRE_DEVICE(device)                                          \
    REQUIRE(device, UNEXPECTED_NULL, "device is null");                 \
    REQUIRE(device_index(device) >= 0, BAD_DATA, "%p is no device", (const void *)(device))

ABSENT int SL_ANeuralNetworksCompilation_setCachingFromFds(Compilation *compilation, const int *model_files,
                                                           uint32_t model_count, const int *data_files,
                                                           uint32_t data_count, const uint8_t *token) {
    ENTER("%p, %u, %u", (void *)compilation, model_count, data_count);
    REQUIRE((model_files || !model_count) && (data_files || !data_count) && token, UNEXPECTED_NULL, "null argument");
    REQUIRE_LIVE(compilation, COMPILATION);
    REQUIRE(!compilation->finished, BAD_STATE, "the compilation is finished");
    compilation->caching = true;
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_getNumberOfCacheFilesNeeded(const Device *device, uint32_t *models,
                                                                uint32_t *data) {
    ENTER("%p", (const void *)device);
    REQUIRE(models && data, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    *models = 1;
    *data = 0;
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_getPerformanceInfo(const Device *device, int32_t kind, Performance *performance) {
    ENTER("%p, %d", (const void *)device, kind);
    REQUIRE(performance, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    REQUIRE(kind >= 0 && kind <= 3, BAD_DATA, "kind %d", kind);
    *performance = (Performance){0.5f, 0.25f};
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_forEachOperandPerformanceInfo(const Device *device, void *context,
                                                                  void (*callback)(OperandPerformance, void *)) {
    ENTER("%p", (const void *)device);
    REQUIRE(context && callback, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    for (int32_t type = 0; type <= 14; type++) callback((OperandPerformance){type, {0.5f, 0.25f}}, context);
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_getVendorExtensionCount(const Device *device, uint32_t *count) {
    ENTER("%p", (const void *)device);
    REQUIRE(count, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    *count = device->extension[0] != 0;
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_getVendorExtensionName(const Device *device, uint32_t index, const char **name) {
    ENTER("%p, %u", (const void *)device, index);
    REQUIRE(name, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    REQUIRE(index == 0 && device->extension[0], BAD_DATA, "extension %u", index);
    *name = device->extension;
    return NO_ERROR;
}

ABSENT int SL_ANeuralNetworksDevice_forEachVendorExtensionOperandTypeInformation(const Device *device, uint32_t index,
                                                                                 void *context,
                                                                                 void (*callback)(ExtensionType,
                                                                                                  void *)) {
    ENTER("%p, %u", (const void *)device, index);
    REQUIRE(context && callback, UNEXPECTED_NULL, "null argument");
    REQUIRE_DEVICE(device);
    REQUIRE(index == 0 && device->extension[0], BAD_DATA, "extension %u", index);
    callback((ExtensionType){2, 7, true}, context);
    return NO_ERROR;
}

/* Prototypes are of no use here: only the addresses, in the struct's order. */
#define EACH(apply)                                                                \
    apply(ANeuralNetworksBurst_create)                                             \
    apply(ANeuralNetworksBurst_free)                                               \
    apply(ANeuralNetworksCompilation_createForDevices)                             \
    apply(ANeuralNetworksCompilation_finish)                                       \
    apply(ANeuralNetworksCompilation_free)                                         \
    apply(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForInput)          \
    apply(ANeuralNetworksCompilation_getPreferredMemoryAlignmentForOutput)         \
    apply(ANeuralNetworksCompilation_getPreferredMemoryPaddingForInput)            \
    apply(ANeuralNetworksCompilation_getPreferredMemoryPaddingForOutput)           \
    apply(ANeuralNetworksCompilation_setCaching)                                   \
    apply(ANeuralNetworksCompilation_setPreference)                                \
    apply(ANeuralNetworksCompilation_setPriority)                                  \
    apply(ANeuralNetworksCompilation_setTimeout)                                   \
    apply(ANeuralNetworksDevice_getExtensionSupport)                               \
    apply(ANeuralNetworksDevice_getFeatureLevel)                                   \
    apply(ANeuralNetworksDevice_getName)                                           \
    apply(ANeuralNetworksDevice_getType)                                           \
    apply(ANeuralNetworksDevice_getVersion)                                        \
    apply(ANeuralNetworksDevice_wait)                                              \
    apply(ANeuralNetworksEvent_createFromSyncFenceFd)                              \
    apply(ANeuralNetworksEvent_free)                                               \
    apply(ANeuralNetworksEvent_getSyncFenceFd)                                     \
    apply(ANeuralNetworksEvent_wait)                                               \
    apply(ANeuralNetworksExecution_burstCompute)                                   \
    apply(ANeuralNetworksExecution_compute)                                        \
    apply(ANeuralNetworksExecution_create)                                         \
    apply(ANeuralNetworksExecution_enableInputAndOutputPadding)                    \
    apply(ANeuralNetworksExecution_free)                                           \
    apply(ANeuralNetworksExecution_getDuration)                                    \
    apply(ANeuralNetworksExecution_getOutputOperandDimensions)                     \
    apply(ANeuralNetworksExecution_getOutputOperandRank)                           \
    apply(ANeuralNetworksExecution_setInput)                                       \
    apply(ANeuralNetworksExecution_setInputFromMemory)                             \
    apply(ANeuralNetworksExecution_setLoopTimeout)                                 \
    apply(ANeuralNetworksExecution_setMeasureTiming)                               \
    apply(ANeuralNetworksExecution_setOutput)                                      \
    apply(ANeuralNetworksExecution_setOutputFromMemory)                            \
    apply(ANeuralNetworksExecution_setReusable)                                    \
    apply(ANeuralNetworksExecution_setTimeout)                                     \
    apply(ANeuralNetworksExecution_startComputeWithDependencies)                   \
    apply(ANeuralNetworksMemoryDesc_addInputRole)                                  \
    apply(ANeuralNetworksMemoryDesc_addOutputRole)                                 \
    apply(ANeuralNetworksMemoryDesc_create)                                        \
    apply(ANeuralNetworksMemoryDesc_finish)                                        \
    apply(ANeuralNetworksMemoryDesc_free)                                          \
    apply(ANeuralNetworksMemoryDesc_setDimensions)                                 \
    apply(ANeuralNetworksMemory_copy)                                              \
    apply(ANeuralNetworksMemory_createFromAHardwareBuffer)                         \
    apply(ANeuralNetworksMemory_createFromDesc)                                    \
    apply(ANeuralNetworksMemory_createFromFd)                                      \
    apply(ANeuralNetworksMemory_free)                                              \
    apply(ANeuralNetworksModel_addOperand)                                         \
    apply(ANeuralNetworksModel_addOperation)                                       \
    apply(ANeuralNetworksModel_create)                                             \
    apply(ANeuralNetworksModel_finish)                                             \
    apply(ANeuralNetworksModel_free)                                               \
    apply(ANeuralNetworksModel_getExtensionOperandType)                            \
    apply(ANeuralNetworksModel_getExtensionOperationType)                          \
    apply(ANeuralNetworksModel_getSupportedOperationsForDevices)                   \
    apply(ANeuralNetworksModel_identifyInputsAndOutputs)                           \
    apply(ANeuralNetworksModel_relaxComputationFloat32toFloat16)                   \
    apply(ANeuralNetworksModel_setOperandExtensionData)                            \
    apply(ANeuralNetworksModel_setOperandSymmPerChannelQuantParams)                \
    apply(ANeuralNetworksModel_setOperandValue)                                    \
    apply(ANeuralNetworksModel_setOperandValueFromMemory)                          \
    apply(ANeuralNetworksModel_setOperandValueFromModel)                           \
    apply(ANeuralNetworks_getDefaultLoopTimeout)                                   \
    apply(ANeuralNetworks_getDevice)                                               \
    apply(ANeuralNetworks_getDeviceCount)                                          \
    apply(ANeuralNetworks_getMaximumLoopTimeout)                                   \
    apply(ANeuralNetworks_getRuntimeFeatureLevel)                                  \
    apply(SL_ANeuralNetworksCompilation_setCachingFromFds)                         \
    apply(SL_ANeuralNetworksDevice_getNumberOfCacheFilesNeeded)                    \
    apply(SL_ANeuralNetworksDevice_getPerformanceInfo)                             \
    apply(SL_ANeuralNetworksDevice_forEachOperandPerformanceInfo)                  \
    apply(SL_ANeuralNetworksDevice_getVendorExtensionCount)                        \
    apply(SL_ANeuralNetworksDevice_getVendorExtensionName)                         \
    apply(SL_ANeuralNetworksDevice_forEachVendorExtensionOperandTypeInformation)   \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getSessionId)                \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getNnApiVersion)             \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getModelArchHash)            \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getDeviceIds)                \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getErrorCode)                \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getInputDataClass)           \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getOutputDataClass)          \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_getCompilationTimeNanos)     \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_isCachingEnabled)            \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_isControlFlowUsed)           \
    apply(SL_ANeuralNetworksDiagnosticCompilationInfo_areDynamicTensorsUsed)       \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getSessionId)                  \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getNnApiVersion)               \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getModelArchHash)              \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getDeviceIds)                  \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getExecutionMode)              \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getInputDataClass)             \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getOutputDataClass)            \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getErrorCode)                  \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getRuntimeExecutionTimeNanos)  \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getDriverExecutionTimeNanos)   \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_getHardwareExecutionTimeNanos) \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_isCachingEnabled)              \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_isControlFlowUsed)             \
    apply(SL_ANeuralNetworksDiagnosticExecutionInfo_areDynamicTensorsUsed)         \
    apply(SL_ANeuralNetworksDiagnostic_registerCallbacks)
#define EACH_8(apply)                                       \
    apply(ANeuralNetworksCompilation_addExtensionAttribute) \
    apply(ANeuralNetworksExecution_addExtensionAttribute)
#define DECLARE(name) extern ABSENT char address_of_##name __asm__(#name);
#define ADDRESS(name) &address_of_##name,
EACH(DECLARE)
EACH_8(DECLARE)

static struct {
    int64_t level;
    const void *functions[];
} driver = {FEATURE_LEVEL, {EACH(ADDRESS)
#if HOST_LEVEL >= 8
    EACH_8(ADDRESS)
#endif
}};

EXPORT void *ANeuralNetworks_getSLDriverImpl(void) { return &driver; }
#endif
