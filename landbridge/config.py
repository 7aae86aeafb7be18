"""Typed configuration: dataclasses are the schema of a YAML file and of the command line alike.

    @dataclass
    class Ppo:
        lr: float = option(1e-4, "learning rate of the actor", minimum=0.0)

    @dataclass
    class Train:
        num_envs: int = option(8, "environments in parallel", minimum=1)
        ppo: Ppo = option(Ppo())

    add_arguments(parser, Train)          # --config FILE --num-envs N --ppo.lr X
    config = from_args(Train, parser.parse_args())

Command line beats file beats default. Field types: bool, int, float, str, Path, Enum, Literal, nested dataclasses,
``tuple[T, ...]``, ``tuple[A, B]``, ``list[T]``, ``dict[str, T]``, ``T | None`` and Any. A key nobody declared is an
error, as is a value of another type; both name the path.
"""

from __future__ import annotations

import argparse
import ast
import copy
import dataclasses
import difflib
import enum
import inspect
import itertools
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

import yaml

from landbridge.errors import InvalidArgument

T = TypeVar("T")

_RULES = "landbridge.config"
_ARGUMENT = "config:"


class ConfigError(InvalidArgument):
    """A configuration is wrong; ``field`` is the path of the wrong value."""


class _Text(str):
    """A value from the command line: text still to be read as its field's type."""

    __slots__ = ()


