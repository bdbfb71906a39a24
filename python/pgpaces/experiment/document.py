"""An experiment as it is stored, and back: plain values, without a password in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from pgpaces import database
from pgpaces.design import Experiment
from pgpaces.errors import StoreError
from pgpaces.generators import engine as generator
from pgpaces.plan import without_secrets


def write(experiment: Experiment, command: str, workload_hash: str) -> dict[str, Any]:
    """The document. command: what was typed to run it. workload_hash: of data and scripts."""
    targets = tuple(replace(t, dsn=_without_password(t.dsn)) for t in experiment.targets)
    original = experiment.from_database
    if original is not None and database.is_dsn(original):
        original = _without_password(original)
    stored = replace(experiment, targets=targets, from_database=original)
    return {"experiment": asdict(stored), "command": command, "workload_hash": workload_hash}


def _without_password(dsn: str) -> str:
    """With what the DSN says, written out; only the password is left for a password file."""
    keywords = without_secrets(generator.resolve(dsn).keywords)
    spent = {"service", "servicefile", "fallback_application_name"}
    words = (f"{k}={_quoted(v)}" for k, v in keywords.items() if k not in spent)
    return " ".join(words)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def read(document: Mapping[str, Any]) -> Experiment:
    """The experiment of a document. Raises StoreError where it cannot be one."""
    from pydantic import TypeAdapter, ValidationError

    try:
        found: Experiment = TypeAdapter(Experiment).validate_python(document["experiment"])
    except (ValidationError, KeyError, TypeError) as error:
        raise StoreError(f"the stored experiment is damaged: {error}") from None
    return found
