import pytest

from remuda.pipeline import Facts, PipelineError, SourceProblem, compile_pipeline

TEXT = "a: {script: x, rules: [{changes: {paths: [a], compare_to: $REF}}]}\nb: {script: x}"


def test_variables_that_follow_from_facts() -> None:
    branch = Facts(ref="Feature/X", sha="0123456789").pipeline_variables()
    assert branch["CI_COMMIT_BRANCH"] == "Feature/X"
    assert branch["CI_COMMIT_REF_SLUG"] == "feature-x"
    assert branch["CI_COMMIT_SHORT_SHA"] == "01234567"
    assert "CI_COMMIT_TAG" not in branch
    tag = Facts(ref="v1", is_tag=True, predefined={"CI": "false"}).pipeline_variables()
    assert (tag["CI_COMMIT_TAG"], tag["CI"]) == ("v1", "false")
    assert "CI_COMMIT_BRANCH" not in tag
    assert "CI_COMMIT_BRANCH" not in Facts(source="merge_request_event").pipeline_variables()


def test_changed_files_may_be_a_function() -> None:
    compared_refs: list[str | None] = []

    def find_changes(compare_to: str | None) -> frozenset[str]:
        compared_refs.append(compare_to)
        return frozenset({"a"} if compare_to == "main" else ())

    facts = Facts(changed_files=find_changes, variables={"REF": "main"})
    assert [job.name for job in compile_pipeline(TEXT, facts=facts).jobs] == ["a", "b"]
    assert [job.name for job in compile_pipeline(TEXT, facts=Facts(changed_files=find_changes)).jobs] == ["b"]
    assert compared_refs == ["main", "$REF"]


def test_a_ref_that_cannot_be_compared_with_is_a_mistake() -> None:
    facts = Facts(changed_files=lambda _ref: SourceProblem(reason="no such ref", suggestion="push it"))
    with pytest.raises(PipelineError, match="1:59: a:rules:changes:compare_to: no such ref; push it"):
        compile_pipeline(TEXT, facts=facts)
