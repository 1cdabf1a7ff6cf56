/* ANeuralNetworksModel: operands, constants, operations, and the structure that finish() checks. */
#include "host.h"

#include <stdlib.h>
#include <string.h>

static void *copied(const void *data, size_t size) {
    void *copy = malloc(size ? size : 1);
    if (!copy) abort();
    if (size) memcpy(copy, data, size);
    return copy;
}

static void *grown(void *array, uint32_t count, size_t item) {
    void *larger = realloc(array, ((size_t)count + 1) * item);
    if (!larger) abort();
    return larger;
}

/* OperandCode -> bytes of one element, the level that brought it, whether it is a tensor. */
static const struct {
    uint8_t bytes, level;
    bool tensor;
} TYPES[] = {{4, 1, 0}, {4, 1, 0}, {4, 1, 0}, {4, 1, 1}, {4, 1, 1}, {1, 1, 1}, {1, 3, 0}, {2, 3, 1},
             {2, 3, 1}, {1, 3, 1}, {2, 3, 0}, {1, 3, 1}, {2, 3, 1}, {1, 3, 1}, {1, 4, 1}, {0, 4, 0}};

static bool is_extension(int32_t type) { return type > 0 && (type >> EXTENSION_SHIFT) != 0; }

bool is_tensor(int32_t type) { return is_extension(type) || TYPES[type].tensor; }

uint32_t element_size(int32_t type) { return is_extension(type) ? 1 : TYPES[type].bytes; }

uint64_t data_size(int32_t type, uint32_t rank, const uint32_t *dimensions) {
    if (!is_tensor(type)) return element_size(type);
    uint64_t size = rank ? element_size(type) : 0;
    for (uint32_t i = 0; i < rank; i++) size *= dimensions[i];
    return size;
}

bool dimensions_agree(uint32_t rank, const uint32_t *old, uint32_t new_rank, const uint32_t *new) {
    if (!rank || !new_rank) return true;
    if (rank != new_rank) return false;
    for (uint32_t i = 0; i < rank; i++)
        if (old[i] && new[i] && old[i] != new[i]) return false;
    return true;
}

