"""Builds the host library, sets what it pretends, and computes for it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from onnx2nnapi.errors import Onnx2NnapiError
from onnx2nnapi.nnapi import validate
from onnx2nnapi.nnapi.codes import OperandCode, OperationCode, ResultCode
from onnx2nnapi.nnapi.model import Lifetime, Model, Operand, Operation, Subgraph
from onnx2nnapi.nnapi.types import ChannelQuant, OperandType

FOLDER = pathlib.Path(__file__).resolve().parent
CHECKOUT = FOLDER.parent.parent
KINDS = ("model", "compilation", "execution", "burst", "event", "memory", "memory desc")
Compute = Callable[[Model, list["np.ndarray | None"]], list[np.ndarray]]


def compiler() -> str | None:
    return os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(level: int = 8, *, driver: bool = False, sanitize: bool = False) -> pathlib.Path:
    """The library that pretends a feature level; compiled again only when its sources have changed."""
    sources = sorted(FOLDER.glob("*.c"))
    flags = f"-std=gnu11 -D_GNU_SOURCE -shared -fPIC -pthread -O1 -g -Wall -Wextra -Werror -DHOST_LEVEL={level}".split()
    flags += ["-DHOST_DRIVER"] if driver else []
    flags += ["-fsanitize=address"] if sanitize else []
    flags += [f'-DHOST_PYTHON="{CHECKOUT}"']
    digest = hashlib.sha256(" ".join(flags).encode())
    for source in [*sources, FOLDER / "host.h"]:
        digest.update(source.read_bytes())
    kind = ("driver" if driver else "runtime") + ("-asan" if sanitize else "")
    target = CHECKOUT / "build" / "nnapi_host" / f"libneuralnetworks-{kind}-{level}-{digest.hexdigest()[:12]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        command = [compiler() or "cc", *flags, "-o", str(partial), *map(str, sources), "-ldl"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        partial.replace(target)
    return target


class HostOperand(ctypes.Structure):
    pass


class HostOperation(ctypes.Structure):
    _fields_ = (
        ("type", c_int32),
        ("input_count", c_uint32),
        ("inputs", POINTER(c_uint32)),
        ("output_count", c_uint32),
        ("outputs", POINTER(c_uint32)),
    )


class HostModel(ctypes.Structure):
    _fields_ = (
        ("operand_count", c_uint32),
        ("operands", POINTER(HostOperand)),
        ("operation_count", c_uint32),
        ("operations", POINTER(HostOperation)),
        ("input_count", c_uint32),
        ("inputs", POINTER(c_uint32)),
        ("output_count", c_uint32),
        ("outputs", POINTER(c_uint32)),
        ("relaxed", c_int32),
        ("serial", c_uint64),
    )


HostOperand._fields_ = (
    ("type", c_int32),
    ("lifetime", c_int32),
    ("rank", c_uint32),
    ("dimensions", POINTER(c_uint32)),
    ("scale", c_float),
    ("zero_point", c_int32),
    ("value", c_void_p),
    ("length", c_uint64),
    ("subgraph", c_void_p),
    ("channel", c_uint32),
    ("scale_count", c_uint32),
    ("scales", POINTER(c_float)),
)


class HostArgument(ctypes.Structure):
    _fields_ = (
        ("state", c_int32),
        ("sufficient", c_int32),
        ("buffer", c_void_p),
        ("length", c_uint64),
        ("rank", c_uint32),
        ("dimensions", c_uint32 * 32),
    )


OMITTED = 1
LIFETIMES = ("TEMPORARY", "INPUT", "OUTPUT", "CONSTANT", "NO_VALUE", "SUBGRAPH")
VALIDATE = ctypes.CFUNCTYPE(c_int, POINTER(HostModel))
COMPUTE = ctypes.CFUNCTYPE(c_int, POINTER(HostModel), c_uint32, POINTER(HostArgument), POINTER(HostArgument), c_uint64)


def _array(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape, dtype=np.int64))
    if not count:
        return np.empty(shape, dtype)
    raw = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(raw, dtype).reshape(shape)


def rebuild(data: HostModel) -> Model:
    """The nnapi.Model that the C calls described."""
    subgraphs: list[Subgraph] = []
    places: dict[int, int] = {}

    def graph(data: HostModel) -> Subgraph:
        operands = []
        for entry in data.operands[: data.operand_count]:
            code = OperandCode(entry.type)
            shape = tuple(entry.dimensions[: entry.rank])
            quant = ChannelQuant(entry.channel, tuple(entry.scales[: entry.scale_count])) if entry.scale_count else None
            type_ = OperandType(code, shape, entry.scale, entry.zero_point, quant)
            lifetime, value, subgraph = Lifetime[LIFETIMES[entry.lifetime]], None, None
            if lifetime is Lifetime.CONSTANT:
                value = _array(entry.value, code.dtype, shape if code.is_tensor else (1,))
            elif lifetime is Lifetime.SUBGRAPH:
                if entry.subgraph not in places:
                    inner = graph(HostModel.from_address(entry.subgraph))
                    places[entry.subgraph] = len(subgraphs)
                    subgraphs.append(inner)
                subgraph = places[entry.subgraph]
            operands.append(Operand(type_, lifetime, value, subgraph))
        operations = tuple(
            Operation(OperationCode(op.type), tuple(op.inputs[: op.input_count]), tuple(op.outputs[: op.output_count]))
            for op in data.operations[: data.operation_count]
        )
        inputs, outputs = data.inputs[: data.input_count], data.outputs[: data.output_count]
        return Subgraph(tuple(operands), operations, tuple(inputs), tuple(outputs))

    main = graph(data)
    return Model(main, tuple(subgraphs), bool(data.relaxed))


def interpret(model: Model, inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    from onnx2nnapi.runtime.interpreter import Interpreter

    return Interpreter(model).run(inputs)


class Driver:
    """What the library calls back: validation of a finished model, and computing.

    Args:
        compute: what computes a whole model.
    """

    def __init__(self, compute: Compute = interpret) -> None:
        self.compute = compute
        self.check: Callable[[Model], int] = validate
        self.errors: list[str] = []
        self._models: dict[int, Model] = {}
        self.callbacks = (VALIDATE(self._validate), COMPUTE(self._compute))

    def _model(self, data: HostModel) -> Model:
        if data.serial not in self._models:
            self._models[data.serial] = rebuild(data)
        return self._models[data.serial]

    def _validate(self, data: Any) -> int:
        try:
            return int(self.check(rebuild(data.contents)))
        except Onnx2NnapiError as error:
            self.errors.append(str(error))
            return -1
        except Exception:  # nothing may pass through C
            self.errors.append(traceback.format_exc())
            return -1

    def _compute(self, data: Any, device: int, inputs: Any, outputs: Any, loop_timeout: int) -> int:
        try:
            model = self._model(data.contents)
            return self._run(model, inputs[: len(model.main.inputs)], outputs)
        except Onnx2NnapiError as error:
            self.errors.append(str(error))
            return ResultCode.OP_FAILED
        except Exception:
            self.errors.append(traceback.format_exc())
            return ResultCode.OP_FAILED

    def _run(self, model: Model, inputs: Sequence[HostArgument], outputs: Any) -> int:
        arrays: list[np.ndarray | None] = []
        for argument, type_ in zip(inputs, model.main.input_types(), strict=True):
            shape = tuple(argument.dimensions[: argument.rank]) if type_.code.is_tensor else (1,)
            arrays.append(None if argument.state == OMITTED else _array(argument.buffer, type_.dtype, shape))
        code = ResultCode.NO_ERROR
        for index, result in enumerate(self.compute(model, arrays)):
            argument = outputs[index]
            type_ = model.main.output_types()[index]
            result = np.ascontiguousarray(result, type_.dtype)
            argument.rank = result.ndim if type_.code.is_tensor else 0
            argument.dimensions[: argument.rank] = result.shape[: argument.rank]
            argument.sufficient = int(result.nbytes <= argument.length)
            if argument.state == OMITTED:
                continue
            if not argument.sufficient:
                code = ResultCode.OUTPUT_INSUFFICIENT_SIZE
            elif result.nbytes:
                ctypes.memmove(argument.buffer, result.ctypes.data, result.nbytes)
        return code


class HostLibrary(Driver):
    """One built library and what it pretends.

    Args:
        path: of the library.
        compute: what computes a whole model; default: the interpreter.
    """

    def __init__(self, path: pathlib.Path, compute: Compute = interpret) -> None:
        super().__init__(compute)
        self.path = path
        self.c = ctypes.CDLL(str(path))
        self.c.host_log.restype = self.c.host_violations.restype = c_char_p
        self.c.host_hardware_buffer.restype = self.c.host_hardware_buffer_data.restype = c_void_p
        self.c.host_hardware_buffer.argtypes = (c_uint64, c_int)
        self.c.host_hardware_buffer_data.argtypes = self.c.host_hardware_buffer_free.argtypes = (c_void_p,)
        self.c.host_fail.argtypes = (c_char_p, c_uint64, c_int)
        self.c.host_calls.restype = c_uint64
        self.c.host_set_delays.argtypes = (c_uint64, c_uint64)
        self.c.host_add_device.argtypes = (
            *(c_char_p, c_int32, c_char_p, ctypes.c_int64, POINTER(c_int32), c_int32, c_char_p),
        )
        self.reset()

    def reset(self) -> None:
        """As after loading, without devices."""
        self.c.host_reset()
        self.c.host_set_callbacks(*self.callbacks)
        self.errors.clear()
        self._models.clear()

    # -- what it pretends -----------------------------------------------------------------------------------------

    def add_device(
        self,
        name: str = "nnapi-reference",
        kind: int = 2,
        *,
        version: str = "1",
        level: int = 8,
        supports: Iterable[str] | None = None,
        extension: str = "",
    ) -> None:
        codes = None if supports is None else [OperationCode[operation] for operation in supports]
        array = (c_int32 * len(codes or ()))(*(codes or ()))
        code = 26 + level if level <= 5 else 1000000 + level
        count = -1 if codes is None else len(codes)
        self.c.host_add_device(name.encode(), kind, version.encode(), code, array, count, extension.encode())

    def delay(self, *, compile_seconds: float = 0, compute_seconds: float = 0) -> None:
        self.c.host_set_delays(round(compile_seconds * 1e9), round(compute_seconds * 1e9))

    def fail(self, function: str = "*", code: ResultCode = ResultCode.OP_FAILED, nth: int = 1) -> None:
        """The nth call from now of a function (any, by default) answers ``code``; nth=0 takes it back."""
        name = function if function == "*" else f"ANeuralNetworks{function}"
        self.c.host_fail(name.encode(), nth, int(code))

    # -- what it saw ----------------------------------------------------------------------------------------------

    @property
    def live(self) -> dict[str, int]:
        """How many handles of each kind are not freed; kinds without are left out."""
        counts = {kind: self.c.host_live(index) for index, kind in enumerate(KINDS)}
        return {kind: count for kind, count in counts.items() if count}

    @property
    def violations(self) -> list[str]:
        text: bytes = self.c.host_violations()
        return text.decode().splitlines()

    @property
    def log(self) -> list[str]:
        text: bytes = self.c.host_log()
        return text.decode().splitlines()

    @property
    def calls(self) -> list[str]:
        """The names of the functions called so far, without ANeuralNetworks."""
        lines = (line for line in self.log if not line.startswith("!"))
        return [line.split("(")[0].removeprefix("ANeuralNetworks") for line in lines]


_attached: list[Driver] = []  # the callbacks must live as long as the library


def attach(path: str) -> None:
    """Compute for a library that a program loaded by itself; called by the library (control.c)."""
    _attached.append(Driver())
    ctypes.CDLL(path).host_set_callbacks(*_attached[-1].callbacks)


if __name__ == "__main__":
    print(build(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
