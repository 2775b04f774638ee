"""config_exec and prepare_exec: three tries, with cleaning up between, and what is the job's own failure."""

import pytest
from tests.support.runners.custom_driver import Bench

FAILS_TWICE = """#!/bin/sh
echo prepare >>"$CALLS"
[ "$(grep -c prepare "$CALLS")" -gt 2 ] || exit {code}
"""


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("remuda.manager.compile.custom.RETRY_SECONDS", 0)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("code", [2, 9])
async def test_preparing_is_tried_three_times(bench: Bench, code: int) -> None:
    bench.driver.write("prepare", FAILS_TWICE.format(code=code))
    seen = await bench.run()
    assert seen.check().status == "success"
    assert bench.driver.calls[:8] == [
        *("config", "prepare", "cleanup"),
        *("config", "prepare", "cleanup"),
        *("config", "prepare"),
    ]
    assert sum(b"Preparation failed" in line for line in seen.lines) == 2


@pytest.mark.usefixtures("_at_once")
async def test_after_three_tries_it_is_a_failure_of_the_system(bench: Bench) -> None:
    bench.driver.write("prepare", '#!/bin/sh\necho prepare >>"$CALLS"\nexit 2\n')
    end = (await bench.run()).check()
    assert end.reason == "runner_system_failure"
    assert bench.driver.calls == ["config", "prepare", "cleanup"] * 3


async def test_the_jobs_own_failure_is_not_tried_again(bench: Bench) -> None:
    bench.driver.write("prepare", '#!/bin/sh\necho "image $CUSTOM_ENV_CI_JOB_IMAGE is refused"\nexit 1\n')
    seen = await bench.run(image={"name": "evil:1"})
    assert seen.check().reason == "script_failure"
    assert b"image evil:1 is refused" in seen.lines
    assert bench.driver.calls == ["config", "cleanup"]


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(
    ("printed", "words"),
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
async def test_what_config_exec_must_not_print(bench: Bench, printed: str, words: bytes) -> None:
    bench.driver.write("config", f"#!/bin/sh\ncat <<'EOF'\n{printed}\nEOF\n")
    seen = await bench.run()
    assert seen.check().status == "failure"
    assert words in seen.log
    assert "run prepare_script" not in bench.driver.calls


async def test_config_exec_may_print_nothing(bench: Bench) -> None:
    bench.driver.write("config", "#!/bin/sh\n")
    seen = await bench.run(runner={"builds_dir": str(bench.driver.builds), "shell": "sh"})
    assert seen.check().status == "success"
    assert b"Using Custom executor..." in seen.lines
