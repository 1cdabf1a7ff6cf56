"""The host library in a program that knows nothing of it: the command line with --library, for example."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import CHECKOUT
from tests.runtime.conftest import host_library

PROGRAM = """
import sys, numpy as np
sys.path.insert(0, sys.argv[2])
from onnx2nnapi.nnapi import Model
from onnx2nnapi.runtime import NnapiExecutor
t = {"type": "TENSOR_FLOAT32", "dimensions": [3]}
main = {"operands": [t | {"lifetime": "INPUT"}, t | {"lifetime": "OUTPUT"}], "inputs": [0], "outputs": [1],
        "operations": [{"op": "TANH", "inputs": [0], "outputs": [1]}]}
with NnapiExecutor(Model.from_dict({"main": main}), sys.argv[1]) as executor:
    print(np.allclose(executor.run([np.ones(3, np.float32)])[0], np.tanh(1)))
"""


def test_it_finds_its_interpreter_by_itself():
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(host_library().path), str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/")
    assert (done.stdout, done.stderr) == ("True\n", "")
