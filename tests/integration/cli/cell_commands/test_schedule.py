"""`remuda schedule` against a cell in its own process."""

import json
from typing import Any

FILE = 'build: {script: make, rules: [{if: $CI_PIPELINE_SOURCE == "schedule"}]}'


def test_create_update_run_delete(remuda: Any, shop: Any) -> None:
    project = shop(FILE)
    place = ("-p", project)
    created = remuda("schedule", "create", "0 4 * * *", "-d", "nightly", "--variable", "FULL=yes", *place)
    number = int(created.out.split()[1])
    assert created.out.startswith(f"schedule {number} is created; it runs next at ")
    [listed] = json.loads(remuda("schedule", "list", *place, "-o", "json").out)
    assert (listed["description"], listed["cron"], listed["active"]) == ("nightly", "0 4 * * *", True)
    update = remuda("schedule", "update", number, "--no-active", "--variable", "FULL=no", "--variable", "NEW=1", *place)
    assert update.out == f"schedule {number} is changed; it is inactive\n"
    shown = json.loads(remuda("schedule", "show", number, *place, "-o", "json").out)
    assert {each["key"]: each["value"] for each in shown["variables"]} == {"FULL": "no", "NEW": "1"}
    assert "variables  FULL, NEW" in remuda("schedule", "show", number, *place).out
    ran = remuda("schedule", "run", number, *place)
    assert ran.out.startswith(f"schedule {number} started pipeline ")
    pipelines = json.loads(remuda("pipeline", "list", "--source", "schedule", *place, "-o", "json").out)
    assert f"started pipeline {pipelines[0]['id']};" in ran.out
    assert remuda("schedule", "delete", number, *place).code == 2
    assert remuda("schedule", "delete", number, "-y", *place).code == 0
    assert remuda("schedule", "list", *place).out == f"the project {project} has no schedules\n"


def test_mistakes_are_explained(remuda: Any, shop: Any) -> None:
    project = shop("build: {script: make, rules: [{when: never}]}")
    wrong = remuda("schedule", "create", "every day", "-p", project)
    assert (wrong.code, wrong.err.startswith("cron ")) == (2, True)
    nothing = remuda("schedule", "update", 1, "-p", project)
    assert (nothing.code, nothing.err.startswith("nothing to change")) == (2, True)
    missing = remuda("schedule", "run", 99999, "-p", project)
    assert missing.err.startswith("there is no schedule 99999 on the cell")
    number = json.loads(remuda("schedule", "create", "0 4 * * *", "-p", project, "-o", "json").out)["id"]
    ran = remuda("schedule", "run", number, "-p", project)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"schedule {number} started no pipeline: ")


def test_run_with_a_broken_file_says_that_no_pipeline_was_created(remuda: Any, shop: Any) -> None:
    project = shop("build: {scirpt: make}\ntest: {stage: none, script: make}")
    number = json.loads(remuda("schedule", "create", "0 4 * * *", "-p", project, "-o", "json").out)["id"]
    ran = remuda("schedule", "run", number, "-p", project)
    first, *mistakes = ran.err.splitlines()
    assert (ran.code, first) == (2, f"schedule {number} started no pipeline:")
    assert [line.split(" ")[2] for line in mistakes] == [".gitlab-ci.yml:1:9:", ".gitlab-ci.yml:2:15:"]


def test_the_name_of_a_variable_stays_one_word_of_the_address(remuda: Any, shop: Any) -> None:
    place = ("-p", shop(FILE))
    created = remuda("schedule", "create", "0 4 * * *", "-d", "nightly", "--variable", "FULL=yes", *place, "-o", "json")
    number = json.loads(created.out)["id"]
    wrong = remuda("schedule", "update", number, "--variable", "FULL?x=no", *place)
    assert (wrong.code, "key" in wrong.err) == (2, True)
    shown = json.loads(remuda("schedule", "show", number, *place, "-o", "json").out)
    assert {each["key"]: each["value"] for each in shown["variables"]} == {"FULL": "yes"}
