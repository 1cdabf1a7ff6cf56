from __future__ import annotations

import os

import numpy as np
import pytest

from onnx2nnapi.errors import DeviceError, FeedError
from onnx2nnapi.nnapi.artifact import MappedFile
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime.device import NnapiExecutor
from onnx2nnapi.runtime.library import open_library
from onnx2nnapi.runtime.memory import (
    FileRange,
    Memory,
    SharedMemory,
    anonymous_file,
    copy_memory,
    device_memory,
    file_behind,
)
from onnx2nnapi.runtime.model_builder import build_model
from tests.nnapi_host import models

X = np.arange(6, dtype=np.float32).reshape(2, 3)
MAPPABLE, FILES_UNMAPPABLE, FILES_REFUSED_AT_COMPILATION = range(3)


@pytest.fixture
def library(host):
    return open_library(str(host.path))


class TestFileBehind:
    def test_an_array_of_a_mapped_file_tells_its_place(self, tmp_path):
        path = tmp_path / "numbers"
        path.write_bytes(np.arange(64, dtype=np.float32).tobytes())
        file = MappedFile.open(path)
        array = np.frombuffer(file, np.float32)
        assert file_behind(array) == FileRange(file.fileno(), 0)
        assert file_behind(array[16:32].reshape(4, 4)) == FileRange(file.fileno(), 64)
        assert file_behind(array[::2]) is None
        assert file_behind(array[:0]) is None

    def test_other_arrays_are_in_no_file(self):
        assert file_behind(np.arange(4)) is None
        assert file_behind(np.frombuffer(b"abcd", np.uint8)) is None


class TestMappedConstants:
    @pytest.fixture
    def mapped(self, tmp_path):
        """A model whose constant lies 64 bytes into a file, and what x of ones gives."""
        path = tmp_path / "model.nnapi"
        path.write_bytes(b"." * 64 + np.arange(64, dtype=np.float32).tobytes())
        value = np.frombuffer(MappedFile.open(path), np.float32, 64, 64)
        return models.add_array(value), np.arange(64) + 1

    def test_the_file_itself_is_mapped(self, host, library, mapped):
        model, wanted = mapped
        with NnapiExecutor(model, library) as executor:
            assert np.array_equal(executor.run([np.ones(64, np.float32)])[0], wanted)
        assert executor.notes == ()
        assert any("createFromFd(size=320, protect=1" in line for line in host.log)
        assert any("FromMemory" in line and "offset=64, length=256" in line for line in host.log)

    @pytest.mark.parametrize(
        ("mapping", "reason"),
        [
            (FILES_UNMAPPABLE, "could not be mapped by NNAPI"),
            (FILES_REFUSED_AT_COMPILATION, "were refused by the driver"),
        ],
    )
    def test_where_a_file_cannot_be_mapped_it_is_copied_and_said(self, host, library, mapped, mapping, reason):
        host.c.host_set_mapping(mapping)
        model, wanted = mapped
        with NnapiExecutor(model, library) as executor:
            assert np.array_equal(executor.run([np.ones(64, np.float32)])[0], wanted)
        assert executor.notes == (f"the constants (0.0 MB) {reason}: copied into shared memory",)

    def test_a_driver_that_fails_on_the_copy_too_is_told_by_its_first_answer(self, host, library, mapped):
        def refuse(nth):
            host.fail("Compilation_finish", ResultCode.OP_FAILED, nth)

        refuse(1)
        with NnapiExecutor(mapped[0], library) as executor:
            assert "refused by the driver" in executor.notes[0]
        host.c.host_set_mapping(FILES_REFUSED_AT_COMPILATION)
        refuse(2)
        with pytest.raises(DeviceError, match="Compilation_finish answered OP_FAILED: the driver failed to compile"):
            NnapiExecutor(mapped[0], library)
        assert host.live == {}

    def test_each_call_failing_in_turn_leaves_nothing(self, host, library, mapped):
        for mapping in (MAPPABLE, FILES_UNMAPPABLE, FILES_REFUSED_AT_COMPILATION):
            host.c.host_set_mapping(mapping)
            for nth in range(1, 40):
                host.fail("*", ResultCode.OUT_OF_MEMORY, nth)
                caught = None
                try:
                    with NnapiExecutor(mapped[0], library) as executor:
                        executor.run([np.ones(64, np.float32)])
                except DeviceError as error:
                    caught = error
                assert (host.live, host.violations) == ({}, [])
                # What the driver answered first, where the copy failed too.
                assert caught is None or caught.code in ("OUT_OF_MEMORY", "OP_FAILED")
        host.fail(nth=0)

    def test_files_stay_open_as_long_as_models_need_them(self, library, mapped):
        model, wanted = mapped
        executor = NnapiExecutor(model, library)
        del model, mapped
        with executor:
            assert np.array_equal(executor.run([np.ones(64, np.float32)])[0], wanted)


