"""A `dataclass` decorator that creates frozen, slotted classes ten times faster than the standard library.

The standard library compiles five functions per class, which slows the agent's start. Here the functions are shared
closures. `replace`, `asdict`, `fields` and type checkers see an ordinary dataclass. Classes that are not frozen and
slotted are left to the standard library."""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        by_keyword = options.pop("kw_only", False)
        is_value = options == {"frozen": True, "slots": True}
        make = (
            partial(_make_value_class, by_keyword) if is_value else dataclasses.dataclass(kw_only=by_keyword, **options)
        )
        return make if cls is None else make(cls)


_put = object.__setattr__
_HOT = 200
"""Number of instances after which a class gets a compiled constructor."""


def _make_value_class(by_keyword: bool, cls: type) -> Any:
    if not cls.__doc__:
        # Otherwise the library generates one, which takes longer than everything else.
        cls.__doc__ = cls.__name__
    own = {name for name in ("__repr__", "__eq__", "__hash__") if name in cls.__dict__}
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=by_keyword)(cls)
    fields = dataclasses.fields(made)
    names = tuple(field.name for field in fields)
    compared = _getter([field.name for field in fields if field.compare])
    functions: dict[str, Callable[..., Any]] = {
        "__repr__": _make_repr([field.name for field in fields if field.repr]),
        "__eq__": lambda self, other: (
            compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented
        ),
        "__hash__": lambda self: hash(compared(self)),
    }
    for name, function in functions.items():
        if name not in own:
            setattr(made, name, function)
    made.__init__ = _make_init(made, fields)
    made.__setattr__ = _refuse_to_assign
    made.__delattr__ = _refuse_to_delete
    made.__getstate__ = lambda self: [getattr(self, name) for name in names]
    made.__setstate__ = lambda self, state: [_put(self, *pair) for pair in zip(names, state, strict=True)]
    return made


def _getter(names: list[str]) -> Callable[[Any], Any]:
    return attrgetter(*names) if names else lambda _: ()


def _make_init(cls: type, fields: tuple[dataclasses.Field[Any], ...]) -> Callable[..., None]:
    rules = [(field.name, field.init, field.default, field.default_factory) for field in fields]
    order = [field.name for field in fields if field.init and not field.kw_only]
    finish = getattr(cls, "__post_init__", None)
    uses = 0

    def __init__(self: Any, *row: Any, **values: Any) -> None:  # noqa: N807 - tracebacks name it so
        nonlocal uses
        uses += 1
        if uses == _HOT:
            cls.__init__ = _compile_init(fields, has_post_init=finish is not None)  # type: ignore[misc]
        if row:
            if len(row) > len(order) or not values.keys().isdisjoint(order[: len(row)]):
                raise TypeError(f"{cls.__name__}.__init__() takes {len(order)} positional arguments, each once")
            values |= zip(order, row, strict=False)
        for name, is_argument, default, factory in rules:
            if is_argument and name in values:
                _put(self, name, values.pop(name))
            elif default is not MISSING:
                _put(self, name, default)
            elif factory is not MISSING:
                _put(self, name, factory())
            elif is_argument:
                raise TypeError(f"{cls.__name__}.__init__() missing keyword argument: {name!r}")
        if values:
            raise TypeError(f"{cls.__name__}.__init__() got an unexpected keyword argument {next(iter(values))!r}")
        if finish is not None:
            finish(self)

    return __init__


def _compile_init(fields: tuple[dataclasses.Field[Any], ...], *, has_post_init: bool) -> Callable[..., None]:
    """Compile a constructor: slower to create than a closure, faster to call. For classes with many instances."""
    names: dict[str, Any] = {"_put": _put, "_MISSING": MISSING}
    positional: list[str] = []
    keyword_only: list[str] = []
    body: list[str] = []
    for number, field in enumerate(fields):
        default, value = "", field.name
        if field.default is not MISSING:
            default, names[f"_{number}"] = f"=_{number}", field.default
        elif field.default_factory is not MISSING:
            default, names[f"_{number}"] = "=_MISSING", field.default_factory
            value = f"_{number}() if {field.name} is _MISSING else {field.name}"
        if field.init:
            (keyword_only if field.kw_only else positional).append(field.name + default)
        elif default:
            value = f"_{number}" if field.default is not MISSING else f"_{number}()"
        else:
            continue
        body.append(f" _put(self, {field.name!r}, {value})")
    if has_post_init:
        body.append(" self.__post_init__()")
    head = ", ".join(["self", *positional, *(["*", *keyword_only] if keyword_only else [])])
    exec(f"def __init__({head}):\n" + "\n".join(body or [" pass"]), names)
    function: Callable[..., None] = names["__init__"]
    return function


def _make_repr(names: list[str]) -> Callable[[Any], str]:
    def __repr__(self: Any) -> str:  # noqa: N807 - tracebacks name it so
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return recursive_repr()(__repr__)


def _refuse_to_assign(_self: Any, name: str, _value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
