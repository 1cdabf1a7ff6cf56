from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from onnx2nnapi.errors import DeviceError, FeatureLevelError, FeedError, InvalidModelError
from onnx2nnapi.nnapi.codes import DurationCode, ResultCode
from onnx2nnapi.runtime.device import NnapiExecutor
from tests.nnapi_host import models
from tests.nnapi_host.host import HostLibrary, interpret

X = np.arange(6, dtype=np.float32).reshape(2, 3)
MODES = ("sync", "async", "burst", "fenced")


def open_on(host: HostLibrary, model, devices=None, **options) -> NnapiExecutor:
    return NnapiExecutor(model, str(host.path), devices, **options)


@pytest.fixture
def npu(host):
    """The host library with an accelerator that knows ADD and RELU."""
    host.add_device("acme-npu", 4, version="7.1", level=4, supports=["ADD", "RELU"])
    return host


class TestModels:
    """Each way to describe an operand arrives as it was meant: the interpreter computes what was rebuilt."""

    @pytest.mark.parametrize("mode", MODES)
    def test_modes_compute_the_same(self, host, mode):
        with open_on(host, models.add(), mode=mode) as executor:
            assert np.array_equal(executor.run([X, X])[0], X + X)

    def test_a_large_constant_stays_where_it_is(self, host):
        with open_on(host, models.add_constant()) as executor:
            x = np.ones(64, np.float32)
            assert np.array_equal(executor.run([x])[0], x + np.arange(64))
        assert executor.notes == ()
        assert "Memory_createFromFd" not in host.calls

    def test_per_channel_scales(self, host):
        x = np.array([[[[130], [132]], [[128], [126]]]], np.uint8)
        with open_on(host, models.per_channel()) as executor:
            assert np.array_equal(executor.run([x])[0], interpret(models.per_channel(), [x])[0])
        assert "Model_setOperandSymmPerChannelQuantParams" in host.calls

    @pytest.mark.parametrize(("condition", "wanted"), [(True, 2 * 3), (False, 3 * 3)])
    def test_submodels(self, host, condition, wanted):
        with open_on(host, models.conditional()) as executor:
            out = executor.run([np.array([condition]), np.full(3, 3, np.float32)])[0]
        assert out.tolist() == [wanted] * 3
        assert host.calls.count("Model_setOperandValueFromModel") == 2

    def test_omitted_operands_and_relaxation(self, host):
        with open_on(host, models.transposed()) as executor:
            assert np.array_equal(executor.run([X])[0], X.T)
        with open_on(host, models.add(relaxed=True)):
            assert "Model_relaxComputationFloat32toFloat16" in host.calls

    def test_every_level_runs_in_its_own_way(self, any_level):
        with open_on(any_level, models.add()) as executor:
            assert np.array_equal(executor.run([X, X])[0], X + X)
            with executor.bind([X, X]) as bound:
                for _ in range(3):
                    bound.run()
                assert np.array_equal(bound.outputs[0], X + X)
        level = executor.library.level
        assert ("Execution_compute" in any_level.calls) == (level >= 3)
        assert any_level.calls.count("Execution_create") == (2 if level >= 5 else 5)

    def test_a_driver_alone_runs(self, make_host):
        host = make_host(driver=True)
        for mode in ("sync", "fenced", "burst"):
            with open_on(host, models.add(), mode=mode) as executor:
                assert np.array_equal(executor.run([X, X])[0], X + X)
        with pytest.raises(DeviceError, match="a support library driver has no async runs; use mode fenced"):
            open_on(host, models.add(), mode="async")


