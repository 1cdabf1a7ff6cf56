"""The host library keeps the rules that NNAPI's documentation states: what breaks one is answered as documented."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime.bindings import OperandType, uint32_array
from onnx2nnapi.runtime.library import Library, open_library
from tests.nnapi_host.host import HostLibrary

OK = ResultCode.NO_ERROR
BAD_DATA, BAD_STATE = ResultCode.BAD_DATA, ResultCode.BAD_STATE
F32, I32, QUANT8 = 3, 1, 5


class Calls:
    """NNAPI by its short names, and objects that free themselves at the end of the test."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.frees: list[tuple[str, int]] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        return getattr(self.library, f"ANeuralNetworks{name}")

    def new(self, name: str, *arguments: object) -> int:
        pointer = self.library.create(f"ANeuralNetworks{name}", *arguments)
        self.frees.append((f"ANeuralNetworks{name.split('_')[0]}_free", pointer))
        return pointer

    def close(self) -> None:
        for free, pointer in reversed(self.frees):
            getattr(self.library, free)(pointer)


def type_of(code: int, *dims: int, scale: float = 0, zero_point: int = 0) -> OperandType:
    dimensions = ctypes.cast(uint32_array(list(dims)), ctypes.POINTER(ctypes.c_uint32)) if dims else None
    return OperandType(code, len(dims), dimensions, scale, zero_point)


def indices(*values: int) -> tuple[int, ctypes.Array[ctypes.c_uint32]]:
    return len(values), uint32_array(list(values))


@pytest.fixture
def nn(host: HostLibrary) -> Iterator[Calls]:
    host.check = lambda model: 1
    host.compute = lambda model, inputs: [inputs[0] + inputs[1]]
    calls = Calls(open_library(str(host.path)))
    yield calls
    calls.close()
    from onnx2nnapi.nnapi import validate

    host.check = validate


def add_model(nn: Calls, *, finish: bool = True) -> int:
    """z = x + y of two floats each."""
    model = nn.new("Model_create")
    for type_ in (type_of(F32, 2), type_of(F32, 2), type_of(I32), type_of(F32, 2)):
        assert nn.Model_addOperand(model, type_) == OK
    assert nn.Model_setOperandValue(model, 2, ctypes.byref(ctypes.c_int32(0)), 4) == OK
    assert nn.Model_addOperation(model, 0, *indices(0, 1, 2), *indices(3)) == OK
    if finish:
        assert nn.Model_identifyInputsAndOutputs(model, *indices(0, 1), *indices(3)) == OK
        assert nn.Model_finish(model) == OK
    return model


def device(nn: Calls) -> int:
    return nn.library.create("ANeuralNetworks_getDevice", 0)


def compiled(nn: Calls, *, chosen: bool = True) -> int:
    model = add_model(nn)
    devices = (ctypes.c_void_p * 1)(device(nn))
    made = nn.new("Compilation_createForDevices", model, devices, 1) if chosen else nn.new("Compilation_create", model)
    assert nn.Compilation_finish(made) == OK
    return made


class Ready:
    """An execution whose arguments are set."""

    def __init__(self, nn: Calls, compilation: int, *, reusable: bool = False) -> None:
        self.x, self.z = np.ones(2, np.float32), np.zeros(2, np.float32)
        self.pointer = nn.new("Execution_create", compilation)
        if reusable:
            assert nn.Execution_setReusable(self.pointer, True) == OK
        for index in range(2):
            assert nn.Execution_setInput(self.pointer, index, None, self.x.ctypes.data, 8) == OK
        assert nn.Execution_setOutput(self.pointer, 0, None, self.z.ctypes.data, 8) == OK


