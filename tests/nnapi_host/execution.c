/* ANeuralNetworksExecution, bursts and events: arguments, states, and the four ways to compute. */
#include "host.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SINCE_1 int ANeuralNetworksExecution_create(Compilation *compilation, Execution **execution) {
    if (execution) *execution = NULL;
    ENTER("%p", (void *)compilation);
    REQUIRE(compilation && execution, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(compilation, COMPILATION);
    REQUIRE(compilation->finished && compilation->valid, BAD_STATE, "the compilation is not finished");
    const ModelData *model = &compilation->model->data;
    Execution *created = calloc(1, sizeof *created);
    if (!created) return OUT_OF_MEMORY;
    created->compilation = compilation;
    created->inputs = calloc(model->input_count, sizeof(Argument));
    created->outputs = calloc(model->output_count, sizeof(Argument));
    created->results = calloc(model->output_count, sizeof(Argument));
    created->memories = calloc(model->input_count + model->output_count, sizeof(Memory *));
    if (!created->inputs || !created->outputs || !created->results || !created->memories) abort();
    created->loop_timeout = 2000000000ull;
    object_use(compilation);
    object_register(created, EXECUTION);
    *execution = created;
    return NO_ERROR;
}

SINCE_1 void ANeuralNetworksExecution_free(Execution *execution) {
    NOTE("%p", (void *)execution);
    if (!execution) return;
    if (object_is_live(execution, EXECUTION) && execution->state == COMPUTATION) {
        host_violation("%s: freed before its computation completed", __func__);
        return;
    }
    if (!object_unregister(__func__, execution, EXECUTION)) return;
    const ModelData *model = &execution->compilation->model->data;
    for (uint32_t i = 0; i < model->input_count + model->output_count; i++)
        if (execution->memories[i]) object_release(execution->memories[i]);
    object_release(execution->compilation);
    free(execution->inputs);
    free(execution->outputs);
    free(execution->results);
    free(execution->memories);
    free(execution->attributes);
    free(execution);
}

#define REQUIRE_PREPARATION(execution)                                                          \
    do {                                                                                        \
        REQUIRE_LIVE(execution, EXECUTION);                                                     \
        REQUIRE((execution)->state == PREPARATION, BAD_STATE, "the execution has been started"); \
    } while (0)
#define REQUIRE_ONE_DEVICE(execution) \
    REQUIRE((execution)->compilation->device_count == 1, BAD_DATA, "needs one chosen device")

/* An output must overlap no other argument. */
static void check_overlap(const char *function, const Execution *execution, const Argument *argument, bool output) {
    const ModelData *model = &execution->compilation->model->data;
    for (uint32_t i = 0; i < model->input_count + model->output_count; i++) {
        bool other_output = i >= model->input_count;
        const Argument *other = other_output ? &execution->outputs[i - model->input_count] : &execution->inputs[i];
        if (other == argument || !other->buffer || !(output || other_output)) continue;
        const char *start = argument->buffer, *other_start = other->buffer;
        if (start < other_start + other->length && other_start < start + argument->length)
            host_violation("%s: an output overlaps another argument", function);
    }
}

typedef struct {
    const OperandType *type;
    void *buffer;
    Memory *memory;
    size_t offset, length;
} Setting;