class TestSharedMemory:
    def test_bound_runs_take_memory_for_inputs_and_outputs(self, library):
        with (
            SharedMemory(library, 24) as x,
            SharedMemory(library, 24) as out,
            NnapiExecutor(models.add(), library) as executor,
            executor.bind([x, X], [out]) as bound,
        ):
            view, result = x.array(np.float32, (2, 3)), out.array(np.float32, (2, 3))
            for value in range(3):
                view[:] = value
                bound.run()
                assert np.array_equal(result, X + value)

    def test_memory_outlives_those_who_use_it(self, host, library):
        executor = NnapiExecutor(models.add(), library)
        memory = SharedMemory(library, 24)
        bound = executor.bind([memory, X])
        memory.close()
        executor.close()
        assert host.live["memory"] == 1
        bound.run()
        bound.close()
        assert host.live == {}

    def test_memory_that_is_too_small_or_closed(self, library):
        with NnapiExecutor(models.add(), library) as executor, SharedMemory(library, 20) as memory:
            with pytest.raises(FeedError, match=r"input 0 'x': the memory has 20 bytes, .* needs 24"):
                executor.bind([memory, X])
            with SharedMemory(library, 24) as closed:
                pass
            with pytest.raises(DeviceError, match="input 0: the memory is closed"):
                executor.bind([closed, X])
            with pytest.raises(DeviceError, match="SharedMemory: it is closed"):
                copy_memory(library, memory, closed)

    def test_memory_of_another_library(self, make_host, library):
        other = open_library(str(make_host(5).path))
        with NnapiExecutor(models.add(), library) as executor, SharedMemory(other, 24) as memory:
            with pytest.raises(DeviceError, match=r"input 0: the memory belongs to .*-5-"):
                executor.bind([memory, X])
            with pytest.raises(DeviceError, match="the memory belongs to"):
                executor.bind([X, X], [memory])

    def test_memory_is_not_read_and_written_by_one_run(self, library):
        refused = pytest.raises(FeedError, match="output 0: shares memory with input 1")
        with NnapiExecutor(models.add(), library) as executor, SharedMemory(library, 24) as memory, refused:
            executor.bind([X, memory], [memory])

    def test_roles_of_a_closed_compilation(self, library):
        executor = NnapiExecutor(models.add(), library)
        executor.close()
        with pytest.raises(DeviceError, match="the executor is closed"):
            executor.device_memory(inputs=[0])

    def test_an_anonymous_file_has_its_size(self):
        descriptor = anonymous_file("test", 12345)
        try:
            assert os.fstat(descriptor).st_size == 12345
        finally:
            os.close(descriptor)

    def test_descriptors_are_not_leaked(self, host, library):
        before = len(os.listdir("/proc/self/fd"))
        for code in (None, ResultCode.UNMAPPABLE):
            if code is not None:
                host.fail("Memory_createFromFd", code)
            try:
                with SharedMemory(library, 100) as memory:
                    memory.bytes[:] = 1
                del memory
            except DeviceError:
                assert code is not None
        assert len(os.listdir("/proc/self/fd")) == before