class TestModels:
    @pytest.mark.parametrize(
        "type_",
        [
            type_of(99),
            type_of(-1),
            type_of(I32, 2),  # a scalar with dimensions
            type_of(QUANT8, 2),  # without a scale
            type_of(QUANT8, 2, scale=1, zero_point=256),
            type_of(F32, 2, scale=1),
            OperandType(F32, 2, None, 0, 0),  # dimensions that are NULL
        ],
    )
    def test_operand_types(self, nn, type_):
        assert nn.Model_addOperand(nn.new("Model_create"), type_) == BAD_DATA

    def test_values(self, nn):
        model = nn.new("Model_create")
        nn.Model_addOperand(model, type_of(F32, 2))
        data = (ctypes.c_float * 2)()
        assert nn.Model_setOperandValue(model, 1, data, 8) == BAD_DATA  # index
        assert nn.Model_setOperandValue(model, 0, data, 4) == BAD_DATA  # length
        assert nn.Model_setOperandValue(model, 0, data, 8) == OK
        assert nn.Model_setOperandValue(model, 0, data, 8) == BAD_DATA  # again
        assert nn.Model_setOperandValueFromModel(model, 0, add_model(nn)) == BAD_DATA  # no model operand
        assert nn.Model_setOperandValueFromModel(model, 0, add_model(nn, finish=False)) == BAD_STATE

    def test_values_from_memory(self, nn):
        descriptor = os.memfd_create("test")
        os.ftruncate(descriptor, 64)
        memory = nn.new("Memory_createFromFd", 64, 1, descriptor, 0)
        target = ctypes.c_void_p()
        for size, protect, offset in ((65, 1, 0), (64, 4, 0), (32, 1, 32), (0, 1, 0)):
            assert nn.Memory_createFromFd(size, protect, descriptor, offset, ctypes.byref(target)) == BAD_DATA
            assert target.value is None
        os.close(descriptor)
        model = nn.new("Model_create")
        nn.Model_addOperand(model, type_of(F32, 2))
        for offset, length in ((60, 8), (2, 8), (0, 4)):  # beyond the end, not aligned, of another length
            assert nn.Model_setOperandValueFromMemory(model, 0, memory, offset, length) == BAD_DATA
        assert nn.Model_setOperandValueFromMemory(model, 0, memory, 56, 8) == OK

    def test_inputs_and_outputs(self, nn):
        model = add_model(nn, finish=False)
        for inputs, outputs in (((), (3,)), ((0,), ()), ((9,), (3,)), ((2,), (3,)), ((0, 0), (3,)), ((0,), (0,))):
            fresh = add_model(nn, finish=False)
            assert nn.Model_identifyInputsAndOutputs(fresh, *indices(*inputs), *indices(*outputs)) == BAD_DATA
        assert nn.Model_identifyInputsAndOutputs(model, *indices(0, 1), *indices(3)) == OK

    def test_structure(self, nn):
        unread = add_model(nn, finish=False)
        nn.Model_addOperand(unread, type_of(F32, 2))  # written by nothing
        nn.Model_identifyInputsAndOutputs(unread, *indices(0, 1), *indices(3))
        twice = add_model(nn, finish=False)
        nn.Model_addOperation(twice, 0, *indices(0, 1, 2), *indices(3))
        nn.Model_identifyInputsAndOutputs(twice, *indices(0, 1), *indices(3))
        cycle = nn.new("Model_create")
        for _ in range(3):
            nn.Model_addOperand(cycle, type_of(F32, 2))
        nn.Model_addOperation(cycle, 19, *indices(1), *indices(2))
        nn.Model_addOperation(cycle, 19, *indices(2), *indices(1))
        nn.Model_identifyInputsAndOutputs(cycle, *indices(0), *indices(2))
        for broken in (unread, twice, cycle, add_model(nn, finish=False)):
            assert nn.Model_finish(broken) == BAD_DATA

    def test_a_finished_model_is_not_modified(self, nn):
        model = add_model(nn)
        assert nn.Model_finish(model) == BAD_STATE
        assert nn.Model_addOperand(model, type_of(F32, 2)) == BAD_STATE
        assert nn.Model_relaxComputationFloat32toFloat16(model, True) == BAD_STATE


class TestCompilations:
    def test_states_and_ranges(self, nn):
        target = ctypes.c_void_p()
        assert nn.Compilation_create(add_model(nn, finish=False), ctypes.byref(target)) == BAD_STATE
        compilation = nn.new("Compilation_create", add_model(nn))
        assert nn.Compilation_setPreference(compilation, 3) == BAD_DATA
        assert nn.Compilation_setPriority(compilation, 95) == BAD_DATA
        assert nn.Compilation_setTimeout(compilation, 1) == BAD_DATA  # without one chosen device
        assert nn.Execution_create(compilation, ctypes.byref(target)) == BAD_STATE
        assert nn.Burst_create(compilation, ctypes.byref(target)) == BAD_STATE
        answer = ctypes.c_uint32()
        ask = nn.Compilation_getPreferredMemoryAlignmentForInput
        assert ask(compilation, 0, ctypes.byref(answer)) == BAD_STATE
        assert nn.Compilation_finish(compilation) == OK
        assert ask(compilation, 2, ctypes.byref(answer)) == BAD_DATA
        assert nn.Compilation_finish(compilation) == BAD_STATE
        assert nn.Compilation_setPreference(compilation, 0) == BAD_STATE

    def test_device_lists(self, nn):
        model, target = add_model(nn), ctypes.c_void_p()
        twice = (ctypes.c_void_p * 2)(device(nn), device(nn))
        assert nn.Compilation_createForDevices(model, twice, 0, ctypes.byref(target)) == BAD_DATA
        assert nn.Compilation_createForDevices(model, twice, 2, ctypes.byref(target)) == BAD_DATA
        assert nn._getDevice(9, ctypes.byref(target)) == BAD_DATA


