from __future__ import annotations

import ctypes
import json
import re

import pytest

from onnx2nnapi.errors import DeviceError
from onnx2nnapi.nnapi.codes import ResultCode
from onnx2nnapi.runtime import support_library
from onnx2nnapi.runtime.bindings import FUNCTIONS, OperandType, SymmPerChannelQuantParams
from onnx2nnapi.runtime.library import Library, feature_level, is_available, open_library

SCALARS = {
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint16_t": ctypes.c_uint16,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
    "void": None,
    "ANeuralNetworksOperationType": ctypes.c_int32,
}
STRUCTS = {
    "ANeuralNetworksOperandType": OperandType,
    "ANeuralNetworksSymmPerChannelQuantParams": SymmPerChannelQuantParams,
}


def expected(declaration: str) -> object:
    """The ctypes type of one parameter of the header."""
    words = declaration.replace("*", " * ").replace("const", " ").split()
    stars = words.count("*")
    base = next(word for word in words if word != "*")
    if stars == 0:
        return SCALARS[base]
    if base == "char":
        return ctypes.c_char_p if stars == 1 else ctypes.POINTER(ctypes.c_char_p)
    if base in STRUCTS:
        return ctypes.POINTER(STRUCTS[base])
    if base == "void" or base not in SCALARS:  # an untyped buffer or a handle
        return ctypes.c_void_p if base == "uint8_t" or stars == 1 else ctypes.POINTER(ctypes.c_void_p)
    return ctypes.POINTER(SCALARS[base])


@pytest.fixture(scope="module")
def facts(shared):
    return json.loads((shared / "nnapi" / "facts.json").read_text())


def test_every_function_of_the_references_is_bound_with_its_signature(facts):
    assert set(FUNCTIONS) == set(facts["functions"])
    for name, fact in facts["functions"].items():
        text = fact["signature"].split("__INTRODUCED_IN")[0].strip()
        result, parameters = re.fullmatch(rf"(.*?)\s*{name}\((.*)\)", text, re.S).groups()
        function = FUNCTIONS[name]
        wanted = [expected(re.sub(r"\w+$", "", part.strip())) for part in parameters.split(",") if part.strip()]
        # A cache token is 32 bytes, which ctypes takes as char pointer.
        token = ctypes.c_char_p if name.endswith("setCaching") else None
        assert [token if token and want is ctypes.c_void_p else want for want in wanted[1:]] == list(
            function.argtypes[1:]
        ), name
        assert wanted[:1] == list(function.argtypes[:1]), name
        assert SCALARS[result] is function.restype, name


def test_levels_are_those_of_the_references(facts):
    for name, fact in facts["functions"].items():
        if fact["since_level"] is not None:
            assert FUNCTIONS[name].level == fact["since_level"], name
            assert not FUNCTIONS[name].vendor
        else:
            assert FUNCTIONS[name].vendor


def test_structs_have_the_fields_of_the_references(facts):
    for name, struct in STRUCTS.items():
        fields = [field.split()[-1] for field in facts["structs"][name]["fields"]]
        assert [field[0] for field in struct._fields_] == fields


def test_every_result_code_has_a_meaning():
    from onnx2nnapi.runtime.diagnosis import explain_result

    for code in ResultCode:
        if code is not ResultCode.NO_ERROR:
            error = explain_result("ANeuralNetworksModel_finish", code)
            assert f"ANeuralNetworksModel_finish answered {code.name}: " in str(error)
    assert "unknown result 77" in str(explain_result("ANeuralNetworksModel_finish", 77))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_null_arguments_are_answered_by_every_function(host, name):
    """Drives each function of the references through ctypes."""
    library, function = open_library(str(host.path)), FUNCTIONS[name]
    arguments = [0 if issubclass(kind, ctypes._SimpleCData) and kind is not ctypes.c_char_p else None
                 for kind in function.argtypes]  # fmt: skip
    result = getattr(library, name)(*arguments)
    if function.restype is None:
        assert result is None  # freeing NULL is no operation
    elif function.restype is ctypes.c_int:
        assert result == ResultCode.UNEXPECTED_NULL
    else:
        assert result > 0
    assert host.calls[-1] == name.removeprefix("ANeuralNetworks")


def test_what_an_older_runtime_lacks_is_an_error_only_when_it_is_called(any_level):
    library = Library(str(any_level.path))
    level = int(any_level.path.name.split("-")[-2])
    assert library.level == level
    for name, function in FUNCTIONS.items():
        call = getattr(library, name)  # reading is no error
        if function.level <= level:
            assert library.has(name)
            continue
        with pytest.raises(DeviceError) as caught:
            call()
        text = str(caught.value)
        assert name in text
        assert f"feature level {function.level}" in text or "vendors' extensions" in text


def test_a_missing_function_names_level_and_android_version(make_host):
    library = Library(str(make_host(2).path))
    with pytest.raises(DeviceError, match=r"^ANeuralNetworksExecution_compute: needs feature level 3 \(Android 10, API "
                       r"29\), .* is of level 2 \(Android 9, API 28\)$"):  # fmt: skip
        library.ANeuralNetworksExecution_compute(None)