class TestShapes:
    def test_outputs_of_unknown_shape_grow_to_what_the_runtime_asks_for(self, host):
        with open_on(host, models.dynamic()) as executor:
            x = np.arange(4, dtype=np.float32)
            for count in (1, 5000, 3):
                out = executor.run([x, np.array([count], np.int32)])[0]
                assert np.array_equal(out, np.tile(x, count))
        assert host.calls.count("Execution_compute") == 4  # one more, for the one that was too large

    def test_outputs_of_unknown_rank(self, host):
        with open_on(host, models.dynamic(())) as executor:
            out = executor.run([np.arange(4, dtype=np.float32), np.array([2], np.int32)])[0]
            assert out.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]

    def test_inputs_of_unknown_size(self, host):
        with open_on(host, models.unspecified_input()) as executor:
            for size in (1, 7):
                x = np.linspace(-1, 1, size, dtype=np.float32)
                assert np.array_equal(executor.run([x])[0], np.maximum(x, 0))

    def test_a_driver_that_never_has_enough(self, host):
        sizes = iter(range(11, 30))
        with open_on(host, models.dynamic()) as executor:
            host.compute = lambda model, inputs: [np.zeros(1 << next(sizes), np.float32)]
            with pytest.raises(
                DeviceError,
                match="Execution_compute answered OUTPUT_INSUFFICIENT_SIZE: outputs are still too small after 8 tries; "
                "the driver reports shapes that do not suffice; try --device cpu",
            ):
                executor.run([np.zeros(4, np.float32), np.array([2], np.int32)])

    def test_unknown_outputs_cannot_be_bound(self, host):
        with (
            open_on(host, models.dynamic()) as executor,
            pytest.raises(
                DeviceError, match=r"output 0: its shape is known only after a run; use run\(\) instead of bind\(\)"
            ),
        ):
            executor.bind([np.zeros(4, np.float32), np.array([2], np.int32)])


class TestInputs:
    @pytest.mark.parametrize(
        ("feeds", "text"),
        [
            ([X], "the model has 2 inputs, not 1"),
            ([X, X.astype(np.float64)], "input 1 'y': must be float32, not float64; cast it with astype"),
            ([X, X.T], r"input 1 'y': must have shape \[2, 3\], not \[3, 2\]"),
            ([X, [1.0]], "input 1 'y': must be an array, not list"),
            ([X, X.astype(">f4")], "input 1 'y': must be float32, not >f4"),
        ],
    )
    def test_what_does_not_fit_never_reaches_the_library(self, host, feeds, text):
        with open_on(host, models.add()) as executor:
            before = len(host.calls)
            with pytest.raises(FeedError, match=text):
                executor.run(feeds)
            assert len(host.calls) == before

    def test_strided_inputs_are_copied_by_run_and_refused_by_bind(self, host):
        wide = np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2]
        with open_on(host, models.add()) as executor:
            assert np.array_equal(executor.run([wide, wide])[0], wide + wide)
            with pytest.raises(FeedError, match="input 0 'x': must be contiguous, as it is bound without a copy"):
                executor.bind([wide, wide])
            odd = np.frombuffer(bytearray(25), np.uint8)[1:].view(np.float32).reshape(2, 3)
            assert np.array_equal(executor.run([odd, X])[0], X)
            with pytest.raises(FeedError, match="input 0 'x': must be aligned, as it is bound without a copy"):
                executor.bind([odd, X])
            fixed = np.zeros((2, 3), np.float32)
            fixed.flags.writeable = False
            with pytest.raises(FeedError, match="output 0: must be writable"):
                executor.bind([X, X], [fixed])

    def test_outputs_have_buffers_of_their_own(self, host):
        x = X.copy()
        with open_on(host, models.add()) as executor:
            for inputs, output in (([x, X], x), ([X, x], x.reshape(2, 3)), ([x, x], x)):
                with pytest.raises(FeedError, match=r"output 0: shares memory with input [01]; give it a buffer"):
                    executor.bind(inputs, [output])
            with executor.bind([x, x]) as bound:  # inputs may share theirs
                bound.run()
                assert np.array_equal(bound.outputs[0], x + x)

    def test_a_closed_executor_says_so(self, host):
        executor = open_on(host, models.add())
        executor.close()
        for call in (
            lambda: executor.run([X, X]),
            lambda: executor.bind([X, X]),
            lambda: executor.preferred("input", 0),
            lambda: executor.device_memory(inputs=[0]),
        ):
            with pytest.raises(DeviceError, match="the executor is closed"):
                call()

    def test_empty_arrays(self, host):
        with open_on(host, models.unspecified_input()) as executor, pytest.raises(FeedError, match="no empty arrays"):
            executor.run([np.zeros(0, np.float32)])


