"""The spec of a trial: the options that it was created from, by name, as they are typed.

The names are those of the table in options.py. Some have a second name after a dot:
`set.work_mem`, `define.hot`, `latency_limit.by_fk1`, `background.reporting.rate`. A spec is stored
with its trial, has no password, and repeats the trial with `--like RUN`.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

from pgpaces.core.errors import PlanError
from pgpaces.spec import levels
from pgpaces.spec.design import Target
from pgpaces.spec.draft import Draft
from pgpaces.spec.options import BY_NAME, FACTORS, replaced

Spec = Mapping[str, Any]
# Names of a spec that are not in the table: what runs, and the goal.
_WHAT = ("workload", "files", "from_database", "missed", "command", "input", "rows")
# Names that --like ignores.
_LEFT_OUT = frozenset(("costs", "on_store_error", "fresh"))
# Options whose values are NAME=VALUE texts. The name is empty for all scripts or nodes.
_PAIRS = ("latency_limit", "node", "define", "set", "server_set", "target_node")
# Options of one run, which an experiment does not have.
_OF_A_RUN = ("own", "on_connect", "command")


def values(spec: Spec) -> dict[str, Any]:
    """The values of options as `pgpaces run` has them, without defaults; of several, a tuple.

    Raises PlanError for an option that this version does not have.
    """
    found: dict[str, Any] = {}
    background: dict[str, dict[str, Any]] = {}
    for name, value in ((n, v) for n, v in spec.items() if n not in _LEFT_OUT):
        option, _, rest = name.partition(".")
        known = BY_NAME.get(option)
        if name in _WHAT:
            found[name] = tuple(value) if isinstance(value, list) else value
        elif known is None:
            raise PlanError("stored-option-unknown", option=name)
        elif option == "background":
            of, _, key = rest.partition(".")
            background.setdefault(of, {})[key] = value
        elif known.several:
            found[option] = (*found.get(option, ()), _text(option, rest, value))
        elif value != known.default:
            found[name] = value
    if "command" in spec or ("files" in spec and "workload" not in spec):
        found.pop("scripts", None)  # the files have the weights
    if background:
        found["background"] = tuple(_background(of, own) for of, own in background.items())
    return found


def _text(option: str, name: str, value: Any) -> str:
    if option == "scripts":
        return f"{name}@{value}"
    return f"{name}={value}" if name and option in _PAIRS else str(value)


def _background(name: str, spec: Spec) -> str:
    """A background workload as the option takes it."""
    scripts = [f"{key.partition('.')[2]}@{spec[key]}" for key in spec if key[:8] == "scripts."]
    own = {"workload": spec["workload"]}
    if own["workload"].endswith(".sql"):
        scripts = []
    for key, value in {**spec, **({"scripts": " ".join(scripts)} if scripts else {})}.items():
        family, dot, _ = key.partition(".")
        named = dot and family in ("define", "latency_limit", "node")
        if named or (key in FACTORS and not FACTORS[key].whole):
            own[key] = levels.text(value).replace(",", "\\,")
    return shlex.join((name, *(f"{key}={value}" for key, value in own.items())))


def over(spec: Spec, typed: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a spec with the typed ones in their place; NAME=VALUE replaces its name."""
    gone = replaced(typed)
    merged = {name: value for name, value in values(spec).items() if name not in gone}
    for name, value in typed.items():
        if name in _PAIRS or name == "background":
            keys = {_key(name, text) for text in value}
            kept = (each for each in merged.get(name, ()) if _key(name, each) not in keys)
            merged[name] = (*kept, *value)
        else:
            merged[name] = value
    return merged


def _key(option: str, text: str) -> str:
    head, separator, _ = text.partition(" " if option == "background" else "=")
    return head if separator or option == "background" else ""


def draft(spec: Spec) -> Draft:
    """The experiment of one cell with the load of a spec. Raises PlanError."""
    known = values(spec)
    for name in _OF_A_RUN:
        if name in known:
            raise PlanError("only-of-a-run", option=f"--{name.replace('_', '-')}")
    own = levels.backgrounds(known.get("background", ()))
    for name, value in known.items():
        if name in _PAIRS[:2]:
            pairs = (text.rpartition("=") for text in value)
            own |= {f"{name}.{key}" if key else name: (each,) for key, _, each in pairs}
        elif name in ("define", "set", "server_set"):
            pairs = (text.partition("=") for text in value)
            own |= {f"{name}.{key}": (each,) for key, _, each in pairs}
        elif name == "scripts":
            own[name] = (" ".join(value),)
        elif name in FACTORS and name != "target":
            own[name] = (levels.text(value),)
    targets: Collection[Target] = ()
    if dsn := known.get("target"):
        nodes = dict(text.split("=", 1) for text in known.get("target_node", ()))
        observe = known.get("observe_command")
        targets = (Target(name="target", dsn=dsn, observe_command=observe, nodes=nodes),)
        own["target"] = ("target",)
    workload = known.get("workload")
    return Draft(
        name=(workload or "").strip("./").replace("/", "-"),
        workload=workload,
        files=tuple(known.get("files", ())),
        from_database=known.get("from_database"),
        seed=known.get("seed", 1),
        levels=own,
        targets=tuple(targets),
        **({"missed_max": spec["missed"]} if "missed" in spec else {}),
    )
