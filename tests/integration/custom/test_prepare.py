"""config_exec and prepare_exec: three attempts with a cleanup after each, failures of the job, and bad output."""

import pytest
from tests.support.runners.custom_driver import CustomHarness

FAILS_TWICE = """#!/bin/sh
echo prepare >>"$CALLS"
[ "$(grep -c prepare "$CALLS")" -gt 2 ] || exit {code}
"""


@pytest.fixture
def _no_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.manager.compile.custom.RETRY_SECONDS", 0)


@pytest.mark.usefixtures("_no_retry_delay")
@pytest.mark.parametrize("code", [2, 9])
async def test_prepare_is_tried_three_times(harness: CustomHarness, code: int) -> None:
    harness.driver.write("prepare", FAILS_TWICE.format(code=code))
    result = await harness.run()
    assert result.check().status == "success"
    assert harness.driver.calls[:8] == [
        *("config", "prepare", "cleanup"),
        *("config", "prepare", "cleanup"),
        *("config", "prepare"),
    ]
    assert sum(b"Preparation failed" in line for line in result.lines) == 2


@pytest.mark.usefixtures("_no_retry_delay")
async def test_three_failed_attempts_are_a_runner_system_failure(harness: CustomHarness) -> None:
    harness.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nexit 2\n')
    end = (await harness.run()).check()
    assert end.reason == "runner_system_failure"
    assert harness.driver.calls == ["config", "prepare", "cleanup"] * 3


async def test_a_failure_of_the_job_is_not_retried(harness: CustomHarness) -> None:
    harness.driver.write("prepare", '#!/bin/sh\necho "image $CUSTOM_ENV_CI_JOB_IMAGE is refused"\nexit 1\n')
    result = await harness.run(image={"name": "evil:1"})
    assert result.check().reason == "script_failure"
    assert b"image evil:1 is refused" in result.lines
    assert harness.driver.calls == ["config", "cleanup"]


@pytest.mark.usefixtures("_no_retry_delay")
@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("no json", b"config_exec did not print JSON"),
        ("[1]", b"config_exec must print a JSON object"),
        ('{"builds_dir": 1}', b"builds_dir: must be a string"),
        ('{"job_env": {"A": 1}}', b"job_env: must be an object with strings"),
        ('{"builds_dir_is_shared": "no"}', b"builds_dir_is_shared true or false"),
        ('{"builds_dir": "relative"}', b"use an absolute path"),
        ('{"builds_dir": "/builds", "shell": "pwsh"}', b"only bash and sh are"),
    ],
)
async def test_error_messages_for_bad_config_exec_output(harness: CustomHarness, printed: str, message: bytes) -> None:
    harness.driver.write("config", f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\n")
    result = await harness.run()
    assert result.check().status == "failure"
    assert message in result.log
    assert "run prepare_script" not in harness.driver.calls


async def test_config_exec_may_print_nothing(harness: CustomHarness) -> None:
    harness.driver.write("config", "#!/bin/sh\n")
    result = await harness.run(runner={"builds_dir": str(harness.driver.builds), "shell": "sh"})
    assert result.check().status == "success"
    assert b"Using Custom executor..." in result.lines
