"""Masks secrets in everything that a command prints from now on: names, addresses and lines of a compiled pipeline may
contain them. Logs of jobs are masked before, by the agent."""

import json
import sys
from collections.abc import Iterable
from typing import Any

from remuda.lib.masking import Secrets


class _MaskedStream:
    """A text stream that masks secrets in each piece of text; everything else is the stream's own."""

    def __init__(self, stream: Any, secrets: Secrets) -> None:
        self._stream = stream
        self.secrets = secrets

    def write(self, text: str) -> int:
        self._stream.write(self.secrets.mask(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def mask_output(values: Iterable[str]) -> None:
    """Mask these values in stdout and stderr. A later call replaces the values of an earlier one."""
    # In JSON documents quotes and line ends are escaped.
    texts = {
        text
        for value in values
        for text in (value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    }
    secrets = Secrets(texts)
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if isinstance(stream, _MaskedStream):
            stream.secrets = secrets
        elif texts:
            setattr(sys, name, _MaskedStream(stream, secrets))
