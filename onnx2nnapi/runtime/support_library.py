"""NNAPI Support Library drivers: libraries that hand out NNAPI's functions as one struct, of feature levels 5 to 8.

Semantics and layout: NeuralNetworksSupportLibraryImpl.h. A driver lacks Compilation_create and startCompute: it has
no CPU to fall back to, so devices are always chosen, and asynchronous runs are fenced ones.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_uint8, c_uint16, c_uint32
from ctypes import c_uint64 as _u64
from ctypes import c_void_p as _handle
from enum import IntEnum

from onnx2nnapi.runtime.bindings import FUNCTIONS, CType, Function

__all__ = [
    "DRIVER_FUNCTIONS",
    "GET_DRIVER",
    "CompilationFinishedCallback",
    "DataClass",
    "DiagnosticResultCode",
    "DriverImpl",
    "ExecutionFinishedCallback",
    "ExecutionMode",
    "ExtensionOperandTypeInformation",
    "OperandPerformanceCallback",
    "OperandPerformanceInfo",
    "OperandTypeCallback",
    "PerformanceInfo",
    "PerformanceInfoCode",
    "driver_addresses",
]

GET_DRIVER = "ANeuralNetworks_getSLDriverImpl"
_EXTRA_ATTRIBUTES_FROM = 1000008  # FeatureLevelCode.FEATURE_LEVEL_8, whose struct has two functions more


class PerformanceInfo(ctypes.Structure):
    """Time and energy of the reference workload against the CPU's; lower is better."""

    _fields_ = (("execTime", c_float), ("powerUsage", c_float))


class OperandPerformanceInfo(ctypes.Structure):
    """The performance on one operand type."""

    _fields_ = (("operandType", c_int32), ("performanceInfo", PerformanceInfo))


class ExtensionOperandTypeInformation(ctypes.Structure):
    """An operand type of a vendor's extension; byteSize is that of a scalar or of one element."""

    _fields_ = (("byteSize", c_uint32), ("type", c_uint16), ("isTensor", c_bool))


class PerformanceInfoCode(IntEnum):
    """What SL_ANeuralNetworksDevice_getPerformanceInfo is asked for."""

    RELAXED_SCALAR = 0
    RELAXED_TENSOR = 1
    IF = 2
    WHILE = 3


class DiagnosticResultCode(IntEnum):
    """Results of the driver's registration."""

    NO_ERROR = 0
    FAILED_TO_LOAD_SL = 1
    FAILED_TO_REGISTER_SERVICE = 2
    GENERAL_ERROR = 3
    INVALID_ARGUMENT = 4


class DataClass(IntEnum):
    """The kind of a model's inputs or outputs, in a diagnostic."""

    UNKNOWN = 0
    OTHER = 1
    FLOAT32 = 2
    FLOAT16 = 3
    QUANT = 4
    MIXED = 5


class ExecutionMode(IntEnum):
    """How an execution was started, in a diagnostic."""

    UNKNOWN = 0
    ASYNC = 1
    SYNC = 2
    BURST = 3
    ASYNC_WITH_DEPS = 4


OperandPerformanceCallback = CFUNCTYPE(None, OperandPerformanceInfo, _handle)
OperandTypeCallback = CFUNCTYPE(None, ExtensionOperandTypeInformation, _handle)
CompilationFinishedCallback = CFUNCTYPE(None, _handle, _handle)
ExecutionFinishedCallback = CFUNCTYPE(None, _handle, _handle)

# The driver's struct in order. Names without prefix are ANeuralNetworks…, those of _OWN are SL_ANeuralNetworks….
_SHARED = """
Burst_create Burst_free
Compilation_createForDevices Compilation_finish Compilation_free
Compilation_getPreferredMemoryAlignmentForInput Compilation_getPreferredMemoryAlignmentForOutput
Compilation_getPreferredMemoryPaddingForInput Compilation_getPreferredMemoryPaddingForOutput
Compilation_setCaching Compilation_setPreference Compilation_setPriority Compilation_setTimeout
Device_getExtensionSupport Device_getFeatureLevel Device_getName Device_getType Device_getVersion Device_wait
Event_createFromSyncFenceFd Event_free Event_getSyncFenceFd Event_wait
Execution_burstCompute Execution_compute Execution_create Execution_enableInputAndOutputPadding Execution_free
Execution_getDuration Execution_getOutputOperandDimensions Execution_getOutputOperandRank
Execution_setInput Execution_setInputFromMemory Execution_setLoopTimeout Execution_setMeasureTiming
Execution_setOutput Execution_setOutputFromMemory Execution_setReusable Execution_setTimeout
Execution_startComputeWithDependencies
MemoryDesc_addInputRole MemoryDesc_addOutputRole MemoryDesc_create MemoryDesc_finish MemoryDesc_free
MemoryDesc_setDimensions
Memory_copy Memory_createFromAHardwareBuffer Memory_createFromDesc Memory_createFromFd Memory_free
Model_addOperand Model_addOperation Model_create Model_finish Model_free
Model_getExtensionOperandType Model_getExtensionOperationType Model_getSupportedOperationsForDevices
Model_identifyInputsAndOutputs Model_relaxComputationFloat32toFloat16 Model_setOperandExtensionData
Model_setOperandSymmPerChannelQuantParams Model_setOperandValue Model_setOperandValueFromMemory
Model_setOperandValueFromModel
_getDefaultLoopTimeout _getDevice _getDeviceCount _getMaximumLoopTimeout _getRuntimeFeatureLevel
"""

