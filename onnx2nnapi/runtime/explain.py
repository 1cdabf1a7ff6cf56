"""Which device runs what: support by operation, the partitions that follow, and a profile to plan with elsewhere."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onnx2nnapi.errors import ArtifactError, DeviceError
from onnx2nnapi.nnapi.artifact import replacing
from onnx2nnapi.nnapi.model import Model, Operation
from onnx2nnapi.runtime.device_list import Device, list_devices, select_devices
from onnx2nnapi.runtime.library import Library, open_library
from onnx2nnapi.runtime.model_builder import BuiltModel, build_model

__all__ = ["OperationSupport", "Support", "explain_model", "load_profile", "profile", "save_profile"]

PROFILE_FORMAT = 1


@dataclass(frozen=True, slots=True)
class OperationSupport:
    """One operation of the main graph and the devices that support it, by name."""

    index: int
    operation: str
    origin: tuple[str, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Support:
    """What the devices say about a model.

    Attributes:
        devices: those asked, as chosen; the runtime's CPU, which takes the rest, may be among them.
        operations: in the model's order.
    """

    devices: tuple[Device, ...]
    operations: tuple[OperationSupport, ...]

    @property
    def has_cpu(self) -> bool:
        """Whether the runtime's CPU takes what no other device does."""
        return any(device.is_cpu for device in self.devices)

    def partitions(self, device: str) -> int:
        """Into how many pieces the model falls when ``device`` takes all that it supports: runs in model order."""
        takes = [device in operation.devices for operation in self.operations]
        return sum(1 for index, here in enumerate(takes) if not index or takes[index - 1] != here)

    def verdict(self, device: str) -> str:
        """One line on one device; the runtime's CPU takes what it does not support, where that is among the devices."""
        count = len(self.operations)
        supported = sum(device in operation.devices for operation in self.operations)
        if supported == count:
            return f"all {count} operations on {device}"
        if not supported:
            return f"none of {count} operations on {device}" + (": all on the CPU" if self.has_cpu else "")
        if not self.has_cpu:
            return f"{supported} of {count} operations on {device}, and no CPU for the rest"
        pieces = self.partitions(device)
        return f"{supported} of {count} operations on {device}, the rest on the CPU, in {pieces} partitions"

    def verdicts(self) -> list[str]:
        """One line for each device but the runtime's CPU; for that when it is alone."""
        others = [device for device in self.devices if not device.is_cpu]
        return [self.verdict(device.name) for device in others or self.devices]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "devices": [device.to_dict() for device in self.devices],
            "operations": [
                {
                    "index": entry.index,
                    "operation": entry.operation,
                    "origin": list(entry.origin),
                    "devices": list(entry.devices),
                }
                for entry in self.operations
            ],
            "verdicts": self.verdicts(),
        }


def explain_model(
    model: Model,
    library: Library | str | os.PathLike[str] | None = None,
    devices: str | int | Sequence[str | int] | None = None,
) -> Support:
    """Ask every device (or those chosen) about each operation; nothing is compiled.

    Raises:
        DeviceError: feature level 3 is not there, a device is unknown, or the runtime refuses the model.
    """
    nnapi = open_library(library)
    if nnapi.level < 3:
        raise DeviceError(
            f"devices tell what they support from feature level 3 (Android 10) on, {nnapi.name} is of {nnapi.level}"
        )
    asked = select_devices(nnapi, devices) or list_devices(nnapi)
    with build_model(nnapi, model) as built:
        answers = {device.name: _supported(nnapi, built, device, len(model.main.operations)) for device in asked}
    return Support(
        asked,
        tuple(
            _entry(index, operation, [name for name, answer in answers.items() if answer[index]])
            for index, operation in enumerate(model.main.operations)
        ),
    )


def _entry(index: int, operation: Operation, devices: list[str]) -> OperationSupport:
    return OperationSupport(index, operation.code.name, operation.origin, tuple(devices))


def _supported(library: Library, built: BuiltModel, device: Device, count: int) -> list[bool]:
    answers = (ctypes.c_bool * count)()
    library.call(
        "ANeuralNetworksModel_getSupportedOperationsForDevices",
        *(built.pointer, (ctypes.c_void_p * 1)(device.pointer), 1, answers),
        where=f"device {device.name}",
    )
    return list(answers)


def profile(library: Library | str | os.PathLike[str] | None = None, models: Sequence[Model] = ()) -> dict[str, Any]:
    """The runtime's level, its devices, and what they say about ``models``, as plain data.

    Support is kept by operation and types, so that it tells about other models with the same ones.
    """
    nnapi = open_library(library)
    support: dict[str, dict[str, bool]] = {}
    devices = list_devices(nnapi)
    for model in models:
        for entry in explain_model(model, nnapi).operations:
            operation = model.main.operations[entry.index]
            known = support.setdefault(_signature(model, operation), {})
            for device in devices:
                # A device that refuses one of several alike may refuse another.
                known[device.name] = known.get(device.name, True) and device.name in entry.devices
    return {
        "format": PROFILE_FORMAT,
        "runtime": {"library": os.path.basename(nnapi.name), "feature_level": nnapi.level},
        "devices": [device.to_dict() for device in devices],
        "support": dict(sorted(support.items())),
    }


def _signature(model: Model, operation: Operation) -> str:
    operands = model.main.operands
    types = [operands[index].type.code.name for index in operation.inputs]
    return f"{operation.code.name}({', '.join(types)})"


def save_profile(path: str | os.PathLike[str], data: dict[str, Any]) -> None:
    """Write a profile as JSON, beside the target first.

    Raises:
        ArtifactError: it cannot be written.
    """
    with replacing(os.fspath(path), os.fspath(path)) as file:
        file.write((json.dumps(data, indent=1) + "\n").encode())


def load_profile(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what ``save_profile`` wrote.

    Raises:
        ArtifactError: it cannot be read, or is something else.
    """
    try:
        data = json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ArtifactError(f"cannot be read: {error}", where=os.fspath(path)) from None
    if not isinstance(data, dict) or data.get("format") != PROFILE_FORMAT or not isinstance(data.get("devices"), list):
        raise ArtifactError("is no device profile", where=os.fspath(path), hint="make one: onnx2nnapi devices --save")
    return data
