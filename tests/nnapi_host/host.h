/* An NNAPI for machines without Android: the state behind the exported functions, shared by this folder's files.
 *
 * It keeps the rules that NeuralNetworks.h states and answers with the documented result codes. What the
 * documentation leaves to the caller (lifetimes, frees of running executions) is recorded as a violation.
 * HOST_LEVEL (1 to 8) is the feature level that it pretends: functions that came later are not exported.
 */
#ifndef NNAPI_HOST_H
#define NNAPI_HOST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef HOST_LEVEL
#define HOST_LEVEL 8
#endif

#define EXPORT __attribute__((visibility("default")))
#define ABSENT __attribute__((visibility("hidden"), unused))

/* A support library driver exports its struct of functions and nothing else. */
#ifdef HOST_DRIVER
#define SINCE_ALWAYS ABSENT
#else
#define SINCE_ALWAYS EXPORT
#endif
#define SINCE_1 SINCE_ALWAYS
#if HOST_LEVEL >= 2
#define SINCE_2 SINCE_ALWAYS
#else
#define SINCE_2 ABSENT
#endif
#if HOST_LEVEL >= 3
#define SINCE_3 SINCE_ALWAYS
#else
#define SINCE_3 ABSENT
#endif
#if HOST_LEVEL >= 4
#define SINCE_4 SINCE_ALWAYS
#else
#define SINCE_4 ABSENT
#endif
#if HOST_LEVEL >= 5
#define SINCE_5 SINCE_ALWAYS
#else
#define SINCE_5 ABSENT
#endif
#if HOST_LEVEL >= 8
#define SINCE_8 SINCE_ALWAYS
#else
#define SINCE_8 ABSENT
#endif

enum Result {
    NO_ERROR = 0,
    OUT_OF_MEMORY = 1,
    UNEXPECTED_NULL = 3,
    BAD_DATA = 4,
    OP_FAILED = 5,
    BAD_STATE = 6,
    UNMAPPABLE = 7,
    OUTPUT_INSUFFICIENT_SIZE = 8,
    UNAVAILABLE_DEVICE = 9,
    MISSED_DEADLINE_TRANSIENT = 10,
};

enum OperandTypeCode {
    TENSOR_INT32 = 4,
    TENSOR_QUANT8_ASYMM = 5,
    TENSOR_QUANT16_SYMM = 7,
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11,
    TENSOR_QUANT16_ASYMM = 12,
    TENSOR_QUANT8_SYMM = 13,
    TENSOR_QUANT8_ASYMM_SIGNED = 14,
    MODEL_OPERAND = 15,
    EXTENSION_SHIFT = 16, /* an extension's types carry its number, from 1, above these bits */
};

typedef enum { MODEL, COMPILATION, EXECUTION, BURST, EVENT, MEMORY, MEMORY_DESC, KINDS } Kind;

/* The head of every handle. users counts the objects that the documentation says must be freed before it. */
typedef struct Object {
    Kind kind;
    int users;
    struct Object *previous, *next;
} Object;

typedef struct {
    int32_t type;
    uint32_t rank;
    const uint32_t *dimensions;
    float scale;
    int32_t zero_point;
} OperandType;

typedef struct {
    uint32_t channel;
    uint32_t count;
    const float *scales;
} ChannelQuant;

/* ---- What the interpreter sees: mirrored by host.py, so plain fields only. ---- */

enum Lifetime { TEMPORARY, INPUT, OUTPUT, CONSTANT, NO_VALUE, SUBGRAPH };

typedef struct Operand {
    int32_t type;
    int32_t lifetime;
    uint32_t rank;
    uint32_t *dimensions;
    float scale;
    int32_t zero_point;
    const void *value;
    uint64_t length;
    const void *subgraph; /* the ModelData of a SUBGRAPH */
    uint32_t channel;
    uint32_t scale_count;
    float *scales;
} Operand;

typedef struct {
    int32_t type;
    uint32_t input_count;
    uint32_t *inputs;
    uint32_t output_count;
    uint32_t *outputs;
} Operation;

typedef struct {
    uint32_t operand_count;
    Operand *operands;
    uint32_t operation_count;
    Operation *operations;
    uint32_t input_count;
    uint32_t *inputs;
    uint32_t output_count;
    uint32_t *outputs;
    int32_t relaxed;
    uint64_t serial; /* unlike an address never used twice */
} ModelData;

#define MAX_RANK 32

enum ArgumentState { UNSET, OMITTED, POINTER, POOL };

typedef struct {
    int32_t state;
    int32_t sufficient;
    void *buffer;
    uint64_t length; /* bytes that may be used */
    uint32_t rank;
    uint32_t dimensions[MAX_RANK];
} Argument;

typedef int (*ValidateCallback)(const ModelData *model); /* the feature level that the model needs; negative: invalid */
typedef int (*ComputeCallback)(const ModelData *model, uint32_t device, Argument *inputs, Argument *outputs,
                               uint64_t loop_timeout);

/* ---- Handles ---- */

typedef struct Model {
    Object object;
    ModelData data;
    bool finished, invalid;
    Object **needs;
    uint32_t need_count;
    bool has_file_memory;
} Model;

typedef struct Memory {
    Object object;
    void *data;
    uint64_t size;
    bool mapped, whole_only, constant_allowed, is_file;
    /* From a descriptor only: */
    bool from_desc, initialized;
    int32_t type;
    uint32_t rank, initial_rank;
    uint32_t dimensions[MAX_RANK], initial_dimensions[MAX_RANK];
    struct Role *roles;
    uint32_t role_count;
} Memory;