def test_a_name_that_nnapi_lacks_is_no_attribute(host):
    with pytest.raises(AttributeError, match="NNAPI has no function 'ANeuralNetworksModel_crate'"):
        _ = open_library(str(host.path)).ANeuralNetworksModel_crate


def test_a_library_that_is_not_there(tmp_path):
    with pytest.raises(DeviceError, match=r"none\.so: cannot be loaded: .*; NNAPI is part of Android, from 8\.1 on"):
        open_library(tmp_path / "none.so")
    assert not is_available(tmp_path / "none.so")


def test_a_library_that_is_no_nnapi():
    with pytest.raises(DeviceError, match="is no NNAPI library"):
        open_library("libc.so.6")


def test_libraries_are_loaded_once(host):
    library = open_library(str(host.path))
    assert open_library(str(host.path)) is library
    assert open_library(library) is library


@pytest.mark.parametrize(("code", "level"), [(27, 1), (31, 5), (1000006, 6), (1000008, 8), (2**31 - 1, 8), (12, 1)])
def test_feature_level_codes(code, level):
    assert feature_level(code) == level


class TestSupportLibraryDriver:
    def test_the_struct_is_read_at_its_level(self, make_host):
        for level, count in ((5, 104), (7, 104), (8, 106)):
            library = Library(str(make_host(level, driver=True).path))
            assert library.is_driver
            assert library.level == level
            assert sum(library.has(name) for name in support_library.DRIVER_FUNCTIONS) == count

    def test_what_drivers_never_have_is_an_error_when_called(self, make_host):
        library = open_library(str(make_host(driver=True).path))
        with pytest.raises(DeviceError, match=r"startCompute: support library driver .* does not have it"):
            library.ANeuralNetworksExecution_startCompute(None, None)

    def test_performance_and_extensions(self, make_host):
        host = make_host(driver=True)
        host.add_device("acme-npu", 4, extension="acme.extension")
        library = open_library(str(host.path))
        device = library.create("ANeuralNetworks_getDevice", 1)
        info = support_library.PerformanceInfo()
        for code in support_library.PerformanceInfoCode:
            library.call("SL_ANeuralNetworksDevice_getPerformanceInfo", device, code, ctypes.byref(info))
            assert (info.execTime, info.powerUsage) == (0.5, 0.25)
        seen = []
        each = support_library.OperandPerformanceCallback(lambda entry, _: seen.append(entry.operandType))
        library.call("SL_ANeuralNetworksDevice_forEachOperandPerformanceInfo", device, device, each)
        assert seen == list(range(15))
        count, name = ctypes.c_uint32(), ctypes.c_char_p()
        library.call("SL_ANeuralNetworksDevice_getVendorExtensionCount", device, ctypes.byref(count))
        library.call("SL_ANeuralNetworksDevice_getVendorExtensionName", device, 0, ctypes.byref(name))
        assert (count.value, name.value) == (1, b"acme.extension")
        types = []
        each_type = support_library.OperandTypeCallback(lambda e, _: types.append((e.byteSize, e.type, e.isTensor)))
        library.call(
            "SL_ANeuralNetworksDevice_forEachVendorExtensionOperandTypeInformation", device, 0, device, each_type
        )
        assert types == [(2, 7, True)]
        files = ctypes.c_uint32(), ctypes.c_uint32()
        library.call("SL_ANeuralNetworksDevice_getNumberOfCacheFilesNeeded", device, *map(ctypes.byref, files))
        assert [entry.value for entry in files] == [1, 0]


class TestExtensions:
    def test_types_attributes_and_data(self, host):
        host.add_device("acme-npu", 4, extension="acme.extension")
        library = open_library(str(host.path))
        device = library.create("ANeuralNetworks_getDevice", 1)
        supported = ctypes.c_bool()
        library.call("ANeuralNetworksDevice_getExtensionSupport", device, b"acme.extension", ctypes.byref(supported))
        assert supported.value
        model = library.create("ANeuralNetworksModel_create")
        try:
            kind, operation = ctypes.c_int32(), ctypes.c_int32()
            for name, target in (("Operand", kind), ("Operation", operation)):
                call = f"ANeuralNetworksModel_getExtension{name}Type"
                library.call(call, model, b"acme.extension", 7, ctypes.byref(target))
            assert kind.value == operation.value == 2 << 16 | 7
            with pytest.raises(DeviceError, match="BAD_DATA"):
                library.call("ANeuralNetworksModel_getExtensionOperandType", model, b"none", 7, ctypes.byref(kind))
            library.call("ANeuralNetworksModel_addOperand", model, OperandType(type=kind.value))
            library.call("ANeuralNetworksModel_setOperandExtensionData", model, 0, b"data", 4)
        finally:
            library.ANeuralNetworksModel_free(model)
