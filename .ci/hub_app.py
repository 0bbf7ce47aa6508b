"""Write the bundled app as a directory that can be published on Flower Hub.

    python .ci/hub_app.py build/hub/tuning --publisher NAME
    flwr login; flwr app publish build/hub/tuning

The directory holds the app's code with the parts of fbo-flower that agents and the server need, so it depends
on no package of ours. `NAME` is the account at Flower Hub.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

import tomli_w
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]")  # Flower allows 32 characters
NOT_NEEDED = {"click", "typer", "tomli-w", "packaging"}  # only the command line uses them


def config_table(text: str) -> str:
    """Return the app's settings with their comments in pyproject.toml, as a table."""
    lines = text.split("[tool.flwr.app.config]\n")[1].split("\n[", maxsplit=1)[0].splitlines()
    rows = [re.fullmatch(r"([\w-]+) = (.*?)\s+# (.*)", line) for line in lines if line]
    cells = [row.groups() for row in rows if row]
    table = [f"| `{key}` | `{value}` | {meaning} |" for key, value, meaning in cells]
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *table])


def project(text: str, name: str, publisher: str) -> dict[str, Any]:
    """Return the app's pyproject.toml, made from that of the package."""
    ours = tomllib.loads(text)
    package, app = ours["project"], ours["tool"]["flwr"]["app"]
    return {
        "build-system": ours["build-system"],
        "project": {
            "name": name,
            "version": package["version"],
            "description": package["description"],
            "readme": "README.md",
            "license": package["license"],
            "requires-python": package["requires-python"],
            "dependencies": [r for r in package["dependencies"] if Requirement(r).name not in NOT_NEEDED],
        },
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": ["fbo_flower"]}}}},
            "flwr": {
                "app": {**{key: app[key] for key in app if key != "fab-exclude"}, "publisher": publisher}
            },
        },
    }


README = """# {name}

Hyperparameter tuning on nodes that cannot pool their data. {description} Each node evaluates
configurations on its own rows; only what its algorithm needs leaves it, and `node-config` of a node
decides what else may.

## Try it

Simulate 20 agents that tune a support vector machine, each on its own share of handwritten digits:

```bash
flwr new @{publisher}/{name}
cd {name}
pip install -e .
flwr run . --stream
```

Another algorithm and problem:

```bash
flwr run . --stream -c "algorithm='fed-ei' problem='digits-svm' num-rounds=20"
```

## Settings

{table}

To tune your own objective, write `client_app(objective, space)` in a ClientApp of your own.

## Licence

See the file LICENSE.
"""


def write(directory: Path, publisher: str) -> int:
    """Write the app and return its number of files."""
    name = directory.name
    for what, value in (("directory", name), ("--publisher", publisher)):
        if not NAME.fullmatch(value):
            raise SystemExit(f"{what}: expected 2 to 32 of a-z, 0-9 and -, a letter first, got {value!r}")
    if directory.exists() and any(directory.iterdir()):
        raise SystemExit(f"directory: expected a new or empty one, got {directory}")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    excluded = tomllib.loads(text)["tool"]["flwr"]["app"]["fab-exclude"]
    left_out = {pattern.removeprefix("/").removesuffix("/**") for pattern in excluded}
    for path in sorted((ROOT / "fbo_flower").rglob("*.py")):
        inside = path.relative_to(ROOT)
        if not any(inside.is_relative_to(part) for part in left_out):
            (directory / inside).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, directory / inside)
    shutil.copy(ROOT / "LICENSE", directory / "LICENSE")
    made = project(text, name, publisher)
    (directory / "pyproject.toml").write_text(tomli_w.dumps(made), encoding="utf-8")
    filled = {"description": made["project"]["description"], "table": config_table(text)}
    (directory / "README.md").write_text(
        README.format(name=name, publisher=publisher, **filled), encoding="utf-8"
    )
    return sum(path.is_file() for path in directory.rglob("*"))


def main() -> None:
    """Write the app."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory", type=Path, help="its last part is the app's name")
    parser.add_argument("--publisher", required=True, help="your account at Flower Hub")
    given = parser.parse_args()
    number = write(given.directory, given.publisher)
    print(
        f"{number} files in {given.directory}; publish: flwr app publish {given.directory}", file=sys.stderr
    )


if __name__ == "__main__":
    main()
