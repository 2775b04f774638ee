from typing import Any


def test_a_service_is_built_from_templates_and_deployed_by_another_project(clone: Any, cell: Any) -> None:
    group = "shared-templates-of-acme"
    templates = clone("shared-templates/ci-templates", f"{group}/ci-templates").pushed()
    assert templates.states == {"files are there": "success"}
    deployer = clone("shared-templates/deployer", f"{group}/deployer")
    deployer.push()
    assert deployer.pipelines() == []
    owner = cell.api.groups.get(group)
    service = cell.api.projects.create({"name": "service", "path": "service", "namespace_id": owner.id})
    service.job_token_scope.get().groups_allowlist.create({"target_group_id": owner.id})

    ended = clone("shared-templates/service", f"{group}/service").pushed()
    assert ended.status == "success", ended.states
    assert ended.states == dict.fromkeys(
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
    assert list(ended.files("build")) == ["dist/service.tar.gz"]
    assert ended.said("check scripts: [bash]") == ['Bob\'s "own" scripts']
    assert ended.said("count scripts 2/3") == ["part 2 of 3, counted by the service"]
    assert ended.jobs["count scripts 2/3"].allow_failure

    deployed = cell.downstream(ended, "deploy")
    assert (deployed.pipeline.source, deployed.pipeline.name) == ("pipeline", f"Deploy {group}/service")
    assert deployed.states == {"fetch": "success", "deploy": "success"}
    assert deployed.said("deploy") == [f"deployed what pipeline {ended.pipeline.id} built"]
    assert [pipeline.id for pipeline in deployer.pipelines()] == [deployed.pipeline.id]


def test_a_template_that_is_missing_is_a_mistake_of_the_file(clone: Any, cell: Any) -> None:
    work = clone("shared-templates/service", "no-templates/service")
    ended = work.pushed()
    assert ended.status == "failed"
    assert ".gitlab-ci.yml:5:7: include:file: there is no project" in ended.pipeline.yaml_errors
    assert "no-templates/ci-templates" in ended.pipeline.yaml_errors