typedef struct Role {
    const struct Compilation *compilation;
    bool is_output;
    uint32_t index;
} Role;

#define MAX_DEVICES 8

typedef struct Compilation {
    Object object;
    Model *model;
    uint32_t device_count; /* 0: the runtime chooses, with a CPU to fall back to */
    uint32_t devices[MAX_DEVICES];
    bool finished, valid, caching;
    uint64_t timeout;
    char *cache_file;
    uint32_t attribute_count;
    int32_t *attributes;
} Compilation;

enum Mode { ASYNC = 1, SYNC, IN_BURST, ASYNC_WITH_DEPENDENCIES }; /* as diagnostics number them */
enum State { PREPARATION, COMPUTATION, COMPLETED };

typedef struct Execution {
    Object object;
    Compilation *compilation;
    Argument *inputs, *outputs;   /* as set */
    Argument *results;            /* the outputs of the latest computation */
    Memory **memories;            /* of the inputs, then of the outputs; NULL for a user's buffer */
    enum State state;
    int result;
    bool reusable, padding, measure, touched;
    uint64_t timeout, loop_timeout, duration;
    uint32_t attribute_count;
    int32_t *attributes;
} Execution;

typedef struct Burst {
    Object object;
    Compilation *compilation;
    pthread_mutex_t busy;
} Burst;

typedef struct Event {
    Object object;
    Execution *execution; /* NULL: from a fence alone */
    pthread_t thread;
    bool started, threaded, joined;
    int fence;  /* -1: none; readable when signalled, closed without a byte when the computation failed */
    int signal; /* the other end of our own fence */
    int *waits;
    uint32_t wait_count;
    uint64_t timeout;
    enum Mode mode;
    int result;
    pthread_mutex_t lock;
} Event;

typedef struct {
    char name[64];
    char version[64];
    int32_t type;
    int64_t level;
    bool everything;
    uint8_t supported[128]; /* by operation code */
    char extension[64];
} Device;

typedef struct {
    uint32_t magic;
    uint64_t size;
    bool blob;
    void *data;
} HardwareBuffer;
#define HARDWARE_BUFFER_MAGIC 0x41485742u

/* ---- The one state, which the tests set through the functions of control.c ---- */

enum Mapping { MAPPABLE, FILES_UNMAPPABLE, FILES_REFUSED_AT_COMPILATION };

typedef struct {
    pthread_mutex_t lock;
    Device devices[MAX_DEVICES];
    uint32_t device_count;
    uint64_t compile_nanoseconds, compute_nanoseconds;
    enum Mapping mapping;
    bool fences, logging, caches, threads;
    uint32_t alignment, padding;
    ValidateCallback validate;
    ComputeCallback compute;
} Host;

extern Host host;

int host_enter(const char *function, bool fallible, const char *format, ...) __attribute__((format(printf, 3, 4)));
int host_refuse(const char *function, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void host_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));
void host_attach_python(void);
#ifdef HOST_DRIVER
void host_report_compilation(const Compilation *compilation, int code, uint64_t nanoseconds);
void host_report_execution(const Execution *execution, int code, int mode);
#else
#define host_report_compilation(compilation, code, nanoseconds) ((void)(nanoseconds))
#define host_report_execution(execution, code, mode) ((void)(mode))
#endif
void host_sleep(uint64_t nanoseconds);
uint64_t host_now(void);

void object_register(void *object, Kind kind);
bool object_is_live(const void *object, Kind kind);
void object_use(void *object);
void object_release(void *object);
/* False when it must not be freed: not live, or still needed (both are violations). */
bool object_unregister(const char *function, void *object, Kind kind);

int check_operand_type(const char *function, const OperandType *type);
bool is_tensor(int32_t type);
uint32_t element_size(int32_t type);
/* Bytes of a value of these dimensions; 0 where a dimension or the rank is unspecified. */
uint64_t data_size(int32_t type, uint32_t rank, const uint32_t *dimensions);
bool dimensions_agree(uint32_t rank, const uint32_t *old, uint32_t new_rank, const uint32_t *new);
int extension_type(const char *function, const char *name, uint16_t code, int32_t *type);
int device_index(const void *device);
bool device_supports(uint32_t device, const ModelData *model, uint32_t operation);

/* The preamble of a function: log, fail when a test asked for it. */
#define ENTER(...)                                                   \
    do {                                                             \
        int injected_ = host_enter(__func__, true, __VA_ARGS__);     \
        if (injected_) return injected_;                             \
    } while (0)
/* The preamble of a function that cannot fail. */
#define NOTE(...) ((void)host_enter(__func__, false, __VA_ARGS__))
#define REQUIRE(condition, code, ...)                                \
    do {                                                             \
        if (!(condition)) return host_refuse(__func__, code, __VA_ARGS__); \
    } while (0)
#define REQUIRE_LIVE(pointer, kind)                                  \
    do {                                                             \
        REQUIRE((pointer) != NULL, UNEXPECTED_NULL, #pointer " is null"); \
        if (!object_is_live(pointer, kind)) {                        \
            host_violation("%s: %s is no live handle of its kind", __func__, #pointer); \
            return BAD_DATA;                                         \
        }                                                            \
    } while (0)

#endif
