"""The manager: what it verifies, what its errors name, what it dumps."""

from __future__ import annotations

import gc

import pytest

from onnx2nnapi.errors import ArtifactError, FeatureLevelError, InternalError, UnsupportedError
from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes import PIPELINE
from onnx2nnapi.passes.check_dialect import check_levels
from onnx2nnapi.passes.layout import layout
from onnx2nnapi.passes.manager import VERIFY_ALL, run_passes


def harmless(graph: Graph, options: Options) -> bool:
    return False


def breaks_structure(graph: Graph, options: Options) -> bool:
    graph.values[graph.outputs[0]].name = "other"
    return True


def breaks_dialect(graph: Graph, options: Options) -> bool:
    next(op for op in graph.ops if op.kind == "SOFTMAX").attrs["axis"] = 7
    return True


def fails(graph: Graph, options: Options) -> bool:
    raise KeyError("lost")


@pytest.fixture
def graph(nnapi_graph):
    g = nnapi_graph()
    y = g.emit("SOFTMAX", g.conv(g.input("x", 1, 3, 4, 4), 2), axis=1)
    g.output(y)
    return g.done()


def test_an_error_names_the_pass_and_those_before_it(graph) -> None:
    with pytest.raises(
        InternalError, match=r"after pass breaks_structure \(before it: harmless\): the graph is broken"
    ):
        run_passes(graph, Options(), pipeline=(harmless, breaks_structure))


def test_a_failure_of_ours_is_an_internal_error_with_its_cause(graph) -> None:
    with pytest.raises(InternalError, match="pass fails failed: KeyError: 'lost'") as raised:
        run_passes(graph, Options(), pipeline=(fails,))
    assert isinstance(raised.value.__cause__, KeyError)


@pytest.mark.parametrize("when", ["all", "borders"])
def test_the_dialect_is_verified(graph, when: str, monkeypatch) -> None:
    monkeypatch.setenv(VERIFY_ALL, when)
    culprit = "breaks_dialect" if when == "all" else "harmless"
    with pytest.raises(InternalError, match=rf"after pass {culprit}.*SOFTMAX is not accepted"):
        run_passes(graph, Options(), pipeline=(breaks_dialect, harmless))


def test_the_collector_is_off_while_passes_run(graph) -> None:
    seen = []
    run_passes(graph, Options(), pipeline=(lambda graph, options: seen.append(gc.isenabled()) or False,))
    assert (seen, gc.isenabled()) == ([False], True)


def test_dump_and_progress_tell_each_pass(graph, tmp_path) -> None:
    told: list[str] = []
    run_passes(graph, Options(), pipeline=(harmless, layout), progress=told.append, dump=tmp_path / "ir")
    assert told == ["harmless", "layout"]
    assert sorted(path.name for path in (tmp_path / "ir").iterdir()) == ["00_import.txt", "02_layout.txt"]
    assert (tmp_path / "ir" / "02_layout.txt").read_text().startswith('graph "test" (nnapi)\n')


def test_a_dump_that_cannot_be_written_is_one_clear_error(graph, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ArtifactError, match="cannot be written"):
        run_passes(graph, Options(), pipeline=(), dump=tmp_path / "file")


def test_levels_are_charged_to_the_node_that_asked(nnapi_graph) -> None:
    g = nnapi_graph(1)
    g.output(g.conv(g.input("x", 1, 3, 4, 4), 2))
    with pytest.raises(UnsupportedError, match="2 nodes cannot be converted") as raised:
        check_levels(g.done(), g.options)
    assert all(isinstance(problem, FeatureLevelError) for problem in raised.value.problems)
    assert "Transpose 'n0'" in str(raised.value.problems[0])
    assert "its TRANSPOSE needs feature level 2" in str(raised.value.problems[0])


def test_equal_refusals_are_told_once() -> None:
    refusals = [FeatureLevelError("its TRANSPOSE", required=2, target=1, where=place) for place in ("a", "b", "a")]
    error = UnsupportedError.collected(refusals)
    assert [problem.where for problem in error.problems] == ["a", "b"]
    assert str(error).startswith("2 tensors and nodes cannot be converted:\n")
    assert str(UnsupportedError.collected([refusals[0], refusals[2]])) == str(refusals[0])


def test_the_pipeline_reads_as_it_should() -> None:
    names = [function.__name__ for function in PIPELINE]
    assert names.index("layout") < names.index("check_levels") < names.index("fuse_activations")
    assert names[-2:] == ["eliminate_dead", "settle_submodels"]
