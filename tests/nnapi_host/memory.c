/* ANeuralNetworksMemory and its descriptors: mapped files, hardware buffers, and a device's own memory. */
#include "host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    Object object;
    bool finished;
    int32_t type; /* -1: no role yet */
    float scale;
    int32_t zero_point;
    uint32_t rank;
    uint32_t dimensions[MAX_RANK];
    Role *roles;
    uint32_t role_count;
} MemoryDesc;

SINCE_1 int ANeuralNetworksMemory_createFromFd(size_t size, int protect, int fd, size_t offset, Memory **memory) {
    if (memory) *memory = NULL;
    ENTER("size=%zu, protect=%d, fd=%d, offset=%zu", size, protect, fd, offset);
    REQUIRE(memory, UNEXPECTED_NULL, "memory is null");
    REQUIRE((protect & ~(PROT_READ | PROT_WRITE)) == 0, BAD_DATA, "protection %d", protect);
    REQUIRE(offset % (size_t)sysconf(_SC_PAGESIZE) == 0, BAD_DATA, "offset %zu is not on a page", offset);
    struct stat status;
    REQUIRE(fd >= 0 && fstat(fd, &status) == 0, BAD_DATA, "fd %d is not open", fd);
    bool is_file = S_ISREG(status.st_mode) && status.st_nlink > 0;
    REQUIRE(!(is_file && host.mapping == FILES_UNMAPPABLE), UNMAPPABLE, "files cannot be mapped");
    REQUIRE(size && offset <= (size_t)status.st_size && size <= (size_t)status.st_size - offset, BAD_DATA,
            "%zu bytes from %zu of a file of %lld", size, offset, (long long)status.st_size);
    void *data = mmap(NULL, size, protect, MAP_SHARED, fd, (off_t)offset);
    REQUIRE(data != MAP_FAILED, UNMAPPABLE, "mmap: %s", strerror(errno));
    Memory *created = calloc(1, sizeof *created);
    if (!created) abort();
    created->data = data;
    created->size = size;
    created->mapped = created->constant_allowed = created->initialized = true;
    created->is_file = is_file;
    object_register(created, MEMORY);
    *memory = created;
    return NO_ERROR;
}

SINCE_3 int ANeuralNetworksMemory_createFromAHardwareBuffer(const HardwareBuffer *buffer, Memory **memory) {
    if (memory) *memory = NULL;
    ENTER("%p", (const void *)buffer);
    REQUIRE(buffer && memory, UNEXPECTED_NULL, "an argument is null");
    REQUIRE(buffer->magic == HARDWARE_BUFFER_MAGIC, BAD_DATA, "no AHardwareBuffer");
    Memory *created = calloc(1, sizeof *created);
    if (!created) abort();
    created->data = buffer->data;
    created->size = buffer->size;
    created->constant_allowed = buffer->blob;
    created->whole_only = !buffer->blob;
    created->initialized = true;
    object_register(created, MEMORY);
    *memory = created;
    return NO_ERROR;
}

SINCE_1 void ANeuralNetworksMemory_free(Memory *memory) {
    NOTE("%p", (void *)memory);
    if (!memory || !object_unregister(__func__, memory, MEMORY)) return;
    if (memory->mapped) munmap(memory->data, memory->size);
    if (memory->from_desc) free(memory->data);
    free(memory->roles);
    free(memory);
}

SINCE_4 int ANeuralNetworksMemoryDesc_create(MemoryDesc **desc) {
    if (desc) *desc = NULL;
    ENTER("%p", (void *)desc);
    REQUIRE(desc, UNEXPECTED_NULL, "desc is null");
    MemoryDesc *created = calloc(1, sizeof *created);
    if (!created) abort();
    created->type = -1;
    object_register(created, MEMORY_DESC);
    *desc = created;
    return NO_ERROR;
}

SINCE_4 void ANeuralNetworksMemoryDesc_free(MemoryDesc *desc) {
    NOTE("%p", (void *)desc);
    if (!desc || !object_unregister(__func__, desc, MEMORY_DESC)) return;
    for (uint32_t i = 0; i < desc->role_count; i++) object_release((void *)desc->roles[i].compilation);
    free(desc->roles);
    free(desc);
}

#define REQUIRE_UNFINISHED(desc)                                                          \
    do {                                                                                  \
        REQUIRE_LIVE(desc, MEMORY_DESC);                                                  \
        REQUIRE(!(desc)->finished, BAD_STATE, "the descriptor is finished");              \
    } while (0)

static void merge_dimensions(MemoryDesc *desc, uint32_t rank, const uint32_t *dimensions) {
    if (!rank) return;
    desc->rank = rank;
    for (uint32_t i = 0; i < rank; i++)
        if (dimensions[i]) desc->dimensions[i] = dimensions[i];
}

