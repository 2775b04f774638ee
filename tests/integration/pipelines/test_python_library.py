"""The example pipeline `python-library` in a real cell: a matrix, reports, coverage and a manual job for tags."""

from typing import Any

TESTS = [f"tests: [{version}]" for version in ("3.11, minimal", "3.12, minimal", "3.13, minimal", "3.12, full")]


def test_a_matrix_is_tested_with_reports_and_packaged(clone: Any) -> None:
    work = clone("python-library")
    outcome = work.push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.statuses == {
        "lint": "success",
        "types": "success",
        **dict.fromkeys(TESTS, "success"),
        "newest python": "failed",
        "build": "success",
        "try the package": "success",
    }
    assert outcome.jobs["newest python"].allow_failure
    assert "Python 3.12 with full, part 4 of 4" in outcome.output(TESTS[3])
    assert [outcome.jobs[name].coverage for name in TESTS] == [87.5] * 4
    assert "reports/junit.xml" in outcome.files(TESTS[0])
    assert {"archive", "junit", "cobertura", "trace"} <= outcome.artifact_types(TESTS[0])
    report = outcome.report(TESTS[3], "junit")
    assert 'tests="4" failures="0" errors="0" skipped="1"' in report
    assert report == outcome.files(TESTS[3])["reports/junit.xml"]
    assert outcome.output("try the package")[-1] == "a b"
    assert float(outcome.pipeline.coverage) == 87.5


def test_a_tag_waits_for_manual_publishing(clone: Any, cell: Any) -> None:
    work = clone("python-library")
    work.push(quietly=True)
    work.git("tag", "v1.4.0")
    outcome = work.push_and_wait("v1.4.0")
    assert outcome.status == "manual", outcome.statuses
    assert outcome.statuses["publish"] == "manual"
    outcome.jobs["publish"].play()
    outcome = cell.wait_for_pipeline(work.project, outcome.pipeline.id, rest=frozenset({"success", "failed"}))
    assert outcome.status == "success", outcome.statuses
    assert "textfold-1.4.0.whl" in outcome.files("publish")
