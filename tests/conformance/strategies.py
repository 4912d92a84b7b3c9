"""Random messages, derived from their types: whatever a protocol declares can be drawn, bounds included."""

import math
from typing import TypeVar

import msgspec
from hypothesis import reject, strategies as st
from msgspec import inspect

S = TypeVar("S", bound=msgspec.Struct)

MAX_ITEMS = 6
INT64 = 2**63


def messages(kind: type[S]) -> st.SearchStrategy[S]:
    """Any valid value of a struct type."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    parts = {field.name: _field(field) for field in info.fields}

    def build(values: dict[str, object]) -> S:
        try:
            made = kind(**values)
        except ValueError:
            # A rule that the types cannot tell, such as that a time is finite.
            reject()
        return made

    return st.fixed_dictionaries(parts).map(build)


def _field(field: inspect.Field) -> st.SearchStrategy[object]:
    values = strategy(field.type)
    return st.one_of(st.just(math.inf), values) if field.default == math.inf else values


def strategy(info: inspect.Type) -> st.SearchStrategy[object]:
    """Any valid value of a type, as msgspec describes it."""
    match info:
        case inspect.IntType():
            low = -INT64 if info.ge is None else info.ge
            low = low if info.gt is None else info.gt + 1
            high = INT64 - 1 if info.le is None else info.le
            return st.integers(low, high if info.lt is None else info.lt - 1)
        case inspect.FloatType():
            low_f, high_f = info.ge if info.gt is None else info.gt, info.le if info.lt is None else info.lt
            return st.floats(
                low_f,
                high_f,
                exclude_min=info.gt is not None,
                exclude_max=info.lt is not None,
                allow_nan=False,
                allow_infinity=False,
            )
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.StrType():
            return st.text(min_size=info.min_length or 0, max_size=min(info.max_length or 40, 40))
        case inspect.BytesType():
            return st.binary(min_size=info.min_length or 0, max_size=min(info.max_length or 40, 40))
        case inspect.EnumType():
            return st.sampled_from(list(info.cls))
        case inspect.LiteralType():
            return st.sampled_from(list(info.values))
        case inspect.UnionType():
            return st.one_of(*map(strategy, info.types))
        case inspect.StructType():
            return messages(info.cls)
        case _:
            return _container(info)


def _container(info: inspect.Type) -> st.SearchStrategy[object]:
    match info:
        case inspect.NamedTupleType():
            kind = info.cls
            return st.tuples(*(strategy(field.type) for field in info.fields)).map(lambda values: kind(*values))
        case inspect.TupleType():
            return st.tuples(*map(strategy, info.item_types))
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType() | inspect.FrozenSetType():
            most = min(info.max_length or MAX_ITEMS, MAX_ITEMS)
            items = st.lists(strategy(info.item_type), min_size=info.min_length or 0, max_size=most)
            kinds = {inspect.ListType: list, inspect.SetType: set, inspect.FrozenSetType: frozenset}
            return items.map(kinds.get(type(info), tuple))
        case inspect.DictType():
            # Names are never empty, in any table of carrycast.
            named = isinstance(info.key_type, inspect.StrType)
            keys = st.text(min_size=1, max_size=20) if named else strategy(info.key_type)
            return st.dictionaries(keys, strategy(info.value_type), max_size=MAX_ITEMS)
        case _:
            raise TypeError(f"no strategy for {info}: messages are made of plain values")
