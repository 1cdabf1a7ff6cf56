"""The devices that a runtime drives, and choosing among them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.nnapi.codes import DeviceTypeCode
from onnx2nnapi.runtime.library import Library, feature_level

__all__ = ["REFERENCE", "Device", "list_devices", "select_devices"]

REFERENCE = "nnapi-reference"  # the runtime's own CPU implementation


@dataclass(frozen=True, slots=True)
class Device:
    """A device.

    Attributes:
        index: its place in NNAPI's list.
        name: VENDOR-DEVICE, or a short name before feature level 3.
        type: what kind of hardware it is.
        version: the driver's own version text.
        feature_level: what the driver implements, 1–8.
        pointer: NNAPI's handle, valid as long as the process.
    """

    index: int
    name: str
    type: DeviceTypeCode
    version: str
    feature_level: int
    pointer: int

    @property
    def is_cpu(self) -> bool:
        """Whether it is the runtime's own CPU implementation, which runs every operation of the runtime's level."""
        return self.name == REFERENCE

    def to_dict(self) -> dict[str, Any]:
        """Everything but the pointer, for JSON."""
        entry = asdict(self) | {"type": self.type.name.lower()}
        del entry["pointer"]
        return entry


def list_devices(library: Library) -> tuple[Device, ...]:
    """All devices; none before feature level 3 (Android 10), where NNAPI does not tell them."""
    if library.level < 3:
        return ()
    count = ctypes.c_uint32()
    library.call("ANeuralNetworks_getDeviceCount", ctypes.byref(count))
    return tuple(_describe(library, index) for index in range(count.value))


def _describe(library: Library, index: int) -> Device:
    pointer = library.create("ANeuralNetworks_getDevice", index)
    name, version = ctypes.c_char_p(), ctypes.c_char_p()
    kind, level = ctypes.c_int32(), ctypes.c_int64()
    for query, result in (("Name", name), ("Version", version), ("Type", kind), ("FeatureLevel", level)):
        library.call(f"ANeuralNetworksDevice_get{query}", pointer, ctypes.byref(result), where=f"device {index}")
    type_ = DeviceTypeCode(kind.value) if kind.value in list(DeviceTypeCode) else DeviceTypeCode.UNKNOWN
    texts = ((text.value or b"").decode("utf-8", "replace") for text in (name, version))
    return Device(index, next(texts), type_, next(texts), feature_level(level.value), pointer)


def select_devices(library: Library, choice: str | int | Sequence[str | int] | None) -> tuple[Device, ...] | None:
    """The devices that ``choice`` names, in its order and each once; None leaves the choice to NNAPI.

    Args:
        library: whose devices.
        choice: one or several of: a name, an index, a type ("gpu", "accelerator", "other": every device of it), "cpu"
            (the runtime's own), or "auto" alone. A support library driver never chooses itself: "auto" is all.

    Raises:
        DeviceError: no such device; the error lists those there are.
    """
    names = list(choice) if isinstance(choice, (list, tuple)) else [] if choice is None else [choice]
    automatic = not names or names == ["auto"]
    if automatic and not library.is_driver:
        return None
    if library.level < 3:
        raise DeviceError(
            f"devices can be chosen from feature level 3 (Android 10) on, {library.name} is of level {library.level}",
            hint="leave the choice to NNAPI",
        )
    devices = list_devices(library)
    if automatic:
        return devices
    chosen: dict[int, Device] = {}
    for name in names:
        found = _matching(devices, name) if isinstance(name, (str, int)) else []
        if not found:
            known = ", ".join(f"{device.index} {device.name} ({device.type.name.lower()})" for device in devices)
            raise DeviceError(
                f"there is no device {name!r}", hint=f"choose by name, index or type, cpu, or auto; there are: {known}"
            )
        chosen |= {device.index: device for device in found}
    return tuple(chosen.values())


def _matching(devices: Sequence[Device], name: str | int) -> list[Device]:
    exact = [device for device in devices if device.name == name]
    if exact:
        return exact
    if isinstance(name, int) or name.isdecimal():
        return [device for device in devices if str(device.index) == str(name)]
    if name.lower() == "cpu":
        return [device for device in devices if device.is_cpu] or _of_type(devices, "cpu")
    return _of_type(devices, name)


def _of_type(devices: Sequence[Device], name: str) -> list[Device]:
    return [device for device in devices if device.type.name == name.upper()]
