"""Every case of ONNX's backend suites is converted and equal, or refused as tests/backend/refused.json says."""

from __future__ import annotations

import json

import pytest

from tests.backend.suite import KINDS, LEVELS, REFUSED, cases, run

EXPECTED = json.loads(REFUSED.read_text())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the cases' own overflows
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_case_is_equal_or_among_the_refused(kind: str, level: int) -> None:
    expected = EXPECTED[str(level)][kind]
    different = []
    for name, case in cases(kind).items():
        outcome = run(case, level)
        due = "refused" if name in expected else "equal"
        if outcome.kind != due:
            different.append(f"{name}: {outcome.kind} {outcome.reason!r}, not {due} {expected.get(name, '')!r}")
    assert not different, "\n".join(different[:50])


def test_as_many_cases_convert_as_promised() -> None:
    total = len(cases("node"))
    assert total - len(EXPECTED["8"]["node"]) >= 1300
    assert total - len(EXPECTED["4"]["node"]) >= 1200