class TestBound:
    @pytest.mark.parametrize("mode", MODES)
    def test_runs_see_what_was_written_into_the_inputs(self, host, mode):
        with open_on(host, models.add(), mode=mode) as executor:
            x, y, out = (np.zeros((2, 3), np.float32) for _ in range(3))
            with executor.bind([x, y], [out]) as bound:
                for value in range(3):
                    x[:], y[:] = value, 10
                    bound.run()
                    assert (out == value + 10).all()
                assert bound.outputs[0] is out
            with pytest.raises(DeviceError, match="the bound run is closed"):
                bound.run()

    def test_a_bound_run_outlives_the_executor(self, host):
        executor = open_on(host, models.add())
        bound = executor.bind([X, X])
        executor.close()
        with pytest.raises(DeviceError, match="the executor is closed"):
            executor.run([X, X])
        bound.run()
        assert np.array_equal(bound.outputs[0], X + X)
        bound.close()
        assert host.live == {}

    @pytest.mark.parametrize("mode", MODES)
    def test_a_run_keeps_alive_what_it_needs_and_ends_with_its_owner(self, host, mode):
        with open_on(host, models.add(), mode=mode) as executor:
            run = executor.bind([X, X]).run  # whose BoundRun nobody holds
            gc.collect()
            run()
            bound = executor.bind([X, X])
            taken = bound.run
            bound.close()
            before = len(host.log)
            for closed in (taken, bound.run):
                with pytest.raises(DeviceError, match="the bound run is closed"):
                    closed()
            assert len(host.log) == before
            with pytest.raises(DeviceError, match="UNEXPECTED_NULL"):
                bound.execution.output_shape(0)
        run()
        del run
        gc.collect()
        assert host.live == {}

    @pytest.mark.parametrize("level", [4, 8])
    def test_closing_waits_for_the_run_under_way(self, make_host, level):
        host = make_host(level)
        host.delay(compute_seconds=0.2)
        with open_on(host, models.add()) as executor, executor.bind([X, X]) as bound:
            runner = threading.Thread(target=bound.run)
            runner.start()
            while "Execution_compute" not in host.calls:
                time.sleep(0.001)
            bound.close()
            assert np.array_equal(bound.outputs[0], X + X)
            runner.join()
            with pytest.raises(DeviceError, match="the bound run is closed"):
                bound.run()

    def test_threads_share_a_bound_run(self, host):
        with open_on(host, models.add()) as executor, executor.bind([X, X]) as bound:
            threads = [threading.Thread(target=lambda: [bound.run() for _ in range(20)]) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert host.calls.count("Execution_compute") == 80

    @pytest.mark.parametrize("mode", ["sync", "burst"])
    def test_closing_while_an_execution_is_made(self, host, monkeypatch, mode):
        executor = open_on(host, models.add(), mode=mode)
        create = executor.library.create

        def close_and_create(name, *arguments, **where):
            executor.close()  # as another thread may
            return create(name, *arguments, **where)

        monkeypatch.setattr(executor.library, "create", close_and_create)
        assert np.array_equal(executor.run([X, X])[0], X + X)
        with pytest.raises(DeviceError, match="the executor is closed"):
            executor.run([X, X])

    def test_outputs_are_aligned_and_padded_as_the_device_prefers(self, host):
        host.c.host_set_preferences(256, 128)
        with open_on(host, models.add(), padding=True) as executor:
            assert executor.preferred("input", 0) == (256, 128)
            x = executor.empty_input(0)
            assert x.ctypes.data % 256 == 0
            x[:] = X
            with executor.bind([x, X]) as bound:
                bound.run()
                assert np.array_equal(bound.outputs[0], X + X)
            assert np.array_equal(executor.run([X, X])[0], X + X)
        assert [line.split("length=")[1] for line in host.log if "setInput(" in line] == ["128)", "24)", "24)", "24)"]
        assert [line.split("length=")[1] for line in host.log if "setOutput(" in line] == ["128)", "128)"]


class TestDevices:
    def test_choices(self, npu):
        for choice, names in {
            "acme-npu": ["acme-npu"],
            "1": ["acme-npu"],
            0: ["nnapi-reference"],
            "accelerator": ["acme-npu"],
            "cpu": ["nnapi-reference"],
            ("acme-npu", "cpu", 1): ["acme-npu", "nnapi-reference"],
        }.items():
            with open_on(npu, models.add(), choice) as executor:
                assert [device.name for device in executor.devices] == names
                assert np.array_equal(executor.run([X, X])[0], X + X)
        with open_on(npu, models.add(), "auto") as executor:
            assert executor.devices is None

    def test_a_device_that_is_not_there(self, npu):
        with pytest.raises(
            DeviceError,
            match=r"there is no device 'gpu'; choose by name, index or type, cpu, or auto; there are: "
            r"0 nnapi-reference \(cpu\), 1 acme-npu \(accelerator\)",
        ):
            open_on(npu, models.add(), "gpu")

    def test_devices_cannot_be_chosen_before_level_3(self, make_host):
        with pytest.raises(DeviceError, match=r"devices can be chosen from feature level 3 \(Android 10\) on"):
            open_on(make_host(2), models.add(), "cpu")

    def test_an_operation_that_no_chosen_device_supports(self, npu):
        with pytest.raises(
            DeviceError,
            match="device acme-npu: ANeuralNetworksCompilation_finish answered BAD_DATA: the chosen devices do not "
            "support every operation; add the CPU",
        ):
            open_on(npu, models.chain(), "acme-npu")


class TestLevels:
    def test_a_model_that_the_runtime_is_too_old_for_is_refused_before_any_call(self, make_host):
        host = make_host(3)
        host.c.host_clear_log()
        with pytest.raises(
            FeatureLevelError,
            match=r"runtime .*: operation 0 IF needs feature level 4 \(Android 11, API 30\), the target is 3; "
            "convert with --feature-level 3, or run on the host",
        ):
            open_on(host, models.conditional())
        assert [name for name in host.calls if not name.startswith(("_get", "Device_get"))] == []

    def test_a_device_counts_only_without_the_cpu(self, host):
        host.add_device("old-gpu", 3, level=2)
        with pytest.raises(FeatureLevelError, match=r"device old-gpu: operation 0 CONV_2D needs feature level 3"):
            open_on(host, models.per_channel(), "old-gpu")
        open_on(host, models.per_channel(), ["old-gpu", "cpu"]).close()

    def test_an_invalid_model_makes_no_call(self, host):
        broken = models.model(
            models.case([models.operand("INPUT", [2]), models.operand("OUTPUT", [3])], [("RELU", [0], [1])], [0], [1])
        )
        with pytest.raises(InvalidModelError):
            open_on(host, broken)
        assert "Model_create" not in host.calls


class TestOptions:
    def test_compile_options_reach_nnapi(self, host):
        options = {"preference": "sustained-speed", "priority": "high", "compile_timeout": 1.5}
        open_on(host, models.add(), "cpu", **options).close()
        lines = [line.split(", ", 1)[1] for line in host.log if "Compilation_set" in line]
        assert lines == ["2)", "110)", "1500000000)"]

    def test_run_options_reach_nnapi(self, host):
        with open_on(host, models.add(), "cpu", timeout=2, loop_timeout=0.5) as executor:
            executor.run([X, X])
        assert [line.split(", ")[1] for line in host.log if "imeout(" in line] == ["2000000000)", "500000000)"]

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"preference": "fast"}, "there is no preference 'fast'; choose low-power, fast-single-answer, sustained"),
            ({"priority": "urgent"}, "there is no priority 'urgent'; choose low, medium, high"),
            ({"mode": "eager"}, "there is no mode 'eager'; choose sync, async, burst, fenced"),
            ({"timeout": 1}, "timeout needs one device; name it: --device NAME"),
            ({"compile_timeout": 1}, "compile timeout needs one device; name it: --device NAME"),
            ({"measure": True, "devices": ["cpu", "acme-npu"]}, "measure needs one device"),
            ({"timeout": float("nan"), "devices": "cpu"}, "the timeout nan is no positive number of seconds"),
            ({"loop_timeout": 1e30}, r"the loop timeout 1e\+30 is no positive number of seconds"),
            ({"devices": "9" * 5000}, "there is no device '99999"),
            ({"devices": [None]}, "there is no device None; choose by name"),
            ({"devices": 1.5}, "there is no device 1.5; choose by name"),
            ({"compile_timeout": -1, "devices": "cpu"}, "compile timeout -1 is no positive number of seconds"),
        ],
    )
    def test_wrong_options(self, npu, options, text):
        with pytest.raises(DeviceError, match=text):
            open_on(npu, models.add(), **options)

    def test_modes_of_older_runtimes(self, make_host):
        host = make_host(2)
        with pytest.raises(DeviceError, match=r"mode burst needs feature level 3, .* is of level 2; use mode async"):
            open_on(host, models.add(), mode="burst")

    @pytest.mark.parametrize("mode", MODES)
    def test_durations(self, host, mode):
        host.delay(compute_seconds=0.01)
        with open_on(host, models.add(), "cpu", measure=True, mode=mode) as executor:
            executor.run([X, X])
            hardware = executor.durations[DurationCode.DURATION_ON_HARDWARE]
            driver = executor.durations[DurationCode.DURATION_IN_DRIVER]
            assert 5e6 <= hardware < driver
            assert len(executor.durations) == (4 if mode == "fenced" else 2)

    def test_timeouts(self, host):
        host.delay(compile_seconds=0.05, compute_seconds=0.05)
        with pytest.raises(DeviceError, match="Compilation_finish answered MISSED_DEADLINE_TRANSIENT: it was not done "
                           "within the timeout; raise the compile timeout or use --cache"):  # fmt: skip
            open_on(host, models.add(), "cpu", compile_timeout=0.01)
        for mode in MODES:
            with (
                open_on(host, models.add(), "cpu", timeout=0.01, mode=mode) as executor,
                pytest.raises(DeviceError, match=r"answered MISSED_DEADLINE_TRANSIENT: .*; raise the timeout"),
            ):
                executor.run([X, X])


