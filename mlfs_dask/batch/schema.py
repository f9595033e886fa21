"""The JSON schema of a plan, for editors: made from the methods' parameters and the evaluations' settings."""

from __future__ import annotations

from typing import Any

from mlfs_dask.batch.spec import EVALUATION_KEYS, SEED, SETTING_KEYS
from mlfs_dask.evaluation.metrics import METRICS
from mlfs_dask.evaluation.protocols import PROTOCOLS, SETTINGS
from mlfs_dask.evaluation.results import ALL, RANDOM
from mlfs_dask.selection.question import COMMON
from mlfs_dask.selectors import METHODS, get_method
from mlfs_dask.selectors.parameters import Parameter

_SEEDS = SEED.schema
_PRECISION = "^precision_at_[1-9][0-9]*$"
_K = {
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": r"^\s*([1-9][0-9]*|[0-9]*\.?[0-9]+\s*%?|[1-9][0-9]*/[1-9][0-9]*)\s*$"},
        {"const": "auto"},
    ],
    "description": "Features to keep: a count, a share of them (10%, 0.1, 1/6), or auto with methods of one pass.",
}


def plan_schema() -> dict[str, Any]:
    """Return the schema, as plain data (JSON Schema 2020-12); what several methods have stands once, in `$defs`."""
    definitions: dict[str, Any] = {"k": _K, "seed": _SEEDS}
    definitions["params"] = {"properties": {option.key: _parameter(option) for option in COMMON}}
    methods: list[dict[str, Any]] = [{"enum": sorted(METHODS)}]
    methods += [_method(name, definitions) for name in sorted(METHODS)]
    definitions["method"] = {"anyOf": methods}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Plan of mlfs batch",
        "type": "object",
        "additionalProperties": False,
        "required": ["stores", "methods"],
        "properties": {
            "stores": _one_or_more({"anyOf": [{"type": "string", "minLength": 1}, _store()]}),
            "methods": _one_or_more(_of("method")),
            "k": _one_or_more(_of("k")),
            "seeds": _one_or_more(_of("seed")),
            "evaluation": _one_or_more(_evaluation()),
        },
        "$defs": definitions,
    }


def _one_or_more(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "minItems": 1, "items": schema}]}


def _of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{name}"}


def _store() -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["path"],
        "properties": {"path": {"type": "string", "minLength": 1}, "name": {"type": "string", "minLength": 1}},
    }


def _method(name: str, definitions: dict[str, Any]) -> dict[str, Any]:
    selector = get_method(name)
    params: dict[str, Any] = {}
    for option in selector.parameters:
        if option.name != "random_state":
            schema = _parameter(option)
            place = option.key if definitions.setdefault(option.key, schema) == schema else f"{name}.{option.key}"
            definitions[place] = schema
            params[option.key] = _of(place)
    properties: dict[str, Any] = {
        "method": {"const": name},
        "name": {"type": "string", "minLength": 1},
        # Beside a reference `additionalProperties` would refuse what it leads to.
        "params": {"type": "object", **_of("params"), "properties": params, "unevaluatedProperties": False},
        "k": _one_or_more(_of("k")),
    }
    if selector.takes_seed():
        properties["seeds"] = _one_or_more(_of("seed"))
    return {
        "title": selector.title,
        "description": selector.paper,
        "type": "object",
        "additionalProperties": False,
        "required": ["method"],
        "properties": properties,
    }


def _parameter(option: Parameter) -> dict[str, Any]:
    return {**_one_or_more(option.schema), "description": option.help}


def _evaluation() -> dict[str, Any]:
    own: dict[str, dict[str, Any]] = {
        "name": {"type": "string", "minLength": 1},
        "protocol": {"enum": sorted(PROTOCOLS)},
        "subjects": _one_or_more({"enum": [RANDOM, ALL]}),
        "seeds": _one_or_more(_of("seed")),
    }
    assert tuple(own) == EVALUATION_KEYS
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": own | {name: _setting(name) for name in SETTING_KEYS},
    }


def _setting(name: str) -> dict[str, Any]:
    setting = SETTINGS[name]
    schema = setting.schema
    if name == "metrics":
        schema = _one_or_more({"anyOf": [{"enum": sorted(METRICS)}, {"type": "string", "pattern": _PRECISION}]})
    if name == "k_grid":
        schema = _one_or_more({"type": ["string", "number", "null"]})
    return {**schema, "description": setting.help}