_u32 = POINTER(c_uint32)
_fds = POINTER(c_int)
_OWN: dict[str, tuple[CType, tuple[CType, ...]]] = {
    "Compilation_setCachingFromFds": (c_int, (_handle, _fds, c_uint32, _fds, c_uint32, c_char_p)),
    "Device_getNumberOfCacheFilesNeeded": (c_int, (_handle, _u32, _u32)),
    "Device_getPerformanceInfo": (c_int, (_handle, c_int32, POINTER(PerformanceInfo))),
    "Device_forEachOperandPerformanceInfo": (c_int, (_handle, _handle, OperandPerformanceCallback)),
    "Device_getVendorExtensionCount": (c_int, (_handle, _u32)),
    "Device_getVendorExtensionName": (c_int, (_handle, c_uint32, POINTER(c_char_p))),
    "Device_forEachVendorExtensionOperandTypeInformation": (c_int, (_handle, c_uint32, _handle, OperandTypeCallback)),
    **{
        f"DiagnosticCompilationInfo_{name}": (restype, (_handle,))
        for name, restype in {
            "getSessionId": c_int32,
            "getNnApiVersion": c_int64,
            "getModelArchHash": POINTER(c_uint8),
            "getDeviceIds": c_char_p,
            "getErrorCode": c_int32,
            "getInputDataClass": c_int,
            "getOutputDataClass": c_int,
            "getCompilationTimeNanos": _u64,
            "isCachingEnabled": c_bool,
            "isControlFlowUsed": c_bool,
            "areDynamicTensorsUsed": c_bool,
        }.items()
    },
    **{
        f"DiagnosticExecutionInfo_{name}": (restype, (_handle,))
        for name, restype in {
            "getSessionId": c_int32,
            "getNnApiVersion": c_int64,
            "getModelArchHash": POINTER(c_uint8),
            "getDeviceIds": c_char_p,
            "getExecutionMode": c_int,
            "getInputDataClass": c_int,
            "getOutputDataClass": c_int,
            "getErrorCode": c_uint32,
            "getRuntimeExecutionTimeNanos": _u64,
            "getDriverExecutionTimeNanos": _u64,
            "getHardwareExecutionTimeNanos": _u64,
            "isCachingEnabled": c_bool,
            "isControlFlowUsed": c_bool,
            "areDynamicTensorsUsed": c_bool,
        }.items()
    },
    "Diagnostic_registerCallbacks": (None, (CompilationFinishedCallback, ExecutionFinishedCallback, _handle)),
}
_LEVEL_8 = ("ANeuralNetworksCompilation_addExtensionAttribute", "ANeuralNetworksExecution_addExtensionAttribute")

_own = {
    f"SL_ANeuralNetworks{name}": Function(f"SL_ANeuralNetworks{name}", 5, restype, argtypes)
    for name, (restype, argtypes) in _OWN.items()
}
_shared = {f"ANeuralNetworks{name}": FUNCTIONS[f"ANeuralNetworks{name}"] for name in _SHARED.split()}

DRIVER_FUNCTIONS: dict[str, Function] = _shared | _own | {name: FUNCTIONS[name] for name in _LEVEL_8}
"""Every function of the driver's struct, in the struct's order; the last two from feature level 8 on."""


class DriverImpl(ctypes.Structure):
    """NnApiSLDriverImplFL8; a driver of levels 5 to 7 ends before the last two functions."""

    _fields_ = (("implFeatureLevel", c_int64), *((name, _handle) for name in DRIVER_FUNCTIONS))


def driver_addresses(driver: int) -> dict[str, int]:
    """The address of every function that the struct at ``driver`` holds, by C name; NULL entries are left out.

    Only the part of the struct that its implFeatureLevel promises is read.
    """
    level = c_int64.from_address(driver).value
    names = [name for name in DRIVER_FUNCTIONS if level >= _EXTRA_ATTRIBUTES_FROM or name not in _LEVEL_8]
    addresses = {}
    for name in names:
        address = _handle.from_address(driver + getattr(DriverImpl, name).offset).value
        if address:
            addresses[name] = address
    return addresses
