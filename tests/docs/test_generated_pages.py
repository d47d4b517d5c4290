"""Pages of the docs that modules here write; `tests/semconv/test_registry.py` has those of the registry."""

from __future__ import annotations

from tests.docs import answers_page, mistakes_page, redaction_page, settings_page


def test_the_settings_are_up_to_date() -> None:
    """`docs/reference/settings.md` is what `python -m tests.docs.settings_page` writes."""
    assert settings_page.PAGE.read_text() == settings_page.page()


def test_the_tables_of_redaction_are_up_to_date() -> None:
    """`docs/reference/redaction.md` is what `python -m tests.docs.redaction_page` writes."""
    text = redaction_page.PAGE.read_text()

    assert redaction_page.page(text) == text


def test_the_mistakes_are_up_to_date() -> None:
    """`docs/reference/mistakes.md` is what `python -m tests.docs.mistakes_page` writes, from runs of each line."""
    assert mistakes_page.PAGE.read_text() == mistakes_page.page()


def test_the_schemas_of_answers_are_up_to_date() -> None:
    """`docs/reference/answers.md` and its schemas are what `python -m tests.docs.answers_page` writes."""
    files = [answers_page.PAGE, *answers_page.SCHEMAS.iterdir()]

    assert {file: file.read_text() for file in files} == answers_page.pages()