static int set_argument(const char *function, Execution *execution, bool output, int32_t index, Setting set) {
    const ModelData *model = &execution->compilation->model->data;
    if ((uint32_t)index >= (output ? model->output_count : model->input_count))
        return host_refuse(function, BAD_DATA, "index %d is out of range", index);
    const Operand *operand = &model->operands[(output ? model->outputs : model->inputs)[index]];
    Argument *argument = output ? &execution->outputs[index] : &execution->inputs[index];
    if (argument->state != UNSET) return host_refuse(function, BAD_STATE, "argument %d is set already", index);
    bool omitted = !set.memory && !set.buffer;
    if (!set.memory && set.buffer && !set.length) return host_refuse(function, BAD_DATA, "a buffer of no bytes");
    if (set.type) {
        int code = check_operand_type(function, set.type);
        if (code) return code;
        if (set.type->type != operand->type || set.type->scale != operand->scale ||
            set.type->zero_point != operand->zero_point)
            return host_refuse(function, BAD_DATA, "argument %d is of another type", index);
        for (uint32_t i = 0; i < operand->rank; i++)
            if (set.type->rank != operand->rank ||
                (operand->dimensions[i] && operand->dimensions[i] != set.type->dimensions[i]))
                return host_refuse(function, BAD_DATA, "argument %d: a specified dimension is overridden", index);
    }
    uint32_t rank = set.type ? set.type->rank : operand->rank;
    const uint32_t *dimensions = set.type ? set.type->dimensions : operand->dimensions;
    uint64_t needed = data_size(operand->type, rank, dimensions);
    if (!needed && !omitted && (!output || HOST_LEVEL < 3))
        return host_refuse(function, BAD_DATA, "argument %d has unspecified dimensions", index);
    Memory *memory = set.memory;
    if (memory) {
        bool role = !memory->from_desc;
        for (uint32_t i = 0; i < memory->role_count; i++)
            role |= memory->roles[i].compilation == execution->compilation && memory->roles[i].is_output == output &&
                    memory->roles[i].index == (uint32_t)index;
        if (!role) return host_refuse(function, BAD_DATA, "the memory was not made for argument %d", index);
        if (memory->whole_only) {
            if (set.offset || set.length)
                return host_refuse(function, BAD_DATA, "this memory is used whole: offset and length must be 0");
            set.length = memory->size;
        } else if (set.offset > memory->size || set.length > memory->size - set.offset) {
            return host_refuse(function, BAD_DATA, "beyond the memory's end");
        }
        if (set.offset % element_size(operand->type))
            return host_refuse(function, BAD_DATA, "offset %zu is not aligned for its type", set.offset);
        if (memory->from_desc && !dimensions_agree(memory->initial_rank, memory->initial_dimensions, rank, dimensions))
            return host_refuse(function, BAD_DATA, "dimensions that the memory has not");
        set.buffer = (char *)memory->data + set.offset;
    }
    bool may_be_longer = execution->padding || !needed || (memory && memory->whole_only);
    if (!omitted && (set.length < needed || (set.length > needed && !may_be_longer)))
        return host_refuse(function, BAD_DATA, "argument %d: %zu bytes, not %llu", index, set.length,
                           (unsigned long long)needed);
    argument->state = omitted ? OMITTED : memory ? POOL : POINTER;
    argument->sufficient = true;
    argument->buffer = set.buffer;
    argument->length = needed ? needed : set.length;
    argument->rank = rank;
    if (rank) memcpy(argument->dimensions, dimensions, rank * sizeof(uint32_t));
    execution->touched = true;
    if (memory) {
        object_use(memory);
        execution->memories[(output ? model->input_count : 0) + (uint32_t)index] = memory;
    }
    if (!omitted) check_overlap(function, execution, argument, output);
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksExecution_setInput(Execution *execution, int32_t index, const OperandType *type,
                                              const void *buffer, size_t length) {
    ENTER("%p, %d, length=%zu", (void *)execution, index, length);
    REQUIRE(execution && (buffer || !length), UNEXPECTED_NULL, "execution or buffer is null");
    REQUIRE_PREPARATION(execution);
    return set_argument(__func__, execution, false, index, (Setting){type, (void *)buffer, NULL, 0, length});
}

SINCE_1 int ANeuralNetworksExecution_setInputFromMemory(Execution *execution, int32_t index, const OperandType *type,
                                                        Memory *memory, size_t offset, size_t length) {
    ENTER("%p, %d, memory=%p, offset=%zu, length=%zu", (void *)execution, index, (void *)memory, offset, length);
    REQUIRE(execution && memory, UNEXPECTED_NULL, "execution or memory is null");
    REQUIRE_PREPARATION(execution);
    REQUIRE_LIVE(memory, MEMORY);
    return set_argument(__func__, execution, false, index, (Setting){type, NULL, memory, offset, length});
}

SINCE_1 int ANeuralNetworksExecution_setOutput(Execution *execution, int32_t index, const OperandType *type,
                                               void *buffer, size_t length) {
    ENTER("%p, %d, length=%zu", (void *)execution, index, length);
    REQUIRE(execution && (buffer || !length), UNEXPECTED_NULL, "execution or buffer is null");
    REQUIRE_PREPARATION(execution);
    return set_argument(__func__, execution, true, index, (Setting){type, buffer, NULL, 0, length});
}

SINCE_1 int ANeuralNetworksExecution_setOutputFromMemory(Execution *execution, int32_t index, const OperandType *type,
                                                         Memory *memory, size_t offset, size_t length) {
    ENTER("%p, %d, memory=%p, offset=%zu, length=%zu", (void *)execution, index, (void *)memory, offset, length);
    REQUIRE(execution && memory, UNEXPECTED_NULL, "execution or memory is null");
    REQUIRE_PREPARATION(execution);
    REQUIRE_LIVE(memory, MEMORY);
    return set_argument(__func__, execution, true, index, (Setting){type, NULL, memory, offset, length});
}

SINCE_5 int ANeuralNetworksExecution_enableInputAndOutputPadding(Execution *execution, bool enable) {
    ENTER("%p, %d", (void *)execution, enable);
    REQUIRE_PREPARATION(execution);
    REQUIRE(!execution->touched, BAD_STATE, "an input or output is set already");
    execution->padding = enable;
    return NO_ERROR;
}

SINCE_5 int ANeuralNetworksExecution_setReusable(Execution *execution, bool reusable) {
    ENTER("%p, %d", (void *)execution, reusable);
    REQUIRE_PREPARATION(execution);
    execution->reusable = reusable;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksExecution_setMeasureTiming(Execution *execution, bool measure) {
    ENTER("%p, %d", (void *)execution, measure);
    REQUIRE_PREPARATION(execution);
    REQUIRE_ONE_DEVICE(execution);
    execution->measure = measure;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksExecution_setTimeout(Execution *execution, uint64_t duration) {
    ENTER("%p, %llu", (void *)execution, (unsigned long long)duration);
    REQUIRE_PREPARATION(execution);
    REQUIRE_ONE_DEVICE(execution);
    execution->timeout = duration;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksExecution_setLoopTimeout(Execution *execution, uint64_t duration) {
    ENTER("%p, %llu", (void *)execution, (unsigned long long)duration);
    REQUIRE_PREPARATION(execution);
    execution->loop_timeout = duration < 15000000000ull ? duration : 15000000000ull;
    return NO_ERROR;
}

SINCE_8 int ANeuralNetworksExecution_addExtensionAttribute(Execution *execution, const char *name, uint16_t code,
                                                           const void *data, size_t length) {
    ENTER("%p, %s, %u, length=%zu", (void *)execution, name ? name : "null", code, length);
    REQUIRE(execution && name && (data || !length), UNEXPECTED_NULL, "an argument is null");
    REQUIRE_PREPARATION(execution);
    REQUIRE_ONE_DEVICE(execution);
    int32_t type;
    int result = extension_type(__func__, name, code, &type);
    if (result) return result;
    for (uint32_t i = 0; i < execution->attribute_count; i++)
        REQUIRE(execution->attributes[i] != type, BAD_DATA, "the attribute is set already");
    execution->attributes = realloc(execution->attributes, (execution->attribute_count + 1) * sizeof(int32_t));
    if (!execution->attributes) abort();
    execution->attributes[execution->attribute_count++] = type;
    return NO_ERROR;
}

/* For benchmarks: the call alone. */
EXPORT int host_compute_nothing(const ModelData *model, uint32_t device, Argument *inputs, Argument *outputs,
                                uint64_t loop_timeout) {
    (void)model, (void)device, (void)inputs, (void)outputs, (void)loop_timeout;
    return NO_ERROR;
}

static int start(const char *function, Execution *execution) {
    bool again = execution->state == COMPLETED && execution->reusable;
    if (execution->state != PREPARATION && !again)
        return host_refuse(function, BAD_STATE, "the execution is running, or is done and not reusable");
    const ModelData *model = &execution->compilation->model->data;
    for (uint32_t i = 0; i < model->input_count; i++)
        if (execution->inputs[i].state == UNSET) return host_refuse(function, BAD_DATA, "input %u is not set", i);
    for (uint32_t i = 0; i < model->output_count; i++)
        if (execution->outputs[i].state == UNSET) return host_refuse(function, BAD_DATA, "output %u is not set", i);
    execution->state = COMPUTATION;
    return NO_ERROR;
}

static int check_input_memories(const char *function, const Execution *execution) {
    for (uint32_t i = 0; i < execution->compilation->model->data.input_count; i++) {
        const Memory *memory = execution->memories[i];
        if (!memory || !memory->from_desc) continue;
        const Argument *input = &execution->inputs[i];
        if (!memory->initialized) return host_refuse(function, BAD_DATA, "input %u is of uninitialized memory", i);
        if (memory->rank != input->rank ||
            memcmp(memory->dimensions, input->dimensions, input->rank * sizeof(uint32_t)))
            return host_refuse(function, BAD_DATA, "input %u: other dimensions than its memory", i);
    }
    return NO_ERROR;
}

/* What the documentation says of the outputs' shapes after a computation. */
static int check_results(const char *function, const Execution *execution) {
    const ModelData *model = &execution->compilation->model->data;
    int code = NO_ERROR;
    for (uint32_t i = 0; i < model->output_count; i++) {
        Argument *result = &execution->results[i];
        if (result->state == OMITTED) continue;
        int32_t type = model->operands[model->outputs[i]].type;
        if (is_tensor(type) && !result->rank) return host_refuse(function, OP_FAILED, "output %u has no rank", i);
        if (!result->sufficient || data_size(type, result->rank, result->dimensions) > result->length) {
            result->sufficient = false;
            code = OUTPUT_INSUFFICIENT_SIZE;
        }
    }
    return code;
}

static int compute(const char *function, Execution *execution, enum Mode mode, uint64_t timeout) {
    const ModelData *model = &execution->compilation->model->data;
    memcpy(execution->results, execution->outputs, model->output_count * sizeof(Argument));
    uint64_t begun = host_now();
    int code = check_input_memories(function, execution);
    if (!code && timeout && timeout < host.compute_nanoseconds) {
        host_sleep(timeout);
        code = host_refuse(function, MISSED_DEADLINE_TRANSIENT, "the computation took too long");
    }
    if (!code) {
        host_sleep(host.compute_nanoseconds);
        if (!host.compute) host_attach_python();
        uint32_t device = execution->compilation->device_count ? execution->compilation->devices[0] : 0;
        code = host.compute ? host.compute(model, device, execution->inputs, execution->results, execution->loop_timeout)
                            : host_refuse(function, OP_FAILED, "no interpreter is attached");
    }
    if (!code) code = check_results(function, execution);
    execution->duration = host_now() - begun;
    for (uint32_t i = 0; i < model->output_count; i++) {
        Memory *memory = execution->memories[model->input_count + i];
        if (!memory || !memory->from_desc) continue;
        memory->initialized = code == NO_ERROR;
        if (code) continue;
        memory->rank = execution->results[i].rank;
        memcpy(memory->dimensions, execution->results[i].dimensions, sizeof memory->dimensions);
    }
    execution->result = code;
    host_report_execution(execution, code, mode);
    return code;
}

SINCE_3 int ANeuralNetworksExecution_compute(Execution *execution) {
    ENTER("%p", (void *)execution);
    REQUIRE_LIVE(execution, EXECUTION);
    int code = start(__func__, execution);
    if (code) return code;
    code = compute(__func__, execution, SYNC, execution->timeout);
    execution->state = COMPLETED;
    return code;
}

SINCE_3 int ANeuralNetworksBurst_create(Compilation *compilation, Burst **burst) {
    if (burst) *burst = NULL;
    ENTER("%p", (void *)compilation);
    REQUIRE(compilation && burst, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(compilation, COMPILATION);
    REQUIRE(compilation->finished && compilation->valid, BAD_STATE, "the compilation is not finished");
    Burst *created = calloc(1, sizeof *created);
    if (!created) return OUT_OF_MEMORY;
    created->compilation = compilation;
    pthread_mutex_init(&created->busy, NULL);
    object_use(compilation);
    object_register(created, BURST);
    *burst = created;
    return NO_ERROR;
}

SINCE_3 void ANeuralNetworksBurst_free(Burst *burst) {
    NOTE("%p", (void *)burst);
    if (!burst || !object_unregister(__func__, burst, BURST)) return;
    object_release(burst->compilation);
    pthread_mutex_destroy(&burst->busy);
    free(burst);
}

SINCE_3 int ANeuralNetworksExecution_burstCompute(Execution *execution, Burst *burst) {
    ENTER("%p, %p", (void *)execution, (void *)burst);
    REQUIRE(execution && burst, UNEXPECTED_NULL, "execution or burst is null");
    REQUIRE_LIVE(execution, EXECUTION);
    REQUIRE_LIVE(burst, BURST);
    REQUIRE(burst->compilation == execution->compilation, BAD_DATA, "burst and execution of two compilations");
    REQUIRE(pthread_mutex_trylock(&burst->busy) == 0, BAD_STATE, "the burst is in use");
    int code = start(__func__, execution);
    if (!code) {
        code = compute(__func__, execution, IN_BURST, execution->timeout);
        execution->state = COMPLETED;
    }
    pthread_mutex_unlock(&burst->busy);
    return code;
}

/* True when the fence signals, false when its other end closes without. */
static bool wait_fence(int fence) {
    struct pollfd waited = {.fd = fence, .events = POLLIN};
    while (poll(&waited, 1, -1) < 0) {}
    return (waited.revents & POLLIN) != 0;
}

static void *run_event(void *argument) {
    Event *event = argument;
    int code = NO_ERROR;
    for (uint32_t i = 0; i < event->wait_count; i++)
        if (!wait_fence(event->waits[i])) code = OP_FAILED;
    uint64_t timeout = event->execution->timeout;
    if (event->timeout && (!timeout || event->timeout < timeout)) timeout = event->timeout;
    if (code) event->execution->result = code;
    else code = compute("ANeuralNetworksEvent", event->execution, event->mode, timeout);
    event->result = code;
    if (event->signal >= 0) {
        if (!code && write(event->signal, "", 1) != 1) event->result = OP_FAILED;
        close(event->signal);
        event->signal = -1;
    }
    return NULL;
}

static void launch(Event *event) {
    event->threaded = host.threads;
    if (!event->threaded) run_event(event);
    else if (pthread_create(&event->thread, NULL, run_event, event)) abort();
}

static Event *create_event(Execution *execution) {
    Event *event = calloc(1, sizeof *event);
    if (!event) abort();
    event->execution = execution;
    event->fence = event->signal = -1;
    pthread_mutex_init(&event->lock, NULL);
    object_register(event, EVENT);
    if (execution) {
        object_use(execution);
        event->started = true;
    }
    return event;
}

SINCE_1 int ANeuralNetworksExecution_startCompute(Execution *execution, Event **event) {
    if (event) *event = NULL;
    ENTER("%p", (void *)execution);
    REQUIRE(execution && event, UNEXPECTED_NULL, "execution or event is null");
    REQUIRE_LIVE(execution, EXECUTION);
    int code = start(__func__, execution);
    if (code) return code;
    *event = create_event(execution);
    (*event)->mode = ASYNC;
    launch(*event);
    return NO_ERROR;
}

static int wait_event(Event *event) {
    pthread_mutex_lock(&event->lock);
    if (event->started && !event->joined) {
        if (event->threaded) pthread_join(event->thread, NULL);
        event->joined = true;
        event->execution->state = COMPLETED;
        object_release(event->execution);
    }
    pthread_mutex_unlock(&event->lock);
    if (!event->started) return wait_fence(event->fence) ? NO_ERROR : OP_FAILED;
    return event->result;
}

SINCE_1 int ANeuralNetworksEvent_wait(Event *event) {
    int injected = host_enter(__func__, true, "%p", (void *)event); /* a wait that fails has waited all the same */
    REQUIRE_LIVE(event, EVENT);
    int code = wait_event(event);
    return injected ? injected : code;
}

SINCE_1 void ANeuralNetworksEvent_free(Event *event) {
    NOTE("%p", (void *)event);
    if (!event || !object_unregister(__func__, event, EVENT)) return;
    if (event->started && !event->joined) {
        host_violation("%s: freed before it was waited for", __func__);
        wait_event(event);
    }
    if (event->fence >= 0) close(event->fence);
    for (uint32_t i = 0; i < event->wait_count; i++) close(event->waits[i]);
    free(event->waits);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

SINCE_4 int ANeuralNetworksEvent_createFromSyncFenceFd(int fence, Event **event) {
    if (event) *event = NULL;
    ENTER("%d", fence);
    REQUIRE(event, UNEXPECTED_NULL, "event is null");
    REQUIRE(fence > 0, BAD_DATA, "fd %d", fence);
    int copy = dup(fence);
    REQUIRE(copy >= 0, BAD_DATA, "fd %d is not open", fence);
    *event = create_event(NULL);
    (*event)->fence = copy;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksEvent_getSyncFenceFd(Event *event, int *fence) {
    if (fence) *fence = -1;
    ENTER("%p", (void *)event);
    REQUIRE(event && fence, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(event, EVENT);
    REQUIRE(event->fence >= 0, BAD_DATA, "the event has no fence");
    *fence = dup(event->fence);
    return *fence >= 0 ? NO_ERROR : BAD_DATA;
}

SINCE_4 int ANeuralNetworksExecution_startComputeWithDependencies(Execution *execution, Event *const *dependencies,
                                                                  uint32_t count, uint64_t duration, Event **event) {
    if (event) *event = NULL;
    ENTER("%p, %u dependencies, %llu", (void *)execution, count, (unsigned long long)duration);
    REQUIRE(execution && event && (dependencies || !count), UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(execution, EXECUTION);
    REQUIRE(!duration || execution->compilation->device_count == 1, BAD_DATA, "a duration needs one chosen device");
    const ModelData *model = &execution->compilation->model->data;
    for (uint32_t i = 0; i < model->output_count; i++) {
        const Argument *output = &execution->outputs[i];
        REQUIRE(output->state == OMITTED || output->state == UNSET ||
                        data_size(model->operands[model->outputs[i]].type, output->rank, output->dimensions),
                BAD_DATA, "output %u is not fully specified", i);
    }
    for (uint32_t i = 0; i < count; i++) {
        REQUIRE_LIVE(dependencies[i], EVENT);
        if (dependencies[i]->fence < 0) REQUIRE(!wait_event(dependencies[i]), OP_FAILED, "dependency %u failed", i);
    }
    int code = start(__func__, execution);
    if (code) return code;
    Event *created = create_event(execution);
    created->timeout = duration;
    created->mode = ASYNC_WITH_DEPENDENCIES;
    created->waits = calloc(count + 1, sizeof(int));
    if (!created->waits) abort();
    for (uint32_t i = 0; i < count; i++)
        if (dependencies[i]->fence >= 0) created->waits[created->wait_count++] = dup(dependencies[i]->fence);
    int ends[2];
    if (host.fences && pipe(ends) == 0) {
        created->fence = ends[0];
        created->signal = ends[1];
    }
    *event = created;
    launch(created);
    return NO_ERROR;
}

static int require_results(const char *function, const Execution *execution, int32_t index) {
    if (execution->state != COMPLETED) return host_refuse(function, BAD_STATE, "no computation completed");
    if (execution->result && execution->result != OUTPUT_INSUFFICIENT_SIZE)
        return host_refuse(function, BAD_STATE, "the computation failed");
    if ((uint32_t)index >= execution->compilation->model->data.output_count)
        return host_refuse(function, BAD_DATA, "output %d is out of range", index);
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksExecution_getOutputOperandRank(Execution *execution, int32_t index, uint32_t *rank) {
    ENTER("%p, %d", (void *)execution, index);
    REQUIRE(execution && rank, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(execution, EXECUTION);
    int code = require_results(__func__, execution, index);
    if (code) return code;
    *rank = execution->results[index].rank;
    return execution->results[index].sufficient ? NO_ERROR : OUTPUT_INSUFFICIENT_SIZE;
}

SINCE_3 int ANeuralNetworksExecution_getOutputOperandDimensions(Execution *execution, int32_t index,
                                                                uint32_t *dimensions) {
    ENTER("%p, %d", (void *)execution, index);
    REQUIRE(execution && dimensions, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(execution, EXECUTION);
    int code = require_results(__func__, execution, index);
    if (code) return code;
    const Argument *result = &execution->results[index];
    REQUIRE(result->rank, BAD_DATA, "output %d is a scalar", index);
    memcpy(dimensions, result->dimensions, result->rank * sizeof(uint32_t));
    return result->sufficient ? NO_ERROR : OUTPUT_INSUFFICIENT_SIZE;
}

SINCE_3 int ANeuralNetworksExecution_getDuration(Execution *execution, int32_t code, uint64_t *duration) {
    if (duration) *duration = UINT64_MAX;
    ENTER("%p, %d", (void *)execution, code);
    REQUIRE(execution && duration, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(execution, EXECUTION);
    REQUIRE(code >= 0 && code <= (HOST_LEVEL >= 4 ? 3 : 1), BAD_DATA, "duration code %d", code);
    REQUIRE(execution->state == COMPLETED && !execution->result, BAD_STATE, "no computation succeeded");
    REQUIRE(execution->measure, BAD_STATE, "timing was not asked for");
    *duration = code % 2 ? execution->duration : execution->duration / 2;
    return NO_ERROR;
}
