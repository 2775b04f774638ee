"""The loop acts on plans: instances come for jobs and go after them, and nothing is lost on the way."""

from pathlib import Path

from remuda.testing.scalers import Stable


async def test_an_instance_comes_for_a_job_and_goes_after_it(tmp_path: Path) -> None:
    stable = Stable(tmp_path)
    await stable.start()
    assert stable.scaler.capacity() == 0
    await stable.run(5)
    assert stable.scaler.capacity() == stable.cloud.max_size
    slots = await stable.acquire("job")
    assert slots["job"].instance == "i-1"
    assert stable.instances("ready").keys() == {"i-1"}
    stable.release("job")
    await stable.run(400)
    assert stable.instances() == {}
    assert stable.cloud.living() == {}
    assert stable.mechanic.forgotten == ["i-1"]
    await stable.close()
