from typing import Any

TESTS = [f"tests: [{version}]" for version in ("3.11, minimal", "3.12, minimal", "3.13, minimal", "3.12, full")]


def test_a_matrix_is_tested_with_reports_and_packed(clone: Any) -> None:
    work = clone("python-library")
    ended = work.pushed()
    assert ended.status == "success", ended.states
    assert ended.states == {
        "lint": "success",
        "types": "success",
        **dict.fromkeys(TESTS, "success"),
        "newest python": "failed",
        "build": "success",
        "try the package": "success",
    }
    assert ended.jobs["newest python"].allow_failure
    assert "Python 3.12 with full, part 4 of 4" in ended.said(TESTS[3])
    assert [ended.jobs[name].coverage for name in TESTS] == [87.5] * 4
    assert "reports/junit.xml" in ended.files(TESTS[0])
    assert {"archive", "junit", "cobertura", "trace"} <= ended.kinds(TESTS[0])
    report = ended.report(TESTS[3], "junit")
    assert 'tests="4" failures="0" errors="0" skipped="1"' in report
    assert report == ended.files(TESTS[3])["reports/junit.xml"]
    assert ended.said("try the package")[-1] == "a b"
    assert float(ended.pipeline.coverage) == 87.5


def test_a_tag_waits_for_somebody_to_publish(clone: Any, cell: Any) -> None:
    work = clone("python-library")
    work.push(quietly=True)
    work.git("tag", "v1.4.0")
    ended = work.pushed("v1.4.0")
    assert ended.status == "manual", ended.states
    assert ended.states["publish"] == "manual"
    ended.jobs["publish"].play()
    ended = cell.outcome(work.project, ended.pipeline.id, rest=frozenset({"success", "failed"}))
    assert ended.status == "success", ended.states
    assert "textfold-1.4.0.whl" in ended.files("publish")
