"""Values are what the standard library would have made of them."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from remuda.lib import dataclass


def classes(make: Any) -> tuple[Any, Any, Any]:
    """The same classes by either decorator."""

    @make(frozen=True, slots=True, kw_only=True)
    class Part:
        at: int = field(default=0, compare=False)
        hidden: str = field(default="", repr=False)

    @make(frozen=True, slots=True, kw_only=True)
    class Whole(Part):
        """With a base, and all kinds of fields."""

        SIZES: ClassVar[tuple[int, ...]] = (1, 2)
        name: str
        parts: tuple[Any, ...] = ()
        notes: dict[str, Any] = field(default_factory=dict, hash=False, compare=False)
        length: int = field(init=False, default=7)

        @property
        def count(self) -> int:
            return len(self.parts)

    @make(frozen=True, slots=True, kw_only=True)
    class Checked:
        number: int

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("negative")

        def __repr__(self) -> str:
            return "own words"

        def __hash__(self) -> int:
            return 5

    return Part, Whole, Checked


PAIRS = list(zip(classes(dataclasses.dataclass), classes(dataclass.dataclass), strict=True))


@pytest.fixture(params=[0, 1], ids=["library", "ours"])
def pick(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    return lambda number: PAIRS[number][request.param]


def test_both_look_the_same() -> None:
    for theirs, ours in PAIRS:
        assert ours is not theirs
        assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]
        assert ours.__slots__ == theirs.__slots__
        assert ours.__match_args__ == theirs.__match_args__
    whole = [
        (made := pair(name="a", parts=(part(at=1),)), repr(made), asdict(made), made.count)
        for pair, part in zip(PAIRS[1], PAIRS[0], strict=True)
    ]
    assert whole[0][1:] == whole[1][1:]


def test_defaults_are_each_objects_own(pick: Any) -> None:
    whole = pick(1)
    first, second = whole(name="a"), whole(name="a")
    assert (first.at, first.parts, first.length, first.SIZES) == (0, (), 7, (1, 2))
    assert first.notes == {}
    assert first.notes is not second.notes


def test_equal_values_are_equal(pick: Any) -> None:
    part, whole = pick(0), pick(1)
    assert whole(name="a", at=1) == whole(name="a", at=2)
    assert hash(whole(name="a", at=1)) == hash(whole(name="a", at=2))
    assert whole(name="a") != whole(name="b")
    assert whole(name="a") != part()
    assert len({part(hidden="x"), part(hidden="x", at=3), part(hidden="y")}) == 2


def test_a_value_stays_what_it_is(pick: Any) -> None:
    value = pick(1)(name="a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert not hasattr(value, "__dict__")


def test_another_can_be_made_of_it(pick: Any) -> None:
    value = pick(1)(name="a", parts=(1, [2]))
    changed = replace(value, name="b")
    assert (changed.name, changed.parts, value.name) == ("b", (1, [2]), "a")
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert copy.deepcopy(value).parts[1] is not value.parts[1]


@pytest.mark.parametrize("given", [{}, {"name": "a", "other": 1}, {"name": "a", "length": 3}])
def test_wrong_arguments_are_refused(pick: Any, given: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) .*keyword"):
        pick(1)(**given)
    with pytest.raises(TypeError):
        pick(1)("a")


def test_what_the_class_has_itself_stays(pick: Any) -> None:
    checked = pick(2)
    assert (repr(checked(number=1)), hash(checked(number=1))) == ("own words", 5)
    assert checked(number=1) == checked(number=1)
    with pytest.raises(ValueError, match="negative"):
        checked(number=-1)


@dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Pickled by its name."""

    number: int


def test_a_value_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(Sent(number=3))) == Sent(number=3)


def test_a_value_in_itself_is_shown() -> None:
    inside: list[Any] = []
    value = PAIRS[1][1](name="a", parts=(inside,))
    inside.append(value)
    assert "..." in repr(value)


@pytest.mark.parametrize("make", [dataclasses.dataclass, dataclass.dataclass])
def test_values_in_a_row(make: Any) -> None:
    class Two:
        first: int
        second: int = 2

    pair: Any = make(frozen=True, slots=True)(Two)
    assert pair(1) == pair(1, 2) == pair(first=1) == pair(1, second=2)
    assert pair.__match_args__ == ("first", "second")
    for row, given in (((1, 2, 3), {}), ((1,), {"first": 1}), ((), {})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            pair(*row, **given)


def test_other_classes_are_the_librarys() -> None:
    @dataclass.dataclass(slots=True)
    class Tally:
        count: int = 0

    tally = Tally(3)
    tally.count += 1
    assert tally == Tally(4)


def test_a_class_with_many_instances_is_the_same_as_one_with_few() -> None:
    @dataclass.dataclass(frozen=True, slots=True)
    class Place:
        name: str
        tags: list[str] = field(default_factory=list)
        size: int = 3
        half: int = field(default=0, init=False)
        note: str = field(default="", kw_only=True)

        def __post_init__(self) -> None:
            object.__setattr__(self, "half", self.size // 2)

    for number in range(500):
        place = Place(str(number), size=number, note="x")
        assert (place.name, place.tags, place.size, place.half, place.note) == (
            str(number),
            [],
            number,
            number // 2,
            "x",
        )
        assert place == replace(place, tags=[])
    with pytest.raises(TypeError):
        Place()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Place("a", colour="red")  # type: ignore[call-arg]
    assert Place("a").tags is not Place("a").tags
