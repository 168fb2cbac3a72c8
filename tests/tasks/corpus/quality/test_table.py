"""The documentation lists the rules as they are, and every rule is on a route."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.code import closure
from tasks.corpus.quality import rules, table
from tasks.corpus.quality.route import registry

HOUSE = Path(__file__).parents[4]


def test_the_documentation_lists_the_rules_as_they_are():
    document = (HOUSE / "docs/corpus/rules.md").read_text(encoding="utf-8")
    assert table.renewed(document) == document, "run: python -m tasks.corpus.quality.table docs/corpus/rules.md"


def test_a_document_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="has no place for the table"):
        table.renewed("# Rules")


def test_every_rule_is_on_a_route():
    families = [family for family in vars(rules).values() if isinstance(family, tuple)]
    assert {rule.name for family in families for rule in family} == set(registry())


def test_the_rules_are_part_of_the_code_that_a_corpus_records():
    assert "tasks.corpus.quality.rules" in closure("tasks.corpus.partition")
