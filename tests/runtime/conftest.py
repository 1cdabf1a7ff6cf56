"""The NNAPI that the tests of the device runtime run on: the host library at a level, or the one of NNAPI_LIBRARY."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from onnx2nnapi.runtime.library import Library, is_available, open_library
from tests.nnapi_host.host import HostLibrary, build, compiler, interpret

_hosts: dict[tuple[int, bool], HostLibrary] = {}


def host_library(level: int = 8, *, driver: bool = False) -> HostLibrary:
    """The host library of a level with one CPU device; what it pretended before is forgotten."""
    if compiler() is None:
        pytest.skip("there is no C compiler to build tests/nnapi_host with")
    if (level, driver) not in _hosts:
        sanitize = bool(os.environ.get("NNAPI_HOST_SANITIZE"))
        _hosts[level, driver] = HostLibrary(build(level, driver=driver, sanitize=sanitize))
    host = _hosts[level, driver]
    host.reset()
    host.compute = interpret
    host.add_device(level=level)
    return host


@pytest.fixture
def make_host() -> Iterator[Callable[..., HostLibrary]]:
    """Host libraries of any level; none may end with a live handle or a broken rule."""
    used: list[HostLibrary] = []

    def make(level: int = 8, *, driver: bool = False) -> HostLibrary:
        used.append(host_library(level, driver=driver))
        return used[-1]

    yield make
    for host in used:
        assert (host.live, host.violations) == ({}, [])


@pytest.fixture
def host(make_host: Callable[..., HostLibrary]) -> HostLibrary:
    """The host library of level 8."""
    return make_host()


@pytest.fixture(params=range(1, 9), ids=lambda level: f"level{level}")
def any_level(request: pytest.FixtureRequest, make_host: Callable[..., HostLibrary]) -> HostLibrary:
    """The host library at each level in turn."""
    return make_host(request.param)


@pytest.fixture
def nnapi() -> Iterator[Library]:
    """The phone's NNAPI, that of NNAPI_LIBRARY, or else the host library: what tests marked ``device`` run on."""
    path = os.environ.get("NNAPI_LIBRARY")
    if path or is_available():
        yield open_library(path)
        return
    host = host_library()
    yield open_library(str(host.path))
    assert (host.live, host.violations) == ({}, [])
