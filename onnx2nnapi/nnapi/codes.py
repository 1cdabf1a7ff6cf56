"""NNAPI's enumerations, with the numbers of NeuralNetworksTypes.h and the feature level that brought each."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = [
    "CACHE_TOKEN_BYTES",
    "DTYPES",
    "MAX_IMMEDIATE_BYTES",
    "OEM_OPERATION",
    "OEM_SCALAR",
    "OPERAND_SINCE",
    "RESULT_SINCE",
    "TENSOR_OEM_BYTE",
    "DeviceTypeCode",
    "DurationCode",
    "FeatureLevelCode",
    "FuseCode",
    "OperandCode",
    "OperationCode",
    "PaddingCode",
    "PreferenceCode",
    "PriorityCode",
    "ResultCode",
]

MAX_IMMEDIATE_BYTES = 128  # setOperandValue copies values up to this size, and keeps a pointer to larger ones
CACHE_TOKEN_BYTES = 32
OEM_SCALAR, TENSOR_OEM_BYTE, OEM_OPERATION = 10000, 10001, 10000  # vendors' own: known by number, never accepted


class OperandCode(IntEnum):
    """The type of an operand (ANEURALNETWORKS_MODEL is spelled SUBGRAPH in model descriptions)."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14
    MODEL = 15

    @property
    def is_tensor(self) -> bool:
        """Whether the operand has dimensions (SUBGRAPH and the scalars have none)."""
        return _IS_TENSOR[self]

    @property
    def is_quantized(self) -> bool:
        """Whether the elements are codes that a scale gives a meaning."""
        return _IS_QUANTIZED[self]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """The numpy type of one element; KeyError for MODEL, which has no value."""
        return DTYPES[self]


# By number: these are asked for every operand of every operation, and an enumeration's names are slow to come by.
_IS_TENSOR = [code.name.startswith("TENSOR_") for code in OperandCode]
_IS_QUANTIZED = ["QUANT" in code.name for code in OperandCode]


class OperationCode(IntEnum):
    """The 106 operations."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    BATCH_TO_SPACE_ND = 29
    DIV = 30
    MEAN = 31
    PAD = 32
    SPACE_TO_BATCH_ND = 33
    SQUEEZE = 34
    STRIDED_SLICE = 35
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    ARGMAX = 39
    ARGMIN = 40
    AXIS_ALIGNED_BBOX_TRANSFORM = 41
    BIDIRECTIONAL_SEQUENCE_LSTM = 42
    BIDIRECTIONAL_SEQUENCE_RNN = 43
    BOX_WITH_NMS_LIMIT = 44
    CAST = 45
    CHANNEL_SHUFFLE = 46
    DETECTION_POSTPROCESSING = 47
    EQUAL = 48
    EXP = 49
    EXPAND_DIMS = 50
    GATHER = 51
    GENERATE_PROPOSALS = 52
    GREATER = 53
    GREATER_EQUAL = 54
    GROUPED_CONV_2D = 55
    HEATMAP_MAX_KEYPOINT = 56
    INSTANCE_NORMALIZATION = 57
    LESS = 58
    LESS_EQUAL = 59
    LOG = 60
    LOGICAL_AND = 61
    LOGICAL_NOT = 62
    LOGICAL_OR = 63
    LOG_SOFTMAX = 64
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    NOT_EQUAL = 68
    PAD_V2 = 69
    POW = 70
    PRELU = 71
    QUANTIZE = 72
    QUANTIZED_16BIT_LSTM = 73
    RANDOM_MULTINOMIAL = 74
    REDUCE_ALL = 75
    REDUCE_ANY = 76
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_PROD = 79
    REDUCE_SUM = 80
    ROI_ALIGN = 81
    ROI_POOLING = 82
    RSQRT = 83
    SELECT = 84
    SIN = 85
    SLICE = 86
    SPLIT = 87
    SQRT = 88
    TILE = 89
    TOPK_V2 = 90
    TRANSPOSE_CONV_2D = 91
    UNIDIRECTIONAL_SEQUENCE_LSTM = 92
    UNIDIRECTIONAL_SEQUENCE_RNN = 93
    RESIZE_NEAREST_NEIGHBOR = 94
    QUANTIZED_LSTM = 95
    IF = 96
    WHILE = 97
    ELU = 98
    HARD_SWISH = 99
    FILL = 100
    RANK = 101
    BATCH_MATMUL = 102
    PACK = 103
    MIRROR_PAD = 104
    REVERSE = 105


class FuseCode(IntEnum):
    """The activation that an operation applies to its result."""

    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3


class PaddingCode(IntEnum):
    """Implicit padding: SAME puts the odd cell at the end."""

    SAME = 1
    VALID = 2


class PreferenceCode(IntEnum):
    """What a compilation optimises for."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2