static int add_role(const char *function, MemoryDesc *desc, Compilation *compilation, bool is_output, uint32_t index,
                    float frequency) {
    if (!compilation->finished || !compilation->valid)
        return host_refuse(function, BAD_DATA, "the compilation is not finished");
    const ModelData *model = &compilation->model->data;
    if (index >= (is_output ? model->output_count : model->input_count))
        return host_refuse(function, BAD_DATA, "index %u is out of range", index);
    if (!(frequency > 0 && frequency <= 1)) return host_refuse(function, BAD_DATA, "frequency %g", (double)frequency);
    for (uint32_t i = 0; i < desc->role_count; i++)
        if (desc->roles[i].compilation == compilation && desc->roles[i].is_output == is_output &&
            desc->roles[i].index == index)
            return host_refuse(function, BAD_DATA, "the same role twice");
    const Operand *operand = &model->operands[(is_output ? model->outputs : model->inputs)[index]];
    if (desc->type >= 0 && (desc->type != operand->type || desc->scale != operand->scale ||
                            desc->zero_point != operand->zero_point))
        return host_refuse(function, BAD_DATA, "roles of different types");
    if (!is_tensor(operand->type) && desc->rank) return host_refuse(function, BAD_DATA, "a scalar with dimensions");
    if (!dimensions_agree(desc->rank, desc->dimensions, operand->rank, operand->dimensions))
        return host_refuse(function, BAD_DATA, "incompatible dimensions");
    desc->roles = realloc(desc->roles, (desc->role_count + 1) * sizeof(Role));
    if (!desc->roles) abort();
    desc->roles[desc->role_count++] = (Role){compilation, is_output, index};
    desc->type = operand->type;
    desc->scale = operand->scale;
    desc->zero_point = operand->zero_point;
    merge_dimensions(desc, operand->rank, operand->dimensions);
    object_use(compilation);
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksMemoryDesc_addInputRole(MemoryDesc *desc, Compilation *compilation, uint32_t index,
                                                   float frequency) {
    ENTER("%p, %p, %u, %g", (void *)desc, (void *)compilation, index, (double)frequency);
    REQUIRE(desc && compilation, UNEXPECTED_NULL, "desc or compilation is null");
    REQUIRE_UNFINISHED(desc);
    REQUIRE_LIVE(compilation, COMPILATION);
    return add_role(__func__, desc, compilation, false, index, frequency);
}

SINCE_4 int ANeuralNetworksMemoryDesc_addOutputRole(MemoryDesc *desc, Compilation *compilation, uint32_t index,
                                                    float frequency) {
    ENTER("%p, %p, %u, %g", (void *)desc, (void *)compilation, index, (double)frequency);
    REQUIRE(desc && compilation, UNEXPECTED_NULL, "desc or compilation is null");
    REQUIRE_UNFINISHED(desc);
    REQUIRE_LIVE(compilation, COMPILATION);
    return add_role(__func__, desc, compilation, true, index, frequency);
}

SINCE_4 int ANeuralNetworksMemoryDesc_setDimensions(MemoryDesc *desc, uint32_t rank, const uint32_t *dimensions) {
    ENTER("%p, rank=%u", (void *)desc, rank);
    REQUIRE(desc && (dimensions || !rank), UNEXPECTED_NULL, "desc or dimensions is null");
    REQUIRE_UNFINISHED(desc);
    REQUIRE(rank <= MAX_RANK && !(rank && desc->type >= 0 && !is_tensor(desc->type)), BAD_DATA, "rank %u", rank);
    REQUIRE(dimensions_agree(desc->rank, desc->dimensions, rank, dimensions), BAD_DATA, "incompatible dimensions");
    merge_dimensions(desc, rank, dimensions);
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksMemoryDesc_finish(MemoryDesc *desc) {
    ENTER("%p", (void *)desc);
    REQUIRE_UNFINISHED(desc);
    REQUIRE(desc->role_count, BAD_DATA, "no role was added");
    desc->finished = true;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksMemory_createFromDesc(MemoryDesc *desc, Memory **memory) {
    if (memory) *memory = NULL;
    ENTER("%p", (void *)desc);
    REQUIRE(desc && memory, UNEXPECTED_NULL, "desc or memory is null");
    REQUIRE_LIVE(desc, MEMORY_DESC);
    REQUIRE(desc->finished, BAD_STATE, "the descriptor is not finished");
    uint64_t size = data_size(desc->type, desc->rank, desc->dimensions);
    REQUIRE(size, OP_FAILED, "memory of unspecified dimensions is not supported");
    Memory *created = calloc(1, sizeof *created);
    if (!created) abort();
    created->data = calloc(1, size);
    if (!created->data) abort();
    created->size = size;
    created->from_desc = created->whole_only = true;
    created->type = desc->type;
    created->rank = created->initial_rank = desc->rank;
    memcpy(created->dimensions, desc->dimensions, sizeof desc->dimensions);
    memcpy(created->initial_dimensions, desc->dimensions, sizeof desc->dimensions);
    created->roles = malloc(desc->role_count * sizeof(Role));
    if (!created->roles) abort();
    memcpy(created->roles, desc->roles, desc->role_count * sizeof(Role));
    created->role_count = desc->role_count;
    object_register(created, MEMORY);
    *memory = created;
    return NO_ERROR;
}

SINCE_4 int ANeuralNetworksMemory_copy(Memory *source, Memory *target) {
    ENTER("%p, %p", (void *)source, (void *)target);
    REQUIRE(source && target, UNEXPECTED_NULL, "src or dst is null");
    REQUIRE_LIVE(source, MEMORY);
    REQUIRE_LIVE(target, MEMORY);
    if (source == target) return NO_ERROR;
    bool fits = source->initialized && source->size == target->size;
    if (source->from_desc && target->from_desc)
        fits = fits && dimensions_agree(source->rank, source->dimensions, target->rank, target->dimensions);
    if (target->from_desc) target->initialized = fits;
    REQUIRE(fits, BAD_DATA, "the source is uninitialized, or the sizes differ: %llu and %llu",
            (unsigned long long)source->size, (unsigned long long)target->size);
    memcpy(target->data, source->data, source->size);
    return NO_ERROR;
}
