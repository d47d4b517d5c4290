"""Pages of the docs that modules here write; `tests/semconv/test_registry.py` has those of the registry."""

from __future__ import annotations

import click

from otel_rl.cli import main
from tests.docs import answers_page, concepts_page, mistakes_page, redaction_page, settings_page


def test_the_settings_are_up_to_date() -> None:
    """`docs/reference/settings.md` is what `python -m tests.docs.settings_page` writes."""
    assert settings_page.PAGE.read_text() == settings_page.page(), "run: python -m tests.docs.settings_page"


def test_the_tables_of_redaction_are_up_to_date() -> None:
    """`docs/reference/redaction.md` is what `python -m tests.docs.redaction_page` writes."""
    text = redaction_page.PAGE.read_text()

    assert redaction_page.page(text) == text, "run: python -m tests.docs.redaction_page"


def test_the_table_of_concepts_is_up_to_date() -> None:
    """Each concept has a function that exists, modules that call it, and views that print what it returns."""
    text = concepts_page.PAGE.read_text()

    assert concepts_page.page(text) == text, "run: python -m tests.docs.concepts_page"
    for concept in concepts_page.CONCEPTS:
        assert all(map(concepts_page.exists, concept.functions)), concept
        assert concepts_page.computing(concept), concept
        assert concepts_page.printing(concept), concept


def test_the_mistakes_are_up_to_date() -> None:
    """`docs/reference/mistakes.md` is what `python -m tests.docs.mistakes_page` writes, from runs of each line."""
    assert mistakes_page.PAGE.read_text() == mistakes_page.page(), "run: python -m tests.docs.mistakes_page"


def test_the_schemas_of_answers_are_up_to_date() -> None:
    """`docs/reference/answers.md` and its schemas are what `python -m tests.docs.answers_page` writes."""
    files = [answers_page.PAGE, *answers_page.SCHEMAS.iterdir()]

    assert {file: file.read_text() for file in files} == answers_page.pages(), "run: python -m tests.docs.answers_page"


def test_each_verb_with_an_answer_has_a_schema() -> None:
    """Each verb with the options `--json/--text` that help shows is in `COMMANDS` of answers_page, and no other one."""
    context = click.Context(main)
    every = [verb for name in main.list_commands(context) if (verb := main.get_command(context, name))]
    verbs = [verb for verb in every if not verb.hidden]
    answering = {verb.name for verb in verbs if any("--text" in option.secondary_opts for option in verb.params)}

    assert answering == {*answers_page.COMMANDS}
