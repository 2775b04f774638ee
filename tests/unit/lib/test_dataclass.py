"""Classes of `remuda.lib.dataclass` behave like those of the standard library's decorator."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar

import pytest

from remuda.lib import dataclass


def create_classes(make: Any) -> tuple[Any, Any, Any]:
    """Create three classes with the decorator `make`."""

    @make(frozen=True, slots=True, kw_only=True)
    class Part:
        position: int = field(default=0, compare=False)
        hidden: str = field(default="", repr=False)

    @make(frozen=True, slots=True, kw_only=True)
    class Whole(Part):
        """A class with a base class and all kinds of fields."""

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
            return "own repr"

        def __hash__(self) -> int:
            return 5

    return Part, Whole, Checked


PAIRS = list(zip(create_classes(dataclasses.dataclass), create_classes(dataclass.dataclass), strict=True))


@pytest.fixture(params=[0, 1], ids=["library", "ours"])
def pick(request: pytest.FixtureRequest) -> Callable[[int], Any]:
    """Return a function that selects one of the classes by its number."""

    def pick_class(number: int) -> Any:
        return PAIRS[number][request.param]

    return pick_class


def test_fields_slots_and_repr_equal_those_of_the_library() -> None:
    for theirs, ours in PAIRS:
        assert ours is not theirs
        assert [entry.name for entry in fields(ours)] == [entry.name for entry in fields(theirs)]
        assert ours.__slots__ == theirs.__slots__
        assert ours.__match_args__ == theirs.__match_args__
    (their_part, our_part), (their_whole, our_whole) = PAIRS[:2]
    theirs = their_whole(name="a", parts=(their_part(position=1),))
    ours = our_whole(name="a", parts=(our_part(position=1),))
    assert repr(ours) == repr(theirs)
    assert asdict(ours) == asdict(theirs)
    assert ours.count == theirs.count


def test_each_object_has_its_own_defaults(pick: Any) -> None:
    whole = pick(1)
    first, second = whole(name="a"), whole(name="a")
    assert (first.position, first.parts, first.length, first.SIZES) == (0, (), 7, (1, 2))
    assert first.notes == {}
    assert first.notes is not second.notes


def test_equality_and_hash_use_the_compared_fields(pick: Any) -> None:
    part, whole = pick(0), pick(1)
    assert whole(name="a", position=1) == whole(name="a", position=2)
    assert hash(whole(name="a", position=1)) == hash(whole(name="a", position=2))
    assert whole(name="a") != whole(name="b")
    assert whole(name="a") != part()
    assert len({part(hidden="x"), part(hidden="x", position=3), part(hidden="y")}) == 2


def test_fields_cannot_be_changed(pick: Any) -> None:
    value = pick(1)(name="a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    assert not hasattr(value, "__dict__")


def test_replace_and_copy(pick: Any) -> None:
    value = pick(1)(name="a", parts=(1, [2]))
    changed = replace(value, name="b")
    assert (changed.name, changed.parts, value.name) == ("b", (1, [2]), "a")
    assert copy.copy(value) == copy.deepcopy(value) == value
    assert copy.deepcopy(value).parts[1] is not value.parts[1]


@pytest.mark.parametrize("arguments", [{}, {"name": "a", "other": 1}, {"name": "a", "length": 3}])
def test_wrong_arguments_are_refused(pick: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) .*keyword"):
        pick(1)(**arguments)
    with pytest.raises(TypeError):
        pick(1)("a")


def test_methods_of_the_class_are_kept(pick: Any) -> None:
    checked = pick(2)
    assert (repr(checked(number=1)), hash(checked(number=1))) == ("own repr", 5)
    assert checked(number=1) == checked(number=1)
    with pytest.raises(ValueError, match="negative"):
        checked(number=-1)


@dataclass.dataclass(frozen=True, slots=True, kw_only=True)
class Pickled:
    """Defined in the module, because pickle looks up classes by name."""

    number: int


def test_a_value_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Pickled(number=3))) == Pickled(number=3)


def test_repr_of_a_value_that_contains_itself() -> None:
    inside: list[Any] = []
    value = PAIRS[1][1](name="a", parts=(inside,))
    inside.append(value)
    assert "..." in repr(value)


@pytest.mark.parametrize("make", [dataclasses.dataclass, dataclass.dataclass])
def test_positional_arguments(make: Any) -> None:
    class Two:
        first: int
        second: int = 2

    pair: Any = make(frozen=True, slots=True)(Two)
    assert pair(1) == pair(1, 2) == pair(first=1) == pair(1, second=2)
    assert pair.__match_args__ == ("first", "second")
    for positional, keywords in (((1, 2, 3), {}), ((1,), {"first": 1}), ((), {})):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            pair(*positional, **keywords)


def test_a_mutable_class_is_left_to_the_library() -> None:
    @dataclass.dataclass(slots=True)
    class Tally:
        count: int = 0

    tally = Tally(3)
    tally.count += 1
    assert tally == Tally(4)


def test_many_instances_of_a_class_are_initialized_alike() -> None:
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
