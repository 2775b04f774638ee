from pathlib import Path

import pytest

from remuda.pipeline import Facts, MemorySources, SourceProblem, compile_pipeline
from remuda.pipeline.spec import JobSpec
from remuda.pipeline.templates import GITLAB_TEMPLATES, SUFFIX, bundled_keys, find_template, key_of, list_keys

HINT = "copy the file"
NONE = SourceProblem(reason="404", is_missing=True)
SCANNERS = {
    "Container-Scanning": "container_scanning",
    "SAST": "semgrep-sast",
    "Secret-Detection": "secret_detection",
}


class TemplateSources(MemorySources):
    def template(self, name: str) -> str | SourceProblem:
        return find_template(name, "", lambda _: NONE, hint=HINT)


def no_server(_: str) -> str | SourceProblem:
    raise AssertionError("nothing may be fetched")


def reason(answer: str | SourceProblem) -> str:
    assert isinstance(answer, SourceProblem)
    return f"{answer.reason}; {answer.suggestion}"


@pytest.mark.parametrize("key", bundled_keys())
def test_every_template_compiles(key: str) -> None:
    text = f"include: {{template: {key}{SUFFIX}}}\nown-job: {{script: x}}\n"
    pipeline = compile_pipeline(text, facts=Facts(), sources=TemplateSources())
    assert "own-job" in [job.name for job in pipeline.jobs]


def test_the_best_known_names_are_there() -> None:
    names = "Bash C++ Docker Getting-Started Go Gradle Jobs/Build Maven Nodejs Pages/HTML Python Rust"
    workflows = "Workflows/Branch-Pipelines Workflows/MergeRequest-Pipelines"
    scanners = [f"{folder}/{name}" for folder in ("Jobs", "Security") for name in SCANNERS]
    assert list(bundled_keys()) == sorted([*names.split(), *workflows.split(), *scanners])


@pytest.mark.parametrize("folder", ["Jobs", "Security"])
@pytest.mark.parametrize(("name", "job"), list(SCANNERS.items()))
def test_scanners(folder: str, name: str, job: str) -> None:
    """A file may include a scanner under both names, change its job, and leave it out with a variable."""
    text = f"include: {{template: {folder}/{name}{SUFFIX}}}\n{job}: {{variables: {{OWN: x}}}}\na: {{script: x}}\n"

    def compile_with(**variables: str) -> dict[str, JobSpec]:
        pipeline = compile_pipeline(text, facts=Facts(variables=variables), sources=TemplateSources())
        assert pipeline.warnings == ()
        return {job.name: job for job in pipeline.jobs}

    scanner = compile_with()[job]
    assert (scanner.stage, scanner.allow_failure, scanner.variables["OWN"]) == ("test", True, "x")
    assert scanner.artifacts is not None
    assert (scanner.artifacts.when, bool(scanner.artifacts.reports)) == ("always", True)
    for value in ("true", "1"):
        assert set(compile_with(**{f"{name.replace('-', '_').upper()}_DISABLED": value})) == {"a"}


def test_gitlabs_own_server_serves_names_with_a_folder() -> None:
    asked: list[str] = []

    def fetch(address: str) -> str | SourceProblem:
        asked.append(address)
        return "found" if "/-/raw/" in address else NONE

    assert find_template("Jobs/Test.gitlab-ci.yml", "https://gitlab.com/", fetch, hint=HINT) == "found"
    assert asked == [
        "https://gitlab.com/api/v4/templates/gitlab_ci_ymls/Jobs%2FTest",
        f"{GITLAB_TEMPLATES}/Jobs/Test.gitlab-ci.yml",
    ]


@pytest.mark.parametrize(
    "name", ["Jobs/Dependency-Scanning", "Security/DAST", "Jobs/Code-Quality", "Auto-DevOps", "Terraform"]
)
def test_a_template_that_needs_gitlabs_images_says_so(name: str) -> None:
    answer = reason(find_template(f"{name}.gitlab-ci.yml", "", no_server, hint=HINT))
    assert answer.startswith(f'there is no template "{name}.gitlab-ci.yml": its jobs run images of GitLab')
    assert answer.endswith(HINT)