class TestCache:
    def test_a_hit_saves_the_compilation(self, host, tmp_path):
        host.delay(compile_seconds=0.05)
        reports = []
        for _ in range(2):
            with open_on(host, models.add_constant(), cache=tmp_path) as executor:
                reports.append(executor.cache)
        cold, warm = reports
        assert (cold.hit, cold.stored, cold.seconds_saved) == (False, True, 0)
        assert (warm.hit, warm.stored) == (True, True)
        assert warm.seconds < 0.05 <= warm.cold_seconds
        assert warm.seconds_saved == pytest.approx(warm.cold_seconds - warm.seconds)

    @pytest.mark.parametrize("change", ["constant", "option", "driver", "lost file"])
    def test_whatever_changes_is_a_miss(self, host, tmp_path, change):
        open_on(host, models.add_constant(), cache=tmp_path).close()
        options, model = {}, models.add_constant()
        if change == "constant":
            model = models.add_constant(value=np.full(64, 5, np.float32))
        elif change == "option":
            options["preference"] = "low-power"
        elif change == "driver":
            host.reset()
            host.add_device(version="2")
        else:
            for file in tmp_path.iterdir():
                if file.suffix != ".json":
                    file.unlink()
        with open_on(host, model, cache=tmp_path, **options) as executor:
            assert not executor.cache.hit

    def test_drivers_may_keep_nothing(self, host, tmp_path):
        host.c.host_set_caches(0)
        for _ in range(2):
            with open_on(host, models.add(), cache=tmp_path) as executor:
                assert (executor.cache.hit, executor.cache.stored) == (False, False)

    def test_a_directory_that_is_not_there(self, host, tmp_path):
        with pytest.raises(DeviceError, match="none: the cache is no directory that can be written; make it first"):
            open_on(host, models.add(), cache=tmp_path / "none")

    def test_a_note_that_cannot_be_written_is_no_reason_to_fail(self, host, tmp_path):
        open_on(host, models.add_constant(), cache=tmp_path).close()
        (note,) = tmp_path.glob("*.json")
        for file in tmp_path.iterdir():
            file.unlink()
        note.mkdir()
        with open_on(host, models.add_constant(), cache=tmp_path) as executor:
            assert (executor.cache.hit, executor.cache.stored) == (False, False)

    def test_a_note_that_is_not_ours_is_no_hit(self, host, tmp_path):
        open_on(host, models.add(), cache=tmp_path).close()
        for file in tmp_path.glob("*.json"):
            file.write_text("[]")
        with open_on(host, models.add(), cache=tmp_path) as executor:
            assert not executor.cache.hit


