import io

from remuda.localrun.service_log import service_log
from remuda.telemetry import logs


def test_everything_is_written_and_each_kind_of_error_is_shown_once() -> None:
    file = io.StringIO()
    messages: list[str] = []
    logs.configure(stream=service_log(file, messages.append))
    try:
        log = logs.logger("manager")
        log.info("job received", job=1)
        log.error("the disk is full", free_bytes=1)
        log.error("the disk is full", free_bytes=0)
        log.error("the agent is away", cause="it does not answer")
    finally:
        logs.configure()
    assert messages == ["problem: the disk is full", "problem: the agent is away: it does not answer"]
    assert len(file.getvalue().splitlines()) == 4