def option(
    default: Any = dataclasses.MISSING,
    help: str = "",
    *,
    choices: Sequence[Any] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A dataclass field with help text and checks; without a default it is required.

    A mutable default (list, dict, nested dataclass) is copied for every object. ``choices``, ``minimum`` and
    ``maximum`` (inclusive) apply to each item of a sequence.
    """
    rules = {"help": help, _RULES: {"choices": choices, "minimum": minimum, "maximum": maximum}}
    if isinstance(default, list | dict) or (dataclasses.is_dataclass(default) and not isinstance(default, type)):
        return dataclasses.field(default_factory=lambda: copy.deepcopy(default), metadata=rules)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=rules)
    return dataclasses.field(default=default, metadata=rules)


def from_mapping(cls: type[T], mapping: Mapping[str, Any], path: str = "") -> T:
    """Build ``cls`` from plain data (as YAML gives it). ConfigError names the path of what is wrong."""
    if not isinstance(mapping, Mapping):
        raise _error(path, f"expected a mapping of {_names(cls)}, got {_show(mapping)}")
    hints, known = _hints(cls), {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in mapping:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {_join(path, close[0])!r}?" if close else ""
            raise _error(_join(path, str(key)), f"no such setting{hint} There are: {', '.join(sorted(known))}")
    values: dict[str, Any] = {}
    for name, f in known.items():
        where = _join(path, name)
        if name in mapping:
            values[name] = _convert(mapping[name], hints[name], where)
            _check(values[name], f.metadata.get(_RULES, {}), where)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise _error(where, f"required ({_type_name(hints[name])}) and not given")
    try:
        return cls(**values)
    except ValueError as error:  # a __post_init__ that checks fields against each other
        raise _error(path, str(error)) from error


def load(cls: type[T], file: str | Path | None = None, overrides: Sequence[str] = ()) -> T:
    """Read ``file`` (YAML; None for all defaults) and apply overrides like ``"ppo.lr=1e-4"``, the last one winning."""
    data: Any = {}
    if file is not None:
        try:
            data = yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise ConfigError(f"cannot read {file}: {error.strerror}") from error
        except yaml.YAMLError as error:
            raise ConfigError(f"{file} is not YAML: {error}") from error
        if not isinstance(data, dict):
            raise ConfigError(f"{file}: expected a mapping of settings at the top, got {_show(data)}")
    for override in overrides:
        key, equals, text = override.partition("=")
        if not equals or not key:
            raise ConfigError(f"override {override!r}: expected KEY=VALUE, e.g. ppo.lr=1e-4")
        _put(data, key.split("."), _Text(text))
    try:
        return from_mapping(cls, data)
    except ConfigError as error:
        if file is None:
            raise
        raise ConfigError(f"{file}: {error}", field=error.field) from error


def add_arguments(parser: argparse.ArgumentParser, cls: type[Any], prefix: str = "") -> None:
    """Give ``parser`` a flag for every setting of ``cls``; ``--config FILE`` too where ``prefix`` is empty.

    ``prefix`` (e.g. ``"ppo."``) goes before every name, for several schemas on one parser.
    """
    if not prefix:
        parser.add_argument("--config", metavar="FILE", help="YAML file with these settings; flags override it")
    for path, hint, f, describe in _leaves(cls, ""):
        flag = "--" + (prefix + path).replace("_", "-")
        text = describe or f.metadata.get("help", "")
        common: dict[str, Any] = {"dest": _ARGUMENT + prefix + path, "default": argparse.SUPPRESS}
        common["help"] = _help(text, f).replace("%", "%%")
        if _plain(hint) is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction, **common)
        else:
            parser.add_argument(flag, metavar=_metavar(hint, f), **common)


def from_args(cls: type[T], args: argparse.Namespace, prefix: str = "") -> T:
    """The configuration that :func:`add_arguments` flags and ``--config`` describe."""
    start = _ARGUMENT + prefix
    given = {key[len(start) :]: value for key, value in vars(args).items() if key.startswith(start)}
    paths = {path for path, *_ in _leaves(cls, "")}
    overrides = [f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in given.items()]
    return load(cls, None if prefix else args.config, [text for text in overrides if text.split("=")[0] in paths])


def to_mapping(value: Any) -> Any:
    """Plain data (dicts, lists, numbers, strings) that :func:`from_mapping` reads back to an equal object."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_mapping(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {key: to_mapping(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_mapping(item) for item in value]
    return value


def _convert(value: Any, hint: Any, path: str) -> Any:
    """``value`` as the type ``hint``, or ConfigError."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return yaml.safe_load(value) if isinstance(value, _Text) else value
    if origin in (Union, types.UnionType):
        if value is None or (isinstance(value, _Text) and value.lower() in ("none", "null")):
            return None
        return _convert(value, _plain(hint), path)
    if dataclasses.is_dataclass(hint):
        data = yaml.safe_load(value) if isinstance(value, _Text) else value
        return from_mapping(hint, data, path)  # type: ignore[arg-type]
    if origin is Literal:
        return _one_of(value, {str(part): part for part in parts}, path)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _one_of(value, {str(member.value): member for member in hint}, path)
    if origin in (tuple, list):
        return _sequence(value, hint, path)
    if origin is dict or hint is dict:
        data = yaml.safe_load(value) if isinstance(value, _Text) else value
        if not isinstance(data, Mapping):
            raise _error(path, f"expected a mapping, got {_show(data)}")
        return {
            str(key): _convert(item, parts[1] if parts else Any, _join(path, str(key))) for key, item in data.items()
        }
    return _scalar(value, hint, path)


def _scalar(value: Any, hint: Any, path: str) -> Any:
    text = isinstance(value, str)
    if hint is Path and text and value:
        return Path(value)
    if hint is str and text:
        return str(value)
    if hint is bool and isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, _Text) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    # YAML 1.1 reads 1e-4 as a string (no dot): accept for float what float() accepts.
    if hint is float and (text or (isinstance(value, int | float) and not isinstance(value, bool))):
        try:
            return float(value)
        except ValueError:
            raise _error(path, f"expected a number, got {_show(value)}") from None
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is int and isinstance(value, _Text):
        try:
            return int(value)
        except ValueError:
            raise _error(path, f"expected a whole number, got {_show(value)}") from None
    if hint not in (bool, int, float, str, Path):
        raise TypeError(f"{path}: {hint} is not a type of setting; see landbridge.config")
    raise _error(path, f"expected {_type_name(hint)}, got {_show(value)}")


def _sequence(value: Any, hint: Any, path: str) -> Any:
    kind, parts = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, _Text):  # "1,2,3" or a YAML list
        inner = value.strip().removeprefix("[").removesuffix("]")
        value = [_Text(item.strip().strip("'\"")) for item in inner.split(",")] if inner.strip() else []
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise _error(path, f"expected {_type_name(hint)}, got {_show(value)}")
    if kind is list or parts[-1] is Ellipsis:
        parts = (parts[0],) * len(value)
    elif len(parts) != len(value):
        raise _error(path, f"expected {len(parts)} values, got {len(value)}: {list(value)!r}")
    items = [_convert(item, part, f"{path}[{i}]") for i, (item, part) in enumerate(zip(value, parts, strict=True))]
    return items if kind is list else tuple(items)


def _one_of(value: Any, allowed: Mapping[str, Any], path: str) -> Any:
    key = str(value.value if isinstance(value, enum.Enum) else value)
    if key not in allowed or (isinstance(value, bool) and allowed[key] is not value):
        raise _error(path, f"expected one of {', '.join(allowed)}; got {_show(value)}")
    return allowed[key]


def _check(value: Any, rules: Mapping[str, Any], path: str) -> None:
    if value is None:
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, rules, f"{path}[{index}]")
        return
    low, high, choices = rules.get("minimum"), rules.get("maximum"), rules.get("choices")
    if choices is not None and value not in choices:
        raise _error(path, f"expected one of {', '.join(map(str, choices))}; got {_show(value)}")
    if (low is not None and not value >= low) or (high is not None and not value <= high):
        raise _error(path, f"expected {_range(low, high)}, got {_show(value)}")


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return f"at most {high}"
    return f"at least {low}" if high is None else f"a value from {low} to {high}"


def _put(data: dict[str, Any], keys: list[str], value: Any) -> None:
    for depth, key in enumerate(keys[:-1]):
        inner = data.setdefault(key, {})
        if not isinstance(inner, dict):
            raise _error(".".join(keys), f"{'.'.join(keys[: depth + 1])} is {_show(inner)} and has no settings in it")
        data = inner
    data[keys[-1]] = value


def _leaves(cls: type[Any], path: str) -> Iterator[tuple[str, Any, dataclasses.Field[Any], str]]:
    """(path, type, field, docstring) of every setting, nested dataclasses opened."""
    hints, described = _hints(cls), _docstrings(cls)
    for f in dataclasses.fields(cls):
        if not f.init:
            continue
        if dataclasses.is_dataclass(hints[f.name]):
            yield from _leaves(hints[f.name], f"{path}{f.name}.")
        else:
            yield path + f.name, hints[f.name], f, described.get(f.name, "")


def _hints(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _docstrings(cls: type[Any]) -> dict[str, str]:
    """The string that follows each field's definition in the source, if any."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):  # no source at hand, e.g. made in an interpreter
            continue
        body = tree.body if isinstance(tree, ast.ClassDef) else []
        for statement, after in itertools.pairwise(body):
            documents = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and documents:
                found[statement.target.id] = " ".join(str(after.value.value).split())  # type: ignore[attr-defined]
    return found


def _help(text: str, f: dataclasses.Field[Any]) -> str:
    rules = f.metadata.get(_RULES, {})
    notes = []
    if rules.get("minimum") is not None or rules.get("maximum") is not None:
        notes.append(_range(rules.get("minimum"), rules.get("maximum")))
    default = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
    notes.append("required" if default is dataclasses.MISSING else f"default: {to_mapping(default)}")
    return f"{text} ({'; '.join(notes)})".strip()


def _metavar(hint: Any, f: dataclasses.Field[Any]) -> str:
    plain, choices = _plain(hint), f.metadata.get(_RULES, {}).get("choices")
    if typing.get_origin(plain) is Literal:
        choices = typing.get_args(plain)
    elif isinstance(plain, type) and issubclass(plain, enum.Enum):
        choices = [member.value for member in plain]
    if choices:
        return "{" + ",".join(map(str, choices)) + "}"
    if typing.get_origin(plain) in (list, tuple):
        return "A,B,..."
    return {int: "N", float: "X", Path: "PATH"}.get(plain, "VALUE" if plain is not str else "TEXT")


def _plain(hint: Any) -> Any:
    """``T`` of ``T | None``; other types as they are."""
    if typing.get_origin(hint) not in (Union, types.UnionType):
        return hint
    parts = [part for part in typing.get_args(hint) if part is not type(None)]
    if len(parts) != 1:
        raise TypeError(f"{hint} is not a type of setting: T | None is the only union")
    return parts[0]


def _type_name(hint: Any) -> str:
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text", Path: "a path"}
    if hint in names:
        return names[hint]
    if typing.get_origin(hint) in (list, tuple):
        return f"a list ({str(hint).replace('typing.', '')})"
    return getattr(hint, "__name__", str(hint)) if not typing.get_args(hint) else str(hint).replace("typing.", "")


def _names(cls: type[Any]) -> str:
    return ", ".join(f.name for f in dataclasses.fields(cls))


def _show(value: Any) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, str):
        return f"{str(value)!r} (text)"
    return f"{value!r} ({type(value).__name__})"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _error(path: str, message: str) -> ConfigError:
    return ConfigError(f"{path}: {message}" if path else message, field=path)
