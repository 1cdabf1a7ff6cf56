"""The device runtime under AddressSanitizer: no use after free, no overrun, on either side of the C calls."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.nnapi_host.host import compiler

HERE = pathlib.Path(__file__).resolve().parent


def sanitizer() -> str:
    """The runtime that must be loaded first, as Python itself is not built with it."""
    if compiler() is None:
        pytest.skip("there is no C compiler")
    found = subprocess.run(
        [compiler() or "cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if not os.path.isabs(found):
        pytest.skip("the C compiler has no AddressSanitizer")
    return found


@pytest.mark.parametrize(
    ("module", "tests"),
    [
        ("test_event.py", "not level"),
        ("test_memory.py", "not each_call"),
        ("test_device.py", "(TestModels or TestShapes or TestBound) and not every_level"),
    ],
)
def test_the_device_tests_are_clean(module, tests):
    environment = os.environ | {
        "NNAPI_HOST_SANITIZE": "1",
        "LD_PRELOAD": sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter's own; the host library counts its handles itself
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / module), "-k", tests]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "AddressSanitizer" not in done.stderr