class TestDeviceMemory:
    def test_a_value_stays_on_the_device_between_two_models(self, host, library):
        with (
            NnapiExecutor(models.add(), library) as first,
            NnapiExecutor(models.add(), library) as second,
            device_memory(
                library,
                outputs=[(first.compilation, 0)],
                inputs=[(second.compilation, 0)],
                dimensions=(2, 3),
            ) as between,
            first.bind([X, X], [between]) as one,
            second.bind([between, X]) as two,
        ):
            one.run()
            two.run()
            assert np.array_equal(two.outputs[0], 3 * X)

    def test_it_holds_nothing_before_it_was_an_output(self, library):
        with NnapiExecutor(models.add(), library) as executor, executor.device_memory(inputs=[0]) as memory:
            with executor.bind([memory, X]) as bound, pytest.raises(DeviceError, match="answered BAD_DATA"):
                bound.run()
            with SharedMemory(library, 24) as source:
                source.array(np.float32, (2, 3))[:] = 7
                copy_memory(library, source, memory)
            with executor.bind([memory, X]) as bound:
                bound.run()
                assert np.array_equal(bound.outputs[0], X + 7)

    def test_roles_must_agree(self, host, library):
        with (
            NnapiExecutor(models.add(), library) as a,
            NnapiExecutor(models.add((4,)), library) as b,
            pytest.raises(DeviceError, match="MemoryDesc_addInputRole answered BAD_DATA"),
        ):
            device_memory(library, inputs=[(a.compilation, 0), (b.compilation, 0)])
        assert host.live == {}

    def test_sizes_must_agree_to_copy(self, library):
        with (
            SharedMemory(library, 8) as a,
            SharedMemory(library, 16) as b,
            pytest.raises(
                DeviceError, match="Memory_copy answered BAD_DATA: the sizes differ, or the source was never written"
            ),
        ):
            copy_memory(library, a, b)

    def test_each_call_failing_in_turn_leaves_nothing(self, host, library):
        with NnapiExecutor(models.add(), library) as executor:
            for nth in range(1, 12):
                host.fail("*", ResultCode.RESOURCE_EXHAUSTED_PERSISTENT, nth)
                try:
                    with executor.device_memory(inputs=[0], outputs=[0]):
                        pass
                except DeviceError:
                    pass
                assert set(host.live) == {"model", "compilation"}
            host.fail(nth=0)


class TestHardwareBuffers:
    def test_a_blob_is_used_like_shared_memory(self, host, library):
        buffer = host.c.host_hardware_buffer(24, 1)
        try:
            with (
                Memory.of_hardware_buffer(library, buffer, size=24) as memory,
                NnapiExecutor(models.add(), library) as executor,
                executor.bind([X, X], [memory]) as bound,
            ):
                bound.run()
                address = host.c.host_hardware_buffer_data(buffer)
                assert np.array_equal(np.ctypeslib.as_array((np.ctypeslib.ctypes.c_float * 6).from_address(address)),
                                      (X + X).ravel())  # fmt: skip
        finally:
            host.c.host_hardware_buffer_free(buffer)

    def test_an_image_is_used_as_a_whole(self, host, library):
        buffer = host.c.host_hardware_buffer(24, 0)
        try:
            with (
                Memory.of_hardware_buffer(library, buffer) as memory,
                NnapiExecutor(models.add(), library) as executor,
                executor.bind([memory, X]) as bound,
            ):
                bound.run()
                assert np.array_equal(bound.outputs[0], X)
        finally:
            host.c.host_hardware_buffer_free(buffer)


def test_a_model_keeps_the_arrays_that_it_points_into(host, library):
    """What setOperandValue points at must live: the host library reads it late, at each computation."""
    built = build_model(library, models.add_constant())
    assert built.pointer is not None
    built.close()
    assert host.live == {}