class TestExecutions:
    def test_arguments(self, nn):
        execution = nn.new("Execution_create", compiled(nn))
        x = np.ones(2, np.float32)
        assert nn.Execution_setInput(execution, 2, None, x.ctypes.data, 8) == BAD_DATA
        assert nn.Execution_setInput(execution, 0, None, x.ctypes.data, 4) == BAD_DATA
        assert nn.Execution_setInput(execution, 0, None, x.ctypes.data, 12) == BAD_DATA  # padding is not enabled
        assert nn.Execution_setInput(execution, 0, type_of(F32, 3), x.ctypes.data, 12) == BAD_DATA
        assert nn.Execution_setInput(execution, 0, type_of(I32), x.ctypes.data, 4) == BAD_DATA
        assert nn.Execution_compute(execution) == BAD_DATA  # nothing is set
        assert nn.Execution_setInput(execution, 0, None, x.ctypes.data, 8) == OK
        assert nn.Execution_setInput(execution, 0, None, x.ctypes.data, 8) == BAD_STATE  # again
        assert nn.Execution_enableInputAndOutputPadding(execution, True) == BAD_STATE  # too late

    def test_one_computation_unless_reusable(self, nn):
        compilation = compiled(nn)
        once = Ready(nn, compilation)
        assert nn.Execution_getOutputOperandRank(once.pointer, 0, ctypes.byref(ctypes.c_uint32())) == BAD_STATE
        assert nn.Execution_compute(once.pointer) == OK
        assert once.z.tolist() == [2, 2]
        assert nn.Execution_compute(once.pointer) == BAD_STATE
        assert nn.Execution_setReusable(once.pointer, True) == BAD_STATE
        assert nn.Execution_setLoopTimeout(once.pointer, 1) == BAD_STATE
        again = Ready(nn, compilation, reusable=True)
        assert [nn.Execution_compute(again.pointer) for _ in range(3)] == [OK] * 3

    def test_what_needs_one_chosen_device(self, nn):
        execution = nn.new("Execution_create", compiled(nn, chosen=False))
        assert nn.Execution_setMeasureTiming(execution, True) == BAD_DATA
        assert nn.Execution_setTimeout(execution, 1) == BAD_DATA

    def test_durations_need_to_be_asked_for(self, nn):
        ready = Ready(nn, compiled(nn))
        duration = ctypes.c_uint64()
        assert nn.Execution_getDuration(ready.pointer, 0, ctypes.byref(duration)) == BAD_STATE
        assert nn.Execution_compute(ready.pointer) == OK
        assert nn.Execution_getDuration(ready.pointer, 4, ctypes.byref(duration)) == BAD_DATA
        assert nn.Execution_getDuration(ready.pointer, 0, ctypes.byref(duration)) == BAD_STATE
        assert duration.value == 2**64 - 1

    def test_a_burst_belongs_to_its_compilation(self, nn):
        burst = nn.new("Burst_create", compiled(nn))
        assert nn.Execution_burstCompute(Ready(nn, compiled(nn)).pointer, burst) == BAD_DATA


