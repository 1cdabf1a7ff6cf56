"""What a ResultCode means where it was answered, and what to try: the text of every DeviceError about a call."""

from __future__ import annotations

from onnx2nnapi.errors import DeviceError, Origin
from onnx2nnapi.nnapi.codes import ResultCode

__all__ = ["explain_result", "result_name"]

_OTHER_DEVICE = "try --device cpu (nnapi-reference), or run on the host"
_FREE_MEMORY = "close other sessions and apps, or run a smaller batch"

_GENERAL: dict[ResultCode, tuple[str, str | None]] = {
    ResultCode.OUT_OF_MEMORY: ("there is not enough memory", _FREE_MEMORY),
    ResultCode.INCOMPLETE: ("the object is not complete", None),
    ResultCode.UNEXPECTED_NULL: ("a pointer was NULL that must not be", "please report this with the model"),
    ResultCode.BAD_DATA: ("an argument is not acceptable", None),
    ResultCode.OP_FAILED: ("the driver failed", _OTHER_DEVICE),
    ResultCode.BAD_STATE: (
        "the object is in a state that does not allow the call",
        "please report this with the model",
    ),
    ResultCode.UNMAPPABLE: (
        "memory could not be mapped",
        "keep the file on the phone's internal storage, or free memory",
    ),
    ResultCode.OUTPUT_INSUFFICIENT_SIZE: (
        "an output needs a larger buffer",
        "give more room to outputs of dynamic shape",
    ),
    ResultCode.UNAVAILABLE_DEVICE: ("the device is not available", f"wait until it is free, or {_OTHER_DEVICE}"),
    ResultCode.MISSED_DEADLINE_TRANSIENT: ("it was not done in time, but might be next time", "raise the timeout"),
    ResultCode.MISSED_DEADLINE_PERSISTENT: ("it cannot be done in the time given", "raise the timeout"),
    ResultCode.RESOURCE_EXHAUSTED_TRANSIENT: ("the device is short of a resource just now", "try again later"),
    ResultCode.RESOURCE_EXHAUSTED_PERSISTENT: ("the device lacks a resource for this model", _OTHER_DEVICE),
    ResultCode.DEAD_OBJECT: (
        "the driver's process died",
        f"open the session again (ANeuralNetworksDevice_wait waits for the driver), or {_OTHER_DEVICE}",
    ),
}

_LATE = "it was not done within the timeout"
_LOOP_OR_LATE = ("it was not done within the timeout, or a WHILE loop ran longer than its own", "raise the timeout")

# What a code means in one function, where that is more than its general meaning.
_IN_PLACE: dict[tuple[str, ResultCode], tuple[str, str | None]] = {
    ("Model_addOperand", ResultCode.BAD_DATA): (
        "the runtime does not accept this operand type, shape or quantization",
        "convert for a lower --feature-level",
    ),
    ("Model_addOperation", ResultCode.BAD_DATA): (
        "the runtime does not accept this operation with these operands",
        "convert for a lower --feature-level, or run on the host",
    ),
    ("Model_finish", ResultCode.BAD_DATA): (
        "the runtime refuses the model",
        "convert for this phone's feature level (onnx2nnapi devices); logcat -s ModelBuilder says which rule",
    ),
    ("Memory_createFromFd", ResultCode.BAD_DATA): (
        "the file is shorter than the model says, or is no plain file",
        None,
    ),
    ("Compilation_createForDevices", ResultCode.BAD_DATA): ("the runtime does not accept these devices", None),
    ("Compilation_setCaching", ResultCode.BAD_DATA): ("the cache directory is not usable", "name another --cache"),
    ("Compilation_setTimeout", ResultCode.BAD_DATA): ("a timeout needs one chosen device", "name one with --device"),
    ("Compilation_finish", ResultCode.BAD_DATA): (
        "the chosen devices do not support every operation",
        "add the CPU (--device NAME --device cpu), or leave the choice to NNAPI; run --explain shows which",
    ),
    ("Compilation_finish", ResultCode.OP_FAILED): (
        "the driver failed to compile the model",
        "try --device cpu; if that works, bisect finds the operation",
    ),
    ("Compilation_finish", ResultCode.MISSED_DEADLINE_TRANSIENT): (_LATE, "raise the compile timeout or use --cache"),
    ("Compilation_finish", ResultCode.MISSED_DEADLINE_PERSISTENT): (_LATE, "raise the compile timeout or use --cache"),
    ("Execution_setTimeout", ResultCode.BAD_DATA): ("a timeout needs one chosen device", "name one with --device"),
    ("Execution_setMeasureTiming", ResultCode.BAD_DATA): (
        "durations are measured for one chosen device only",
        "name one with --device",
    ),
    ("Execution_setInput", ResultCode.BAD_DATA): ("the runtime does not accept this input's shape or size", None),
    ("Execution_setOutput", ResultCode.BAD_DATA): ("the runtime does not accept this output's shape or size", None),
    ("Execution_setInputFromMemory", ResultCode.BAD_DATA): ("this memory cannot be this input", None),
    ("Execution_setOutputFromMemory", ResultCode.BAD_DATA): ("this memory cannot be this output", None),
    ("Execution_startComputeWithDependencies", ResultCode.BAD_DATA): (
        "a fenced execution needs outputs of known shape, and one chosen device for a timeout",
        "use mode sync",
    ),
    ("Memory_createFromDesc", ResultCode.OP_FAILED): (
        "the driver cannot hold such memory itself",
        "use shared memory, or give the descriptor all dimensions",
    ),
    ("Memory_copy", ResultCode.BAD_DATA): (
        "the sizes differ, or the source was never written",
        None,
    ),
    ("Event_getSyncFenceFd", ResultCode.BAD_DATA): ("the event has no sync fence: wait for it instead", None),
    **{
        (f"Execution_{name}", code): meaning
        for name in ("compute", "burstCompute", "startCompute", "startComputeWithDependencies")
        for code, meaning in {
            ResultCode.OP_FAILED: (
                "the driver failed while it computed",
                f"{_OTHER_DEVICE}; bisect finds the operation",
            ),
            ResultCode.MISSED_DEADLINE_TRANSIENT: _LOOP_OR_LATE,
            ResultCode.MISSED_DEADLINE_PERSISTENT: _LOOP_OR_LATE,
        }.items()
    },
    ("Event_wait", ResultCode.OP_FAILED): (
        "the driver failed while it computed",
        f"{_OTHER_DEVICE}; bisect finds the operation",
    ),
    ("Event_wait", ResultCode.MISSED_DEADLINE_TRANSIENT): _LOOP_OR_LATE,
    ("Event_wait", ResultCode.MISSED_DEADLINE_PERSISTENT): _LOOP_OR_LATE,
}


def result_name(result: int) -> str:
    """A ResultCode's name; a number that NNAPI does not know as it is."""
    return ResultCode(result).name if result in ResultCode.__members__.values() else f"unknown result {result}"


def explain_result(call: str, result: int, *, where: Origin | str | None = None) -> DeviceError:
    """The error for function ``call`` having answered ``result``."""
    if result not in ResultCode.__members__.values():
        return DeviceError("NNAPI has no such result", call=call, code=result_name(result), where=where)
    code = ResultCode(result)
    function = call.removeprefix("SL_").removeprefix("ANeuralNetworks")
    meaning, hint = _IN_PLACE.get((function, code)) or _GENERAL[code]
    return DeviceError(meaning, call=call, code=code.name, where=where, hint=hint)
