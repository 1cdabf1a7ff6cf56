"""Constants that stay in their file: a range of it, read when it is needed and refused once the file has changed."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from onnx2nnapi.errors import InvalidModelError
from onnx2nnapi.ir.types import Array, Shape

__all__ = ["DataFile", "FileSource"]

_CHUNK = 1 << 22


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as it was when its ranges were noted.

    Attributes:
        path: where it is.
        name: as the model spells it, for messages and metadata.
        size, mtime_ns: of that moment; a file that differs later has changed.
    """

    path: str
    name: str
    size: int
    mtime_ns: int

    @classmethod
    def open(cls, path: str | os.PathLike[str], name: str | None = None) -> DataFile:
        """Note a file's state.

        Raises:
            InvalidModelError: it is missing or no regular file.
        """
        target = os.fspath(path)
        shown = name or target
        try:
            status = os.stat(target)
        except OSError as error:
            raise InvalidModelError(
                f"cannot be read: {error.strerror or error}", where=f"external data file {shown!r}"
            ) from None
        if not os.path.isfile(target):
            raise InvalidModelError("is no file", where=f"external data file {shown!r}")
        return cls(target, shown, status.st_size, status.st_mtime_ns)

    def check(self) -> None:
        """Refuse a file that is gone or was written since."""
        now = DataFile.open(self.path, self.name)
        if (now.size, now.mtime_ns) != (self.size, self.mtime_ns):
            raise InvalidModelError(
                "has changed since the model was read",
                where=f"external data file {self.name!r}",
                hint="convert the model again",
            )


@dataclass(frozen=True, slots=True, eq=False)
class FileSource:
    """A constant that is a range of a file.

    Attributes:
        file: the file.
        offset: of the first byte.
        dtype, shape: of the array there, little-endian and C-contiguous.
    """

    file: DataFile
    offset: int
    dtype: np.dtype[Any]
    shape: Shape
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", math.prod(self.shape) * self.dtype.itemsize)
        if self.offset < 0 or self.offset + self.nbytes > self.file.size:
            raise InvalidModelError(
                f"has {self.file.size} bytes, a tensor needs the bytes {self.offset} to {self.offset + self.nbytes}",
                where=f"external data file {self.file.name!r}",
            )

    def read(self) -> Array:
        """The array, mapped from the file for as long as it is referred to."""
        self.file.check()
        if self.nbytes == 0:
            return np.empty(self.shape, self.dtype)
        try:
            mapped = np.memmap(self.file.path, self.dtype, mode="r", offset=self.offset, shape=self.shape)
        except (OSError, ValueError) as error:
            raise InvalidModelError(
                f"cannot be mapped: {error}", where=f"external data file {self.file.name!r}"
            ) from None
        return mapped.view(np.ndarray)

    def copy_to(self, target: BinaryIO) -> None:
        """Append the bytes to an open file without taking them into memory."""
        self.file.check()
        target.flush()
        left, offset = self.nbytes, self.offset
        with open(self.file.path, "rb") as source:
            while left and hasattr(os, "copy_file_range"):
                try:
                    done = os.copy_file_range(source.fileno(), target.fileno(), left, offset)
                except OSError:  # another file system, an old kernel: the loop below copies, and reports a full disk
                    break
                if not done:
                    break
                left, offset = left - done, offset + done
            source.seek(offset)
            target.seek(0, os.SEEK_END)
            while left:
                chunk = source.read(min(left, _CHUNK))
                if not chunk:
                    raise InvalidModelError("was cut while it was read", where=f"external data file {self.file.name!r}")
                target.write(chunk)
                left -= len(chunk)