int check_operand_type(const char *function, const OperandType *type) {
    if (is_extension(type->type))
        return (uint32_t)(type->type >> EXTENSION_SHIFT) <= host.device_count
                       ? NO_ERROR
                       : host_refuse(function, BAD_DATA, "type %d is of no known extension", type->type);
    if (type->type < 0 || type->type > MODEL_OPERAND || TYPES[type->type].level > HOST_LEVEL)
        return host_refuse(function, BAD_DATA, "unknown operand type %d", type->type);
    if ((type->rank == 0) != (type->dimensions == NULL))
        return host_refuse(function, BAD_DATA, "%u dimensions at %p", type->rank, (const void *)type->dimensions);
    if (type->rank > MAX_RANK) return host_refuse(function, BAD_DATA, "rank %u", type->rank);
    if (!is_tensor(type->type) && type->rank) return host_refuse(function, BAD_DATA, "a scalar with dimensions");
    if (is_tensor(type->type) && !type->rank && HOST_LEVEL < 3)
        return host_refuse(function, BAD_DATA, "a tensor of unspecified rank needs level 3");
    int32_t low = 0, high = 0;
    bool scaled = true;
    switch (type->type) {
        case TENSOR_QUANT8_ASYMM: high = 255; break;
        case TENSOR_QUANT16_ASYMM: high = 65535; break;
        case TENSOR_QUANT8_ASYMM_SIGNED: low = -128, high = 127; break;
        case TENSOR_QUANT8_SYMM:
        case TENSOR_QUANT16_SYMM: break;
        default: scaled = false;
    }
    if (type->type == TENSOR_INT32) return NO_ERROR; /* may be a bias with a scale */
    if (type->zero_point < low || type->zero_point > high)
        return host_refuse(function, BAD_DATA, "zero point %d of type %d", type->zero_point, type->type);
    if (scaled ? !(type->scale > 0) : type->scale != 0)
        return host_refuse(function, BAD_DATA, "scale %g of type %d", (double)type->scale, type->type);
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksModel_create(Model **model) {
    if (model) *model = NULL;
    ENTER("%p", (void *)model);
    REQUIRE(model, UNEXPECTED_NULL, "model is null");
    static uint64_t serial;
    Model *created = calloc(1, sizeof *created);
    if (!created) return OUT_OF_MEMORY;
    created->data.serial = __atomic_add_fetch(&serial, 1, __ATOMIC_SEQ_CST);
    object_register(created, MODEL);
    *model = created;
    return NO_ERROR;
}

SINCE_1 void ANeuralNetworksModel_free(Model *model) {
    NOTE("%p", (void *)model);
    if (!model || !object_unregister(__func__, model, MODEL)) return;
    for (uint32_t i = 0; i < model->need_count; i++) object_release(model->needs[i]);
    free(model->needs);
    for (uint32_t i = 0; i < model->data.operand_count; i++) {
        Operand *operand = &model->data.operands[i];
        free(operand->dimensions);
        free(operand->scales);
        if (operand->lifetime == CONSTANT && operand->length <= 128) free((void *)operand->value);
    }
    for (uint32_t i = 0; i < model->data.operation_count; i++) {
        free(model->data.operations[i].inputs);
        free(model->data.operations[i].outputs);
    }
    free(model->data.operands);
    free(model->data.operations);
    free(model->data.inputs);
    free(model->data.outputs);
    free(model);
}

#define REQUIRE_MODIFIABLE(model)                                                          \
    do {                                                                                   \
        REQUIRE_LIVE(model, MODEL);                                                        \
        REQUIRE(!(model)->finished && !(model)->invalid, BAD_STATE, "the model is finished"); \
    } while (0)
#define REQUIRE_OPERAND(model, index)                                                      \
    REQUIRE((uint32_t)(index) < (model)->data.operand_count, BAD_DATA, "operand %d of %u", (int)(index), \
            (model)->data.operand_count)

SINCE_1 int ANeuralNetworksModel_addOperand(Model *model, const OperandType *type) {
    ENTER("%p, type=%d, rank=%u", (void *)model, type ? type->type : -1, type ? type->rank : 0);
    REQUIRE(model && type, UNEXPECTED_NULL, "model or type is null");
    REQUIRE_MODIFIABLE(model);
    int code = check_operand_type(__func__, type);
    if (code) return code;
    ModelData *data = &model->data;
    data->operands = grown(data->operands, data->operand_count, sizeof(Operand));
    data->operands[data->operand_count++] = (Operand){
            .type = type->type,
            .rank = type->rank,
            .dimensions = copied(type->dimensions, type->rank * sizeof(uint32_t)),
            .scale = type->scale,
            .zero_point = type->zero_point,
    };
    return NO_ERROR;
}

static void need(Model *model, void *object) {
    object_use(object);
    model->needs = grown(model->needs, model->need_count, sizeof *model->needs);
    model->needs[model->need_count++] = object;
}

SINCE_1 int ANeuralNetworksModel_setOperandValue(Model *model, int32_t index, const void *buffer, size_t length) {
    ENTER("%p, %d, length=%zu", (void *)model, index, length);
    REQUIRE(model && (buffer || !length), UNEXPECTED_NULL, "model or buffer is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE_OPERAND(model, index);
    Operand *operand = &model->data.operands[index];
    REQUIRE(operand->lifetime == TEMPORARY, BAD_DATA, "operand %d has a value already", index);
    if (!buffer) {
        operand->lifetime = NO_VALUE;
        return NO_ERROR;
    }
    REQUIRE(length, BAD_DATA, "a buffer of no bytes");
    uint64_t needed = data_size(operand->type, operand->rank, operand->dimensions);
    REQUIRE(is_extension(operand->type) || needed == length, BAD_DATA, "operand %d: %zu bytes, not %llu", index, length,
            (unsigned long long)needed);
    operand->lifetime = CONSTANT;
    operand->length = length;
    operand->value = length <= 128 ? copied(buffer, length) : buffer;
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksModel_setOperandValueFromMemory(Model *model, int32_t index, Memory *memory, size_t offset,
                                                           size_t length) {
    ENTER("%p, %d, memory=%p, offset=%zu, length=%zu", (void *)model, index, (void *)memory, offset, length);
    REQUIRE(model && memory, UNEXPECTED_NULL, "model or memory is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE_LIVE(memory, MEMORY);
    REQUIRE_OPERAND(model, index);
    Operand *operand = &model->data.operands[index];
    REQUIRE(operand->lifetime == TEMPORARY, BAD_DATA, "operand %d has a value already", index);
    REQUIRE(memory->constant_allowed, BAD_DATA, "this kind of memory holds no constants");
    uint64_t needed = data_size(operand->type, operand->rank, operand->dimensions);
    REQUIRE(needed && needed == length, BAD_DATA, "operand %d: %zu bytes, not %llu", index, length,
            (unsigned long long)needed);
    REQUIRE(offset <= memory->size && length <= memory->size - offset, BAD_DATA, "beyond the memory's end");
    REQUIRE(offset % element_size(operand->type) == 0, BAD_DATA, "offset %zu is not aligned for its type", offset);
    operand->lifetime = CONSTANT;
    operand->length = length;
    /* A small value is copied as setOperandValue would, so that freeing is alike. */
    const char *source = (const char *)memory->data + offset;
    operand->value = length <= 128 ? copied(source, length) : source;
    model->has_file_memory |= memory->is_file;
    need(model, memory);
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksModel_setOperandValueFromModel(Model *model, int32_t index, Model *value) {
    ENTER("%p, %d, %p", (void *)model, index, (void *)value);
    REQUIRE(model && value, UNEXPECTED_NULL, "model or value is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE_LIVE(value, MODEL);
    REQUIRE(value->finished && !value->invalid, BAD_STATE, "the referenced model is not finished");
    REQUIRE_OPERAND(model, index);
    Operand *operand = &model->data.operands[index];
    REQUIRE(operand->type == MODEL_OPERAND, BAD_DATA, "operand %d is no model", index);
    operand->lifetime = SUBGRAPH;
    operand->subgraph = &value->data;
    model->has_file_memory |= value->has_file_memory;
    need(model, value);
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksModel_setOperandSymmPerChannelQuantParams(Model *model, int32_t index,
                                                                     const ChannelQuant *quant) {
    ENTER("%p, %d", (void *)model, index);
    REQUIRE(model && quant, UNEXPECTED_NULL, "model or channelQuant is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE_OPERAND(model, index);
    Operand *operand = &model->data.operands[index];
    REQUIRE(operand->type == TENSOR_QUANT8_SYMM_PER_CHANNEL, BAD_DATA, "operand %d has no channels", index);
    REQUIRE(quant->channel < operand->rank && quant->scales &&
                    quant->count == operand->dimensions[quant->channel] && quant->count,
            BAD_DATA, "%u scales for dimension %u", quant->count, quant->channel);
    for (uint32_t i = 0; i < quant->count; i++) REQUIRE(quant->scales[i] > 0, BAD_DATA, "scale %u is not positive", i);
    free(operand->scales);
    operand->channel = quant->channel;
    operand->scale_count = quant->count;
    operand->scales = copied(quant->scales, quant->count * sizeof(float));
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksModel_addOperation(Model *model, int32_t type, uint32_t input_count, const uint32_t *inputs,
                                              uint32_t output_count, const uint32_t *outputs) {
    ENTER("%p, type=%d, inputs=%u, outputs=%u", (void *)model, type, input_count, output_count);
    REQUIRE(model && inputs && outputs, UNEXPECTED_NULL, "model, inputs or outputs is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE(type >= 0 && (type <= 105 || is_extension(type)), BAD_DATA, "unknown operation %d", type);
    REQUIRE(input_count && output_count, BAD_DATA, "an operation needs inputs and outputs");
    for (uint32_t i = 0; i < input_count; i++) REQUIRE_OPERAND(model, inputs[i]);
    for (uint32_t i = 0; i < output_count; i++) REQUIRE_OPERAND(model, outputs[i]);
    ModelData *data = &model->data;
    data->operations = grown(data->operations, data->operation_count, sizeof(Operation));
    data->operations[data->operation_count++] = (Operation){
            .type = type,
            .input_count = input_count,
            .inputs = copied(inputs, input_count * sizeof(uint32_t)),
            .output_count = output_count,
            .outputs = copied(outputs, output_count * sizeof(uint32_t)),
    };
    return NO_ERROR;
}

SINCE_1 int ANeuralNetworksModel_identifyInputsAndOutputs(Model *model, uint32_t input_count, const uint32_t *inputs,
                                                          uint32_t output_count, const uint32_t *outputs) {
    ENTER("%p, inputs=%u, outputs=%u", (void *)model, input_count, output_count);
    REQUIRE(model && inputs && outputs, UNEXPECTED_NULL, "model, inputs or outputs is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE(input_count && output_count, BAD_DATA, "a model needs at least one input and one output");
    REQUIRE(!model->data.inputs, BAD_DATA, "inputs and outputs are identified already");
    for (int output = 0; output < 2; output++) {
        const uint32_t *list = output ? outputs : inputs;
        for (uint32_t i = 0; i < (output ? output_count : input_count); i++) {
            REQUIRE_OPERAND(model, list[i]);
            Operand *operand = &model->data.operands[list[i]];
            REQUIRE(operand->lifetime == TEMPORARY, BAD_DATA, "operand %u is a constant, an input or an output already",
                    list[i]);
            operand->lifetime = output ? OUTPUT : INPUT;
        }
    }
    model->data.input_count = input_count;
    model->data.inputs = copied(inputs, input_count * sizeof(uint32_t));
    model->data.output_count = output_count;
    model->data.outputs = copied(outputs, output_count * sizeof(uint32_t));
    return NO_ERROR;
}

SINCE_2 int ANeuralNetworksModel_relaxComputationFloat32toFloat16(Model *model, bool allow) {
    ENTER("%p, %d", (void *)model, allow);
    REQUIRE_MODIFIABLE(model);
    model->data.relaxed = allow;
    return NO_ERROR;
}

/* Every operand is an input, a constant, or written by one operation, and the operations have an order to run in. */
static int check_structure(const char *function, ModelData *data) {
    if (!data->inputs) return host_refuse(function, BAD_DATA, "no inputs and outputs are identified");
    bool *known = calloc(data->operand_count + 1, sizeof *known), *done = calloc(data->operation_count + 1, sizeof *done);
    int *writers = calloc(data->operand_count + 1, sizeof *writers);
    if (!known || !done || !writers) abort();
    int code = NO_ERROR;
    for (uint32_t i = 0; i < data->operation_count; i++)
        for (uint32_t j = 0; j < data->operations[i].output_count; j++) writers[data->operations[i].outputs[j]]++;
    for (uint32_t i = 0; i < data->operand_count && !code; i++) {
        Operand *operand = &data->operands[i];
        bool written = operand->lifetime == TEMPORARY || operand->lifetime == OUTPUT;
        known[i] = !written;
        if (writers[i] != (written ? 1 : 0))
            code = host_refuse(function, BAD_DATA, "operand %u (lifetime %d) is written %d times", i, operand->lifetime,
                               writers[i]);
        else if (operand->type == TENSOR_QUANT8_SYMM_PER_CHANNEL && !operand->scales)
            code = host_refuse(function, BAD_DATA, "operand %u has no scales of its channels", i);
        else if (operand->type == MODEL_OPERAND && operand->lifetime != SUBGRAPH)
            code = host_refuse(function, BAD_DATA, "operand %u refers to no model", i);
    }
    uint32_t left = data->operation_count;
    for (bool moved = true; left && moved && !code;) {
        moved = false;
        for (uint32_t i = 0; i < data->operation_count; i++) {
            Operation *operation = &data->operations[i];
            bool ready = !done[i];
            for (uint32_t j = 0; j < operation->input_count && ready; j++) ready = known[operation->inputs[j]];
            if (!ready) continue;
            for (uint32_t j = 0; j < operation->output_count; j++) known[operation->outputs[j]] = true;
            done[i] = moved = true;
            left--;
        }
    }
    if (!code && left) code = host_refuse(function, BAD_DATA, "%u operations form a cycle", left);
    free(known);
    free(done);
    free(writers);
    return code;
}

SINCE_1 int ANeuralNetworksModel_finish(Model *model) {
    ENTER("%p", (void *)model);
    REQUIRE_MODIFIABLE(model);
    int code = check_structure(__func__, &model->data);
    if (!code) {
        host_attach_python();
        int level = host.validate ? host.validate(&model->data) : 1;
        if (level < 0 || level > HOST_LEVEL)
            code = host_refuse(__func__, BAD_DATA, "the model is invalid, or needs level %d of %d", level, HOST_LEVEL);
    }
    model->invalid = code != NO_ERROR;
    model->finished = !model->invalid;
    return code;
}

int extension_type(const char *function, const char *name, uint16_t code, int32_t *type) {
    for (uint32_t i = 0; i < host.device_count; i++)
        if (host.devices[i].extension[0] && !strcmp(host.devices[i].extension, name)) {
            *type = (int32_t)((i + 1) << EXTENSION_SHIFT | code);
            return NO_ERROR;
        }
    return host_refuse(function, BAD_DATA, "no device has extension %s", name);
}

SINCE_3 int ANeuralNetworksModel_getExtensionOperandType(Model *model, const char *name, uint16_t code, int32_t *type) {
    ENTER("%p, %s, %u", (void *)model, name ? name : "null", code);
    REQUIRE(model && name && type, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(model, MODEL);
    return extension_type(__func__, name, code, type);
}

SINCE_3 int ANeuralNetworksModel_getExtensionOperationType(Model *model, const char *name, uint16_t code,
                                                           int32_t *type) {
    ENTER("%p, %s, %u", (void *)model, name ? name : "null", code);
    REQUIRE(model && name && type, UNEXPECTED_NULL, "an argument is null");
    REQUIRE_LIVE(model, MODEL);
    return extension_type(__func__, name, code, type);
}

SINCE_3 int ANeuralNetworksModel_setOperandExtensionData(Model *model, int32_t index, const void *data, size_t length) {
    ENTER("%p, %d, length=%zu", (void *)model, index, length);
    REQUIRE(model && (data || !length), UNEXPECTED_NULL, "model or data is null");
    REQUIRE_MODIFIABLE(model);
    REQUIRE_OPERAND(model, index);
    REQUIRE(is_extension(model->data.operands[index].type), BAD_DATA, "operand %d is of no extension", index);
    return NO_ERROR;
}
