"""Types of the fixtures that build and run jobs of an agent."""

from collections.abc import Callable, Coroutine
from typing import Any

from remuda.testing.agent_process import Seen
from remuda.wire.agent_client import JobStart

Build = Callable[..., JobStart]
RunStep = Callable[..., Coroutine[Any, Any, Seen]]