class TestEvents:
    def test_a_started_execution_cannot_be_started_again_or_freed(self, nn, host):
        host.delay(compute_seconds=0.05)
        ready = Ready(nn, compiled(nn), reusable=True)
        event = nn.new("Execution_startCompute", ready.pointer)  # as "Execution_free": replaced just below
        nn.frees[-1] = ("ANeuralNetworksEvent_free", event)
        assert nn.Execution_compute(ready.pointer) == BAD_STATE
        with breaking(host, "freed before its computation completed"):
            nn.Execution_free(ready.pointer)
        assert nn.Event_wait(event) == OK
        assert nn.Event_wait(event) == OK
        assert nn.Execution_compute(ready.pointer) == OK

    def test_fences(self, nn):
        compilation = compiled(nn)
        first, second = Ready(nn, compilation), Ready(nn, compilation)
        read, write = os.pipe()
        gate = nn.new("Event_createFromSyncFenceFd", read)
        events = []
        for ready, needs in ((first, [gate]), (second, [])):
            array = (ctypes.c_void_p * len(needs))(*needs) if needs else None
            event = nn.new("Execution_startComputeWithDependencies", ready.pointer, array, len(needs), 0)
            nn.frees[-1] = ("ANeuralNetworksEvent_free", event)
            events.append(event)
        assert nn.Event_wait(events[1]) == OK  # needs nothing, so that it is done first
        assert first.z.tolist() == [0, 0]
        os.write(write, b"!")
        assert nn.Event_wait(events[0]) == OK
        assert first.z.tolist() == [2, 2]
        fence = ctypes.c_int()
        assert nn.Event_getSyncFenceFd(events[0], ctypes.byref(fence)) == OK
        for descriptor in (fence.value, read, write):
            os.close(descriptor)
        assert nn.Event_createFromSyncFenceFd(-1, ctypes.byref(ctypes.c_void_p())) == BAD_DATA

    def test_a_dependency_that_fails(self, nn):
        ready = Ready(nn, compiled(nn))
        read, write = os.pipe()
        gate = nn.new("Event_createFromSyncFenceFd", read)
        event = nn.new("Execution_startComputeWithDependencies", ready.pointer, (ctypes.c_void_p * 1)(gate), 1, 0)
        nn.frees[-1] = ("ANeuralNetworksEvent_free", event)
        os.close(write)
        assert nn.Event_wait(event) == ResultCode.OP_FAILED
        os.close(read)


class TestDescriptors:
    def test_states_and_roles(self, nn):
        compilation, desc = compiled(nn), nn.new("MemoryDesc_create")
        target = ctypes.c_void_p()
        assert nn.MemoryDesc_finish(desc) == BAD_DATA  # without a role
        assert nn.Memory_createFromDesc(desc, ctypes.byref(target)) == BAD_STATE
        assert nn.MemoryDesc_addInputRole(desc, compilation, 2, 1.0) == BAD_DATA
        for frequency in (0.0, -1.0, 1.5):
            assert nn.MemoryDesc_addInputRole(desc, compilation, 0, frequency) == BAD_DATA
        assert nn.MemoryDesc_addInputRole(desc, compilation, 0, 0.5) == OK
        assert nn.MemoryDesc_addInputRole(desc, compilation, 0, 0.5) == BAD_DATA  # again
        assert nn.MemoryDesc_setDimensions(desc, *indices(3)) == BAD_DATA
        assert nn.MemoryDesc_finish(desc) == OK
        assert nn.MemoryDesc_finish(desc) == BAD_STATE
        memory = nn.new("Memory_createFromDesc", desc)
        execution = nn.new("Execution_create", compilation)
        assert nn.Execution_setInputFromMemory(execution, 0, None, memory, 0, 8) == BAD_DATA  # whole, or not at all
        assert nn.Execution_setInputFromMemory(execution, 1, None, memory, 0, 0) == BAD_DATA  # not its role
        model = nn.new("Model_create")
        nn.Model_addOperand(model, type_of(F32, 2))
        assert nn.Model_setOperandValueFromMemory(model, 0, memory, 0, 8) == BAD_DATA


@contextmanager
def breaking(host: HostLibrary, text: str) -> Iterator[None]:
    """The rule that the block breaks, which it alone breaks."""
    assert host.violations == []
    yield
    (found,) = host.violations
    assert text in found
    host.c.host_clear_violations()


class TestLifetimes:
    def test_nothing_is_freed_while_it_is_needed(self, nn, host):
        compilation = compiled(nn)
        model = next(pointer for free, pointer in nn.frees if "Model" in free)
        with breaking(host, "Model_free: freed while 1 objects still need it"):
            nn.Model_free(model)
        nn.new("Execution_create", compilation)
        with breaking(host, "Compilation_free: freed while 1 objects still need it"):
            nn.Compilation_free(compilation)

    def test_nothing_is_used_after_it_was_freed(self, nn, host):
        model = nn.new("Model_create")
        nn.frees.pop()
        nn.Model_free(model)
        with breaking(host, "Model_finish: model is no live handle of its kind"):
            assert nn.Model_finish(model) == BAD_DATA
        with breaking(host, "Model_free: freed twice"):
            nn.Model_free(model)

    def test_outputs_overlap_nothing(self, nn, host):
        execution = nn.new("Execution_create", compiled(nn))
        x = np.ones(3, np.float32)
        nn.Execution_setInput(execution, 0, None, x.ctypes.data, 8)
        with breaking(host, "an output overlaps another argument"):
            nn.Execution_setOutput(execution, 0, None, x[1:].ctypes.data, 8)
