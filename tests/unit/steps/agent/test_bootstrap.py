import pytest

from remuda.steps.agent.bootstrap import (
    MachineFacts,
    Offer,
    choose,
    command_line,
    for_interpreter,
    machine_of,
    read_facts,
)
from remuda.steps.errors import AgentError
from remuda.steps.pack.program import Form, digest_of

ZIPAPP = Offer(form=Form.ZIPAPP, content=b"#!/usr/bin/env python3\nzip", digest="z")
FROZEN = Offer(form=Form.FROZEN, content=b"\x7fELF", digest="f", machine="x86_64")
LINUX = {"system": "Linux", "machine": "x86_64"}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (MachineFacts(**LINUX, python="/usr/bin/python3"), [ZIPAPP, FROZEN]),
        (MachineFacts(**LINUX), [FROZEN]),
        (MachineFacts(system="Linux", machine="aarch64", python="/usr/bin/python3"), [ZIPAPP]),
        (MachineFacts(system="FreeBSD", machine="x86_64", python="/usr/local/bin/python3.11"), [ZIPAPP]),
    ],
)
def test_offers_that_run_on_a_machine(facts: MachineFacts, expected: list[Offer]) -> None:
    assert choose(facts, [FROZEN, ZIPAPP]) == expected


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        (MachineFacts(system="Linux", machine="aarch64"), "Linux aarch64, no Python 3.11 or newer"),
        (MachineFacts(system="Darwin", machine="x86_64"), "Darwin x86_64"),
        (MachineFacts(), "does not say what it is"),
    ],
)
def test_the_error_describes_a_machine_without_a_matching_offer(facts: MachineFacts, message: str) -> None:
    with pytest.raises(AgentError, match=message):
        choose(facts, [ZIPAPP, FROZEN])


def test_facts_are_parsed_among_other_lines() -> None:
    text = "Welcome!\n\nsystem Linux\nmachine x86_64\npython /opt/my python/bin/python3\npresent remuda-agent 1 x\n"
    assert read_facts(text) == MachineFacts(**LINUX, python="/opt/my python/bin/python3", present="remuda-agent 1 x")


def test_a_zipapp_for_another_interpreter_is_the_same_program() -> None:
    changed = for_interpreter(ZIPAPP.content, "/usr/bin/python3.12")
    assert changed == b"#!/usr/bin/python3.12 -I\nzip"
    assert digest_of(changed) == digest_of(ZIPAPP.content)
    assert digest_of(b"\x7fELF\nzip") != digest_of(changed)


def test_the_first_line_does_not_become_shorter() -> None:
    """A zip contains offsets from the beginning of the file; it could not be read with a shorter first line."""
    content = b"#!/usr/bin/env python3\nzip"
    changed = for_interpreter(content, "/bin/python3")
    assert changed.split() == [b"#!/bin/python3", b"-I", b"zip"]
    assert len(changed) == len(content)


def test_the_processor_is_read_from_the_head_of_an_executable() -> None:
    def create_head(number: int) -> bytes:
        return b"\x7fELF".ljust(18, b"\0") + number.to_bytes(2, "little")

    assert machine_of(create_head(62)) == "x86_64"
    assert machine_of(create_head(183)) == "aarch64"
    assert machine_of(create_head(8)) == ""
    assert machine_of(b"#!") == ""


def test_special_characters_in_a_path_are_quoted() -> None:
    assert command_line("x", "/a b/$(c)'d").endswith(""" sh '/a b/$(c)'"'"'d'""")
