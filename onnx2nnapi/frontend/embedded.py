"""The weights inside a large .onnx file stay there: the parser gets a copy without them, which tells where they are.

A ModelProto holds its graph in field 7, a GraphProto its initializers in field 5, a TensorProto its bytes in field 9
(onnx.proto). Everything else is copied as it is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from onnx import StringStringEntryProto, TensorProto

__all__ = ["EMBEDDED", "without_weights"]

EMBEDDED = "\0"  # the location of a tensor whose data is in the model's own file; no file has this name

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_LARGE = 1 << 12
_BYTES = 2  # wire type of everything that has a length


class _Malformed(ValueError):
    """Not what this module reads; the parser judges it."""


def without_weights(data: mmap.mmap) -> bytes | None:
    """The model with the data of its large initializers replaced by their places, as external data of EMBEDDED.

    Returns:
        None where the file is not laid out as expected; the whole of it must be parsed then.
    """
    try:
        return _model(data)
    except (_Malformed, IndexError):
        return None


def _model(data: mmap.mmap) -> bytes:
    parts: list[bytes] = []
    graphs = 0
    for number, start, content, end in _fields(data, 0, len(data)):
        if number == _GRAPH:
            graphs += 1
            parts.append(_field(_GRAPH, _graph(data, content, end)))
        else:
            parts.append(data[start:end])
    if graphs != 1:
        raise _Malformed
    return b"".join(parts)


def _graph(data: mmap.mmap, begin: int, end: int) -> bytes:
    parts: list[bytes] = []
    copied = begin  # what lies before it is in parts
    for number, start, content, stop in _fields(data, begin, end):
        if number == _INITIALIZER and stop - content > _LARGE:
            tensor = _tensor(data, content, stop)
            if tensor is not None:
                parts += (data[copied:start], _field(_INITIALIZER, tensor))
                copied = stop
    parts.append(data[copied:end])
    return b"".join(parts)


def _tensor(data: mmap.mmap, begin: int, end: int) -> bytes | None:
    """An initializer that tells where its bytes are; None where it has none, or few."""
    raw: list[tuple[int, int]] = []
    parts: list[bytes] = []
    for number, start, content, stop in _fields(data, begin, end):
        if number == _RAW_DATA:
            raw.append((content, stop))
        else:
            parts.append(data[start:stop])
    if len(raw) != 1 or raw[0][1] - raw[0][0] < _LARGE:
        return None
    entries = {"location": EMBEDDED, "offset": str(raw[0][0]), "length": str(raw[0][1] - raw[0][0])}
    place = TensorProto(
        data_location=TensorProto.EXTERNAL,
        external_data=[StringStringEntryProto(key=key, value=value) for key, value in entries.items()],
    )
    return b"".join([*parts, place.SerializeToString()])


def _fields(data: mmap.mmap, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, start, start of the content and end of each field of a message."""
    at = begin
    while at < end:
        start = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _varint(data, at)
            content, at = at, at + length
        elif kind == 0:
            content = at
            _, at = _varint(data, at)
        elif kind in (1, 5):
            content, at = at, at + (8 if kind == 1 else 4)
        else:
            raise _Malformed
        if at > end:
            raise _Malformed
        yield tag >> 3, start, content, at


def _varint(data: mmap.mmap, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
        if shift > 63:
            raise _Malformed


def _field(number: int, content: bytes) -> bytes:
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return b"".join((bytes([number << 3 | _BYTES]), size, content))
