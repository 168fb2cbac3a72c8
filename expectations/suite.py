"""Great Expectations at work: tables of metrics in, a judgement per rule and one Data Docs page per table out.

The context is ephemeral: nothing is written outside, no store has to be set up, nothing is sent anywhere.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import polars as pl

from expectations.rules import Rule, Table
from model.visible import escape

log = logging.getLogger(__name__)
EXAMPLES = 5


@dataclass(frozen=True)
class Judgement:
    """One rule held against one table."""

    table: str
    sentence: str
    success: bool
    expected: str
    observed: str
    expectation: str
    column: str
    why: str
    remedy: str
    rows: tuple[str, ...] = ()
    """The rows of the table (domains, sources, files) that failed."""
    examples: tuple[dict[str, Any], ...] = field(default=())
    """A few of the records behind the failure."""

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "rows": list(self.rows), "examples": list(self.examples)}


def validate(tables: Sequence[Table], run: str) -> tuple[list[Judgement], dict[str, str]]:
    """Judge `tables` with Great Expectations; returns the judgements in the order of the rules, and for each table
    the HTML of its validation page as Great Expectations renders it. `run` names the run on those pages."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read when the context is made: nothing is to leave the machine
    import great_expectations as gx
    import great_expectations.expectations as gxe
    from great_expectations.core.run_identifier import RunIdentifier
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )
    from great_expectations.render.renderer import ValidationResultsPageRenderer

    stores = InMemoryStoreBackendDefaults(init_temp_docs_sites=False)  # or every context leaves a temporary folder
    context = gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            store_backend_defaults=stores, progress_bars=ProgressBarsConfig(globally=False), analytics_enabled=False
        ),
    )
    source = context.data_sources.add_pandas("metrics")
    judgements: list[Judgement] = []
    pages: dict[str, str] = {}
    for table in tables:
        expectations = []
        for rule in table.rules:
            name, arguments = rule.expectation()
            if rule.among:
                arguments["value_set"] = [escape(value) for value in rule.among]
            notes = f"{rule.sentence}: expected {rule.expected(table)}. Why: {rule.why}."
            # Great Expectations puts descriptions and values into its page as they are: what it is given is escaped.
            expectations.append(getattr(gxe, name)(**arguments, description=escape(notes)))
        suite = context.suites.add(gx.ExpectationSuite(table.name, expectations=expectations))
        batch = source.add_dataframe_asset(table.name).add_batch_definition_whole_dataframe("metrics")
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=table.name, data=batch, suite=suite)
        )
        shown = [
            pl.Series(column.name, [value if value is None else escape(value) for value in column], pl.String)
            for column in table.frame
            if column.dtype == pl.String
        ]
        result = definition.run(
            batch_parameters={"dataframe": table.frame.with_columns(shown).to_pandas()},
            result_format={"result_format": "COMPLETE", "unexpected_index_column_names": [table.key]},
        )
        outcomes = {str(getattr(outcome.expectation_config, "description", "")): outcome for outcome in result.results}
        for rule, expectation in zip(table.rules, expectations, strict=True):
            outcome = outcomes[expectation.description]
            error = (outcome.exception_info or {}).get("exception_message")
            if error:
                raise RuntimeError(f"Great Expectations could not evaluate '{rule.sentence}': {error}")
            judgements.append(_judgement(table, rule, bool(outcome.success), outcome.result))
        # Same data, same page: the time of the judgement is no part of it. A name of digits alone, as one fingerprint
        # in two thousand is, would be read as a date and end in an OverflowError.
        result.meta["run_id"] = RunIdentifier(run_name=f"run {run}", run_time=dt.datetime(1970, 1, 1, tzinfo=dt.UTC))
        pages[table.name] = _view().render(ValidationResultsPageRenderer().render(result))
    return judgements, pages


@cache
def _view() -> Any:
    """Great Expectations' pages. One for all: each compiles its templates, which takes a third of a judgement."""
    from great_expectations.render.view import DefaultJinjaPageView

    return DefaultJinjaPageView()


def _judgement(table: Table, rule: Rule, success: bool, result: dict[str, Any]) -> Judgement:
    rows: list[str] = []
    examples: list[dict[str, Any]] = []
    observed = rule.observed(table)
    if not success:
        failed = {str(place[table.key]) for place in result.get("unexpected_index_list") or []}
        names = table.frame[table.key].cast(pl.String).to_list()
        rows = sorted({str(name) for name in names if escape(str(name)) in failed})
        if rows and table.frame.height > 1:
            failing = table.frame.filter(pl.col(table.key).cast(pl.String).is_in(rows))
            narrow = Table(table.name, table.title, table.key, failing, ())
            observed = rule.observed(narrow) if failing.height > 1 else f"{rows[0]} {rule.observed(narrow)}"
        if rule.examples is not None:
            examples = rule.examples.head(EXAMPLES).collect().to_dicts()
    return Judgement(
        table=table.name,
        sentence=rule.sentence,
        success=success,
        expected=rule.expected(table),
        observed=observed,
        expectation=rule.expectation()[0],
        column=rule.column,
        why=rule.why,
        remedy=rule.remedy,
        rows=tuple(rows),
        examples=tuple(examples),
    )