class PriorityCode(IntEnum):
    """How urgent an execution is against those of other applications."""

    LOW = 90
    MEDIUM = 100
    HIGH = 110
    DEFAULT = 100


class DeviceTypeCode(IntEnum):
    """What kind of hardware a device is."""

    UNKNOWN = 0
    OTHER = 1
    CPU = 2
    GPU = 3
    ACCELERATOR = 4


class FeatureLevelCode(IntEnum):
    """Feature levels as the C API spells them."""

    FEATURE_LEVEL_1 = 27
    FEATURE_LEVEL_2 = 28
    FEATURE_LEVEL_3 = 29
    FEATURE_LEVEL_4 = 30
    FEATURE_LEVEL_5 = 31
    FEATURE_LEVEL_6 = 1000006
    FEATURE_LEVEL_7 = 1000007
    FEATURE_LEVEL_8 = 1000008


class ResultCode(IntEnum):
    """What every function of the C API answers."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


class DurationCode(IntEnum):
    """What ANeuralNetworksExecution_getDuration measures."""

    DURATION_ON_HARDWARE = 0
    DURATION_IN_DRIVER = 1
    FENCED_DURATION_ON_HARDWARE = 2
    FENCED_DURATION_IN_DRIVER = 3


# The feature level that brought each OperandCode.
OPERAND_SINCE: dict[OperandCode, int] = {
    code: level
    for level, codes in {
        1: "FLOAT32 INT32 UINT32 TENSOR_FLOAT32 TENSOR_INT32 TENSOR_QUANT8_ASYMM",
        3: (
            "BOOL TENSOR_QUANT16_SYMM TENSOR_FLOAT16 TENSOR_BOOL8 FLOAT16 TENSOR_QUANT8_SYMM_PER_CHANNEL "
            "TENSOR_QUANT16_ASYMM TENSOR_QUANT8_SYMM"
        ),
        4: "TENSOR_QUANT8_ASYMM_SIGNED MODEL",
    }.items()
    for code in map(OperandCode.__getitem__, codes.split())
}


# The feature level that brought each ResultCode.
RESULT_SINCE: dict[ResultCode, int] = {
    code: level
    for level, codes in {
        1: (
            "NO_ERROR OUT_OF_MEMORY INCOMPLETE UNEXPECTED_NULL BAD_DATA OP_FAILED BAD_STATE UNMAPPABLE "
            "OUTPUT_INSUFFICIENT_SIZE UNAVAILABLE_DEVICE"
        ),
        4: (
            "MISSED_DEADLINE_TRANSIENT MISSED_DEADLINE_PERSISTENT RESOURCE_EXHAUSTED_TRANSIENT "
            "RESOURCE_EXHAUSTED_PERSISTENT DEAD_OBJECT"
        ),
    }.items()
    for code in map(ResultCode.__getitem__, codes.split())
}

DTYPES: dict[OperandCode, np.dtype[np.generic]] = {
    code: np.dtype(name)
    for name, codes in {
        "float32": "FLOAT32 TENSOR_FLOAT32",
        "float16": "FLOAT16 TENSOR_FLOAT16",
        "int32": "INT32 TENSOR_INT32",
        "uint32": "UINT32",
        "bool": "BOOL TENSOR_BOOL8",
        "uint8": "TENSOR_QUANT8_ASYMM",
        "int8": "TENSOR_QUANT8_ASYMM_SIGNED TENSOR_QUANT8_SYMM TENSOR_QUANT8_SYMM_PER_CHANNEL",
        "int16": "TENSOR_QUANT16_SYMM",
        "uint16": "TENSOR_QUANT16_ASYMM",
    }.items()
    for code in map(OperandCode.__getitem__, codes.split())
}
