"""NNAPI's C API for ctypes: every function with its signature and the level that brought it, and the structs.

Nothing here loads a library or checks a result: library.py does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64
from ctypes import c_void_p as _handle  # an opaque object of NNAPI's, or an untyped buffer
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["FUNCTIONS", "Function", "OperandType", "SymmPerChannelQuantParams", "uint32_array"]

CType: TypeAlias = Any  # typeshed has no public name for "a ctypes type"


class OperandType(ctypes.Structure):
    """ANeuralNetworksOperandType: the type, shape and quantization of an operand."""

    _fields_ = (
        ("type", c_int32),
        ("dimensionCount", c_uint32),
        ("dimensions", POINTER(c_uint32)),
        ("scale", c_float),
        ("zeroPoint", c_int32),
    )


class SymmPerChannelQuantParams(ctypes.Structure):
    """ANeuralNetworksSymmPerChannelQuantParams: one scale for each index along channelDim."""

    _fields_ = (("channelDim", c_uint32), ("scaleCount", c_uint32), ("scales", POINTER(c_float)))


def uint32_array(values: tuple[int, ...] | list[int]) -> ctypes.Array[c_uint32]:
    """``values`` as a C array of uint32_t; empty gives an array of length zero, whose pointer is not NULL."""
    return (c_uint32 * len(values))(*values)


@dataclass(frozen=True, slots=True)
class Function:
    """One function of the C API.

    Attributes:
        name: the C symbol.
        level: the NNAPI feature level that brought it.
        restype: the ctypes type of its result, None for void; c_int is a ResultCode.
        argtypes: the ctypes types of its arguments.
        vendor: whether it belongs to the interface of extensions, which the NDK leaves out.
    """

    name: str
    level: int
    restype: CType
    argtypes: tuple[CType, ...]
    vendor: bool = False

    def bind(self, address: int) -> Callable[..., Any]:
        """The function at ``address``, callable; the interpreter lock is released while it runs."""
        return ctypes.CFUNCTYPE(self.restype, *self.argtypes)(address)

    def bind_untyped(self, address: int) -> Callable[..., Any]:
        """The same for arguments that are ctypes objects already: half the cost, and nothing is checked."""
        return ctypes.CFUNCTYPE(self.restype)(address)


_new = POINTER(_handle)  # where a created object's handle is written
_handles = POINTER(_handle)
_u32 = POINTER(c_uint32)
_u64 = POINTER(c_uint64)
_i32 = POINTER(c_int32)
_bool = POINTER(c_bool)
_text = POINTER(c_char_p)
_type = POINTER(OperandType)
_quant = POINTER(SymmPerChannelQuantParams)
_attribute = (_handle, c_char_p, c_uint16, _handle, c_size_t)

# Level -> name without the prefix ANeuralNetworks -> argument types. All answer a ResultCode but *_free and _RETURNS.
_PUBLIC: dict[int, dict[str, tuple[CType, ...]]] = {
    1: {
        "Memory_createFromFd": (c_size_t, c_int, c_int, c_size_t, _new),
        "Memory_free": (_handle,),
        "Model_create": (_new,),
        "Model_free": (_handle,),
        "Model_finish": (_handle,),
        "Model_addOperand": (_handle, _type),
        "Model_setOperandValue": (_handle, c_int32, _handle, c_size_t),
        "Model_setOperandValueFromMemory": (_handle, c_int32, _handle, c_size_t, c_size_t),
        "Model_addOperation": (_handle, c_int32, c_uint32, _u32, c_uint32, _u32),
        "Model_identifyInputsAndOutputs": (_handle, c_uint32, _u32, c_uint32, _u32),
        "Compilation_create": (_handle, _new),
        "Compilation_free": (_handle,),
        "Compilation_setPreference": (_handle, c_int32),
        "Compilation_finish": (_handle,),
        "Execution_create": (_handle, _new),
        "Execution_free": (_handle,),
        "Execution_setInput": (_handle, c_int32, _type, _handle, c_size_t),
        "Execution_setInputFromMemory": (_handle, c_int32, _type, _handle, c_size_t, c_size_t),
        "Execution_setOutput": (_handle, c_int32, _type, _handle, c_size_t),
        "Execution_setOutputFromMemory": (_handle, c_int32, _type, _handle, c_size_t, c_size_t),
        "Execution_startCompute": (_handle, _new),
        "Event_wait": (_handle,),
        "Event_free": (_handle,),
    },
    2: {"Model_relaxComputationFloat32toFloat16": (_handle, c_bool)},
    3: {
        "_getDeviceCount": (_u32,),
        "_getDevice": (c_uint32, _new),
        "Device_getName": (_handle, _text),
        "Device_getType": (_handle, _i32),
        "Device_getVersion": (_handle, _text),
        "Device_getFeatureLevel": (_handle, POINTER(c_int64)),
        "Model_getSupportedOperationsForDevices": (_handle, _handles, c_uint32, _bool),
        "Model_setOperandSymmPerChannelQuantParams": (_handle, c_int32, _quant),
        "Compilation_createForDevices": (_handle, _handles, c_uint32, _new),
        "Compilation_setCaching": (_handle, c_char_p, c_char_p),
        "Execution_compute": (_handle,),
        "Execution_getOutputOperandRank": (_handle, c_int32, _u32),
        "Execution_getOutputOperandDimensions": (_handle, c_int32, _u32),
        "Execution_setMeasureTiming": (_handle, c_bool),
        "Execution_getDuration": (_handle, c_int32, _u64),
        "Burst_create": (_handle, _new),
        "Burst_free": (_handle,),
        "Execution_burstCompute": (_handle, _handle),
        "Memory_createFromAHardwareBuffer": (_handle, _new),
    },
    4: {
        "Device_wait": (_handle,),
        "Model_setOperandValueFromModel": (_handle, c_int32, _handle),
        "MemoryDesc_create": (_new,),
        "MemoryDesc_free": (_handle,),
        "MemoryDesc_addInputRole": (_handle, _handle, c_uint32, c_float),
        "MemoryDesc_addOutputRole": (_handle, _handle, c_uint32, c_float),
        "MemoryDesc_setDimensions": (_handle, c_uint32, _u32),
        "MemoryDesc_finish": (_handle,),
        "Memory_createFromDesc": (_handle, _new),
        "Memory_copy": (_handle, _handle),
        "Compilation_setPriority": (_handle, c_int),
        "Compilation_setTimeout": (_handle, c_uint64),
        "Execution_setTimeout": (_handle, c_uint64),
        "Execution_setLoopTimeout": (_handle, c_uint64),
        "_getDefaultLoopTimeout": (),
        "_getMaximumLoopTimeout": (),
        "Event_createFromSyncFenceFd": (c_int, _new),
        "Event_getSyncFenceFd": (_handle, POINTER(c_int)),
        "Execution_startComputeWithDependencies": (_handle, _handles, c_uint32, c_uint64, _new),
    },
    5: {
        "_getRuntimeFeatureLevel": (),
        "Execution_enableInputAndOutputPadding": (_handle, c_bool),
        "Execution_setReusable": (_handle, c_bool),
        "Compilation_getPreferredMemoryAlignmentForInput": (_handle, c_uint32, _u32),
        "Compilation_getPreferredMemoryPaddingForInput": (_handle, c_uint32, _u32),
        "Compilation_getPreferredMemoryAlignmentForOutput": (_handle, c_uint32, _u32),
        "Compilation_getPreferredMemoryPaddingForOutput": (_handle, c_uint32, _u32),
    },
}
_VENDOR: dict[int, dict[str, tuple[CType, ...]]] = {
    3: {
        "Device_getExtensionSupport": (_handle, c_char_p, _bool),
        "Model_getExtensionOperandType": (_handle, c_char_p, c_uint16, _i32),
        "Model_getExtensionOperationType": (_handle, c_char_p, c_uint16, _i32),
        "Model_setOperandExtensionData": (_handle, c_int32, _handle, c_size_t),
    },
    8: {"Compilation_addExtensionAttribute": _attribute, "Execution_addExtensionAttribute": _attribute},
}
_RETURNS: dict[str, CType] = {
    "_getDefaultLoopTimeout": c_uint64,
    "_getMaximumLoopTimeout": c_uint64,
    "_getRuntimeFeatureLevel": c_int64,
}


def _rows(table: dict[int, dict[str, tuple[CType, ...]]], *, vendor: bool) -> dict[str, Function]:
    functions = {}
    for level, rows in table.items():
        for name, argtypes in rows.items():
            restype = None if name.endswith("_free") else _RETURNS.get(name, c_int)
            symbol = f"ANeuralNetworks{name}"
            functions[symbol] = Function(symbol, level, restype, argtypes, vendor)
    return functions


FUNCTIONS: dict[str, Function] = _rows(_PUBLIC, vendor=False) | _rows(_VENDOR, vendor=True)
"""Every function of NeuralNetworks.h and NeuralNetworksExtensions.h by its C name."""