class TestFailures:
    @pytest.mark.parametrize("mode", [*MODES, "below 5"])
    def test_each_call_failing_in_turn_leaves_nothing(self, make_host, tmp_path, mode):
        host = make_host(4 if mode == "below 5" else 8)
        options = {"preference": "low-power", "priority": "low", "compile_timeout": 9, "timeout": 9, "measure": True}
        options |= {"loop_timeout": 9, "cache": tmp_path, "mode": "sync" if mode == "below 5" else mode}
        options |= {} if mode == "below 5" else {"padding": True}

        def everything():
            with open_on(host, models.add_constant(), "cpu", **options) as executor:
                x = np.ones(64, np.float32)
                executor.run([x])
                with executor.bind([x]) as bound:
                    bound.run()

        everything()
        host.c.host_clear_log()
        everything()
        count = host.c.host_calls()
        assert count > 25
        codes = [code for code in ResultCode if code is not ResultCode.NO_ERROR]
        for nth in range(1, count + 1):
            code = codes[nth % len(codes)]
            host.fail("*", code, nth)
            caught = None  # an error that somebody keeps must not keep handles
            try:
                everything()
            except DeviceError as error:
                caught = error
            if caught is None:
                # A size that does not suffice is tried again; nothing else is passed over.
                assert code is ResultCode.OUTPUT_INSUFFICIENT_SIZE
            else:
                assert caught.code == code.name
                assert str(caught).count(f"{caught.call} answered {code.name}: ") == 1
            assert (host.live, host.violations) == ({}, []), (nth, caught)
        everything()

    def test_a_failing_submodel_leaves_nothing(self, host):
        for nth in range(1, 80):
            host.fail("*", ResultCode.OUT_OF_MEMORY, nth)
            try:
                with open_on(host, models.conditional()) as executor:
                    executor.run([np.array([True]), np.ones(3, np.float32)])
            except DeviceError:
                pass
            assert (host.live, host.violations) == ({}, [])
        host.fail(nth=0)

    def test_errors_name_operand_and_operation(self, host):
        host.fail("Model_addOperand", ResultCode.BAD_DATA, 2)
        with pytest.raises(DeviceError, match="operand 1 'y': ANeuralNetworksModel_addOperand answered BAD_DATA: "):
            open_on(host, models.add())
        host.fail("Model_addOperation", ResultCode.BAD_DATA)
        with pytest.raises(DeviceError, match="operation 0 ADD: ANeuralNetworksModel_addOperation answered BAD_DATA"):
            open_on(host, models.add())

    def test_an_executor_that_is_forgotten_is_freed(self, host):
        executor = open_on(host, models.add())
        executor.run([X, X])
        del executor
        gc.collect()
        assert host.live == {}

    def test_closing_twice_is_harmless(self, host):
        executor = open_on(host, models.add(), mode="burst")
        executor.close()
        executor.close()
        assert host.live == {}


@pytest.mark.parametrize("mode", MODES)
def test_threads_share_an_executor(host, mode):
    results: dict[int, bool] = {}
    with open_on(host, models.add(), mode=mode) as executor:

        def work(number: int) -> None:
            x = np.full((2, 3), number, np.float32)
            results[number] = all(np.array_equal(executor.run([x, x])[0], 2 * x) for _ in range(10))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == dict.fromkeys(range(4), True)