@pytest.mark.parametrize(
    ("facts", "branches", "requests"),
    [
        (Facts(), True, True),
        (Facts(ref="topic"), True, False),
        (Facts(ref="v1", is_tag=True), True, True),
        (Facts(source="merge_request_event", predefined={"CI_MERGE_REQUEST_IID": "1"}), False, True),
    ],
)
def test_workflows(facts: Facts, branches: bool, requests: bool) -> None:
    for name, runs in (("Branch-Pipelines", branches), ("MergeRequest-Pipelines", requests)):
        text = f"include: {{template: Workflows/{name}{SUFFIX}}}\na: {{script: x}}\n"
        assert (compile_pipeline(text, facts=facts, sources=TemplateSources()).skipped is None) is runs


def test_an_unknown_template_lists_similar_names() -> None:
    answer = reason(find_template("Pyton.gitlab-ci.yml", "", no_server, hint=HINT))
    assert answer.startswith('there is no template "Pyton.gitlab-ci.yml"; similar names: Python.gitlab-ci.yml')
    assert answer.endswith("or copy the file")
    assert "Jobs/Build.gitlab-ci.yml" in reason(find_template("Build.gitlab-ci.yml", "", no_server, hint=HINT))
    assert reason(find_template("zzzzzz.gitlab-ci.yml", "", no_server, hint=HINT)).endswith('yml"; copy the file')


@pytest.mark.parametrize("name", ["../x.gitlab-ci.yml", "a/../../x", "a//b", "", "a b", "a/./b", "x\0", "%2e%2e/x"])
def test_names_that_lead_elsewhere(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.gitlab-ci.yml").write_text("a: {script: x}")
    (tmp_path / "in").mkdir()
    assert key_of(name) is None
    assert "is not the name of a template" in reason(find_template(name, str(tmp_path / "in"), no_server, hint=HINT))


def test_templates_of_a_folder_win(tmp_path: Path) -> None:
    (tmp_path / "Jobs").mkdir()
    (tmp_path / "Jobs/Mine.gitlab-ci.yml").write_text("mine")
    (tmp_path / "Bash.gitlab-ci.yml").write_text("bash")
    (tmp_path / "out.gitlab-ci.yml").symlink_to("/etc/hostname")
    (tmp_path / "big.gitlab-ci.yml").write_text("#" * 1_100_000)
    folder = str(tmp_path)
    assert find_template("Jobs/Mine.gitlab-ci.yml", folder, no_server, hint=HINT) == "mine"
    assert find_template("Bash.gitlab-ci.yml", folder, no_server, hint=HINT) == "bash"
    assert "image: golang" in str(find_template("Go.gitlab-ci.yml", folder, no_server, hint=HINT))
    assert "there is no template" in reason(find_template("out.gitlab-ci.yml", folder, no_server, hint=HINT))
    assert "larger than" in reason(find_template("big.gitlab-ci.yml", folder, no_server, hint=HINT))
    (tmp_path / "folder.gitlab-ci.yml").mkdir()
    assert {"Jobs/Mine", "Bash", "Go"} <= set(list_keys(folder))
    assert not {"out", "folder"} & set(list_keys(folder)), "what cannot be included is not suggested"


def test_templates_of_a_server() -> None:
    api = "https://git.example/gitlab/api/v4/templates/gitlab_ci_ymls/"
    answers: dict[str, str | SourceProblem] = {
        f"{api}Bash": '{"name": "Bash", "content": "from the API"}',
        "https://git.example/gitlab/Jobs/Test.gitlab-ci.yml": "from a folder",
        f"{api}Down": SourceProblem(reason="git.example did not answer"),
        f"{api}Page": "<html>",
        "https://git.example/gitlab/Page.gitlab-ci.yml": "behind a page",
        "https://git.example/gitlab/Login.gitlab-ci.yml": "\n<!DOCTYPE html><html>",
    }
    asked: list[str] = []

    def fetch(url: str) -> str | SourceProblem:
        asked.append(url)
        return answers.get(url, NONE)

    def find(name: str) -> str | SourceProblem:
        return find_template(f"{name}.gitlab-ci.yml", "https://git.example/gitlab/", fetch, hint=HINT)

    assert find("Bash") == "from the API"
    assert find("Jobs/Test") == "from a folder"
    assert asked[1:] == [f"{api}Jobs%2FTest", "https://git.example/gitlab/Jobs/Test.gitlab-ci.yml"]
    assert find("Page") == "behind a page"
    assert "did not answer" in reason(find("Down"))
    assert "image: golang" in str(find("Go")), "Remuda's own if the server has none"
    assert "there is no template" in reason(find("None-such"))
    assert "there is no template" in reason(find("Login")), "a page is no template"
