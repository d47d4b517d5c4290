"""The rules of OpenTelemetry's registries, as Weaver and its policies check them, without Weaver."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from opentelemetry.semconv.schemas import Schemas

import otel_rl
from otel_rl import semconv
from otel_rl.semconv import registry
from tests.semconv.test_conventions import standard_attributes

ROOT = Path(otel_rl.__file__).parents[1]
TYPES = re.compile(r"(string|int|double|boolean)(\[\])?|any")
PYTHON = {"string": str, "int": int, "double": float, "boolean": bool}


def test_every_group_has_a_stability_and_a_brief() -> None:
    """A brief is a sentence."""
    lacking = [group.id for group in registry.groups() if not group.stability or not group.brief.endswith(".")]

    assert lacking == []


def test_every_span_has_a_kind() -> None:
    """Nothing else has one."""
    assert {group.span_kind for group in registry.groups() if group.type == "span"} == {"internal"}
    assert {group.span_kind for group in registry.groups() if group.type != "span"} == {""}


def test_attributes_of_opentelemetry_are_references() -> None:
    """otel-rl defines `rl.*` alone; what OpenTelemetry has is referred to, so that both can be used together."""
    names = registry.attributes()

    assert {name for name, attribute in names.items() if attribute.id} == {n for n in names if n.startswith("rl.")}
    assert {name for name, attribute in names.items() if attribute.ref} <= standard_attributes()


@pytest.mark.parametrize("attribute", registry.attributes().values(), ids=lambda attribute: attribute.name)
def test_an_attribute_is_described(attribute: registry.Attribute) -> None:
    """It has a type that OpenTelemetry knows, a brief, and examples of that type; otel-rl's own have a stability."""
    assert TYPES.fullmatch(attribute.value_type)
    assert attribute.brief.endswith(".")
    assert attribute.examples
    assert bool(attribute.stability) == bool(attribute.id)
    kind = PYTHON.get(attribute.value_type.removesuffix("[]"), str)
    listed = attribute.value_type.endswith("[]")
    values = [one for example in attribute.examples for one in (example if listed else [example])]
    assert {type(value) for value in values} == {kind}


def test_no_attribute_is_the_namespace_of_another() -> None:
    """A back end that stores attributes as nested objects can hold both."""
    names = registry.attributes()

    assert [(name, other) for name in names for other in names if other.startswith(f"{name}.")] == []


def test_a_metric_is_the_namespace_of_another_by_exception_only() -> None:
    """An exception is for a name of genai#88, which otel-rl cannot change; OpenTelemetry's policies read it."""
    metrics = registry.metrics()
    inside = {name for name in metrics for other in metrics if name.startswith(f"{other}.")}

    assert {name for name, metric in metrics.items() if "metric_namespace_collision" in metric.exceptions} == inside
    assert {metrics[name].source for name in inside} == {"genai#88"}


def test_the_manifest_says_who_this_is_and_what_it_refers_to() -> None:
    """Schema URLs end in a version; the own one is of this release, and is below the site of the documentation."""
    manifest = registry.manifest()
    site = re.search(r"site_url: (\S+)", (ROOT / ".mkdocs.yml").read_text())

    assert site is not None
    assert manifest["schema_url"] == f"{site[1]}schemas/{otel_rl.__version__}" == semconv.SCHEMA_URL
    assert set(manifest) == {"schema_url", "description", "stability", "dependencies"}
    for dependency in manifest["dependencies"]:
        schema, path = dependency["schema_url"], dependency["registry_path"]
        assert re.fullmatch(r"https://opentelemetry\.io/schemas/([a-z-]+/)?\d+\.\d+\.\d+(-dev)?", schema)
        assert re.fullmatch(r"https://github\.com/[\w-]+/[\w-]+\.git@[\w.]+\[model\]", path)


def test_the_dependency_is_a_version_that_exists() -> None:
    """OpenTelemetry's package lists the versions of its conventions; the tag is of the same version."""
    core = registry.manifest()["dependencies"][0]

    assert core["schema_url"] in {schema.value for schema in Schemas}
    assert f"@v{core['schema_url'].rpartition('/')[2]}[" in core["registry_path"]


def test_the_schema_url_leads_to_a_schema_file() -> None:
    """The site of the documentation has it: the format of OpenTelemetry, with all versions up to this one."""
    url = urlsplit(semconv.SCHEMA_URL)
    version = url.path.rpartition("/")[2]
    file = msgspec.yaml.decode((ROOT / "docs" / "schemas" / version).read_bytes(), type=dict[str, object])

    assert (file["file_format"], file["schema_url"]) == ("1.1.0", semconv.SCHEMA_URL)
    assert version in file["versions"]  # type: ignore[operator]
