"""The example pipeline `shared-templates` in a real cell: included templates and a multi-project pipeline."""

from typing import Any


def test_a_service_is_built_from_templates_and_deployed_by_another_project(clone: Any, cell: Any) -> None:
    group = "shared-templates-of-acme"
    templates = clone("shared-templates/ci-templates", f"{group}/ci-templates").push_and_wait()
    assert templates.statuses == {"files are there": "success"}
    deployer = clone("shared-templates/deployer", f"{group}/deployer")
    deployer.push()
    assert deployer.pipelines() == []
    owner = cell.api.groups.get(group)
    service = cell.api.projects.create({"name": "service", "path": "service", "namespace_id": owner.id})
    service.job_token_scope.get().groups_allowlist.create({"target_group_id": owner.id})

    outcome = clone("shared-templates/service", f"{group}/service").push_and_wait()
    assert outcome.status == "success", outcome.statuses
    assert outcome.statuses == dict.fromkeys(
        [
            "build",
            "check scripts: [sh]",
            "check scripts: [bash]",
            *(f"count scripts {part}/3" for part in (1, 2, 3)),
            "archive",
            "deploy",
            "announce",
        ],
        "success",
    )
    assert list(outcome.files("build")) == ["dist/service.tar.gz"]
    assert outcome.output("check scripts: [bash]") == ['Bob\'s "own" scripts']
    assert outcome.output("count scripts 2/3") == ["part 2 of 3, counted by the service"]
    assert outcome.jobs["count scripts 2/3"].allow_failure

    deployed = cell.wait_for_downstream(outcome, "deploy")
    assert (deployed.pipeline.source, deployed.pipeline.name) == ("pipeline", f"Deploy {group}/service")
    assert deployed.statuses == {"fetch": "success", "deploy": "success"}
    assert deployed.output("deploy") == [f"deployed what pipeline {outcome.pipeline.id} built"]
    assert [pipeline.id for pipeline in deployer.pipelines()] == [deployed.pipeline.id]


def test_a_missing_template_is_an_error_of_the_pipeline_file(clone: Any, cell: Any) -> None:
    work = clone("shared-templates/service", "no-templates/service")
    outcome = work.push_and_wait()
    assert outcome.status == "failed"
    assert ".gitlab-ci.yml:5:7: include:file: there is no project" in outcome.pipeline.yaml_errors
    assert "no-templates/ci-templates" in outcome.pipeline.yaml_errors
