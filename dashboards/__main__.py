"""The command `python -m dashboards`, which generates files from the registry, `boards/` and `alerts.yaml`."""

from __future__ import annotations

from pathlib import Path

from dashboards import boards, rules

_HERE = Path(__file__).parent


def outputs() -> dict[Path, str]:
    """Return the content of each generated file, by its path."""
    all_rules = rules.read()
    made = {_HERE / "grafana" / f"{name}.json": boards.grafana_json(board) for name, board in boards.boards().items()}
    made[_HERE / "rules" / "otel-rl.yml"] = rules.prometheus_rules(all_rules)
    made[_HERE.parent / "deploy" / "kubernetes" / "rules.yaml"] = rules.kubernetes_rules(all_rules)
    made[_HERE.parent / "docs" / "how-to" / "runbook.md"] = rules.runbook(all_rules)
    return made


if __name__ == "__main__":
    for path, text in outputs().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
