"""Opens a client for single calls to a server, outside of a running manager, and explains the server's errors."""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from remuda.lib.clock import Clock
from remuda.manager.config.certificates import find_tls_problems, with_certificates
from remuda.manager.config.values import RunnerConfig
from remuda.manager.errors import RegisterError
from remuda.manager.polling.features import runner_info
from remuda.wire.refusals import without_status
from remuda.wire.runner_client import RunnerClient, RunnerReply
from remuda.wire.runner_server import RunnerApiTemporaryError, Server, new_session, tls_context

_CAUSES = {
    400: "the server does not accept these values",
    401: "the token is not valid there; create a runner on the server and use its glrt- token",
    403: "the token is not valid there; create a runner on the server and use its glrt- token",
    404: "there is no Runner API at this address; give the server's own address, without a project's path",
    410: "the server does not accept registration tokens; create a runner there and use its glrt- token",
    422: "the runner has lost its owner; create a new one on the server",
}


@asynccontextmanager
async def open_client(
    *, url: str, token: str, system_id: str, executor: str, clock: Clock, keys: Mapping[str, Any], beside: Path
) -> AsyncIterator[RunnerClient]:
    """Open a client for one runner. `keys` are those of the runner's section, for TLS files; the `certs` folder in
    `beside` may contain the server's certificate. Raises RegisterError if the server cannot be reached, or a TLS file
    cannot be used."""
    async with new_session() as session:
        client = RunnerClient(
            Server(url=url, session=session, clock=clock, tls=_context(url, keys, beside)),
            token=token,
            system_id=system_id,
            info=runner_info(executor=executor),
        )
        try:
            yield client
        except RunnerApiTemporaryError as error:
            raise RegisterError(f"the server cannot be reached: {error}") from error


def refusal(url: str, reply: RunnerReply, causes: Mapping[int, str] | None = None) -> RegisterError:
    """Return an error that explains the server's answer; `causes` replaces usual explanations, by HTTP status."""
    texts = _CAUSES | dict(causes or {})
    if cause := texts.get(reply.status):
        said = without_status(reply.message)
        return RegisterError(f"{url}: {cause}" + (f" ({said})" if said else ""))
    said = f" ({reply.message})" if reply.message else ""
    return RegisterError(f"{url} answered {reply.status}{said}, which neither GitLab nor a Remuda cell does")


def _context(url: str, keys: Mapping[str, Any], beside: Path) -> ssl.SSLContext | None:
    ca, cert, key = (str(keys.get(f"tls-{name}-file") or "") for name in ("ca", "cert", "key"))
    config = RunnerConfig(url=url, tls_ca_file=ca, tls_cert_file=cert, tls_key_file=key)
    runner = with_certificates(config, beside / "certs")
    if not runner.tls_ca_file and not runner.tls_cert_file:
        return None
    for problem in find_tls_problems([(0, runner)]):
        raise RegisterError(problem.removeprefix("runners[0]."))
    return tls_context(ca_file=runner.tls_ca_file, cert_file=runner.tls_cert_file, key_file=runner.tls_key_file)
