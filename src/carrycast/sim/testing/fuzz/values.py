"""Draws random values from declared types, as msgspec describes them."""

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import msgspec
from msgspec import inspect

Draw = Callable[[], object]
"""Draws the value of a setting whose type alone does not suffice."""

_PLAIN_TEXTS = ("", "topic", "all", "broker", "a", "ä b")


class ScenarioBounds(NamedTuple):
    """The scenario around a value: values must fit it so that a run stays small and delivers events."""

    duration_s: float
    nodes: int
    roles: Sequence[str]
    extreme: bool
    """Whether to draw the bounds of the types as well; the run is short then."""


class ValueGenerator:
    """Draws values of types from one random stream."""

    def __init__(self, rng: Random, around: ScenarioBounds) -> None:
        self._rng = rng
        self._around = around

    def draw_settings(
        self, kind: type[msgspec.Struct], share: float, special: dict[str, Draw] | None = None
    ) -> dict[str, object]:
        """Draw a table for a settings type: all required keys, and about a `share` of the optional ones."""
        info = inspect.type_info(kind)
        assert isinstance(info, inspect.StructType)
        table: dict[str, object] = {}
        for field in info.fields:
            if not field.required and self._rng.random() >= share:
                continue
            if special is not None and field.encode_name in special:
                table[field.encode_name] = special[field.encode_name]()
            else:
                default = None if field.default is msgspec.NODEFAULT else field.default
                value = self.draw_value(field.type, field.encode_name, default)
                if value is not None:
                    table[field.encode_name] = value
        if info.tag_field is not None:
            table[info.tag_field] = info.tag
        return table

    def draw_value(self, kind: inspect.Type, name: str, default: object = None) -> object:
        """Draw a value of a type; None means that the setting is left out."""
        rng = self._rng
        if isinstance(kind, inspect.Metadata):
            return self.draw_value(kind.type, name, default)
        if isinstance(kind, inspect.UnionType):
            options = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
            return self.draw_value(rng.choice(options), name, default)
        if isinstance(kind, inspect.BoolType):
            return rng.random() < 0.5
        if isinstance(kind, inspect.LiteralType):
            return rng.choice(list(kind.values))
        if isinstance(kind, inspect.EnumType):
            return rng.choice([member.value for member in kind.cls])
        if isinstance(kind, inspect.FloatType):
            return self._draw_float(kind, name, default)
        if isinstance(kind, inspect.IntType):
            return self._draw_int(kind, name, default)
        if isinstance(kind, inspect.StrType):
            return self._draw_text(name)
        return self._draw_container(kind, name)

    def _draw_container(self, kind: inspect.Type, name: str) -> object:
        rng = self._rng
        if isinstance(kind, inspect.ListType | inspect.VarTupleType):
            return [self.draw_value(kind.item_type, name) for _ in range(rng.randrange(3))]
        if isinstance(kind, inspect.TupleType):
            return [self.draw_value(one, name) for one in kind.item_types]
        if isinstance(kind, inspect.DictType):
            return {f"k{place}": self.draw_value(kind.value_type, name) for place in range(rng.randrange(3))}
        if isinstance(kind, inspect.StructType):
            return self.draw_settings(kind.cls, 0.5)
        return rng.choice([1, 2.5, "a", True])

    def _draw_text(self, name: str) -> str:
        if name == "role" or name.endswith("_by"):
            return self._rng.choice([*self._around.roles, *self._around.roles, "all", ""])
        if name == "topic":
            return self._rng.choice(["topic", "topic", "level"])
        if name == "stream_attributes":
            return self._rng.choice(["topic", "name"])
        return self._rng.choice(_PLAIN_TEXTS)

    def _draw_float(self, kind: inspect.FloatType, name: str, default: object) -> float:
        rng, around = self._rng, self._around
        low, high = _find_bounds(kind.ge, kind.gt, kind.le, kind.lt)
        if around.extreme and rng.random() < 0.3:
            edges = [low if kind.gt is None else math.nextafter(low, math.inf)]
            edges.append(high if kind.lt is None else math.nextafter(high, -math.inf))
            return rng.choice(edges)
        if high <= 1:
            return rng.choice(
                [low if kind.gt is None else high / 2, high if kind.lt is None else 0.9 * high, rng.random() * high]
            )
        if name.endswith("_s") and rng.random() < 0.9:
            # Short periods would make runs slow; with long ones little would happen.
            least = max(low, 0.0 if around.extreme else around.duration_s / 200, 1e-3)
            return _draw_log_uniform(rng, least, max(least, min(high, around.duration_s * 3)))
        middle = default if isinstance(default, int | float) and 0 < default < math.inf else max(low, 1.0)
        drawn = middle * math.exp(rng.uniform(-3, 3))
        if kind.lt is not None and drawn >= high:
            drawn = math.nextafter(high, -math.inf)
        return min(max(drawn, low if kind.gt is None else math.nextafter(low, math.inf)), high)

    def _draw_int(self, kind: inspect.IntType, name: str, default: object) -> int:
        rng, around = self._rng, self._around
        low, high = (int(bound) for bound in _find_bounds(kind.ge, kind.gt, kind.le, kind.lt))
        low, high = low + (kind.gt is not None), high - (kind.lt is not None)
        if name == "manager":
            return rng.randrange(around.nodes)
        if around.extreme and rng.random() < 0.3:
            return rng.choice([low, high])
        if rng.random() < 0.3:
            return min(high, low + rng.randrange(4))
        middle = default if isinstance(default, int) and default > 0 else max(low, 4)
        return min(high, max(low, round(middle * math.exp(rng.uniform(-3, 1.5)))))


def _find_bounds(ge: float | None, gt: float | None, le: float | None, lt: float | None) -> tuple[float, float]:
    low = next((bound for bound in (ge, gt) if bound is not None), 0)
    high = next((bound for bound in (le, lt) if bound is not None), 1e9)
    return low, high


def _draw_log_uniform(rng: Random, low: float, high: float) -> float:
    return low * math.exp(rng.random() * math.log(high / low)) if high > low > 0 else low


def draw_log_uniform(rng: Random, low: float, high: float) -> float:
    """Draw a number log-uniformly, rounded to three digits."""
    return float(f"{_draw_log_uniform(rng, low, high):.3g}")
