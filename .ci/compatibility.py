"""Try fbo-flower with other versions of Flower, and print a table of what works.

    python .ci/compatibility.py [--flower 1.41.0 1.42.0] [--newest] [--directory runs/compatibility]

Each version gets an environment of its own, with this checkout and its development tools. A row of the table
is a part of the test suite. `docs/compatibility.md` has the table of the last release.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "messages and their checks": ["tests/wire"],
    "agents": ["tests/clients"],
    "strategies; engines `inline`, `ray` and `flower`": ["tests/strategies", "tests/simulation"],
    "tuning other Flower apps": ["tests/federated"],
    "the bundled app; `fbo-flower run`": ["tests/app", "tests/e2e"],
    "command line": ["tests/cli"],
    "TLS, three SuperNodes, kills": ["tests/e2e", "-m", "deployment"],
}


def pip(environment: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run pip in an environment."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def installed(version: str, directory: Path) -> tuple[Path, str, str]:
    """Return an environment with a version of Flower ("": the newest), that version, and a remark."""
    environment = directory / f"flower-{version or 'newest'}"
    if not (environment / "bin" / "python").exists():
        venv.create(environment, with_pip=True)
    wanted = f"flwr=={version}" if version else "flwr"
    done, remark = pip(environment, "install", "--editable", ".[dev]"), ""
    if not done.returncode:
        done = pip(environment, "install", "--upgrade", wanted)
        if done.returncode:  # an index may lack what the newest Flower needs
            remark = "with the other packages of Flower 1.41"
            done = pip(environment, "install", "--upgrade", "--no-deps", wanted)
    if done.returncode:
        raise SystemExit(f"flwr {version}: {done.stderr.strip()}")
    listed = subprocess.run(
        [str(environment / "bin" / "python"), "-m", "pip", "list", "--format=json"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (found,) = [package["version"] for package in json.loads(listed) if package["name"] == "flwr"]
    return environment, found, remark


def tried(environment: Path, words: list[str]) -> str:
    """Run a part of the test suite and return what came of it in a few words."""
    command = [str(environment / "bin" / "python"), "-m", "pytest", "-n", "2", "--dist", "loadgroup", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(("FAILED", "ERROR")):
            print("   ", line, file=sys.stderr)
    *_, last = done.stdout.splitlines()
    counts = {what: int(number) for number, what in re.findall(r"(\d+) (passed|failed|error)", last)}
    bad = counts.get("failed", 0) + counts.get("error", 0)
    print(f"    {last}", file=sys.stderr)
    return (
        f"{bad} of {bad + counts.get('passed', 0)} fail"
        if bad
        else "pass"
        if "passed" in counts
        else "not run"
    )


def main() -> int:
    """Print the table; return 1 if anything fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--flower", nargs="*", default=[], help="versions of Flower")
    parser.add_argument("--newest", action="store_true", help="the newest on the package index as well")
    parser.add_argument("--directory", type=Path, default=ROOT / "runs" / "compatibility")
    parser.add_argument("--skip", nargs="*", default=[], help="parts to leave out, by a word in their names")
    given = parser.parse_args()
    versions = [*given.flower, *([""] if given.newest else [])]
    if not versions:
        parser.error("expected versions of Flower, or --newest")
    columns = {}
    for version in versions:
        environment, found, remark = installed(version, given.directory.absolute())
        heading = f"flwr {found}" + (f", {remark}" if remark else "")
        columns[heading] = {}
        for part, words in PARTS.items():
            if not any(word in part for word in given.skip):
                columns[heading][part] = tried(environment, words)
                print(f"{heading}: {part}: {columns[heading][part]}", file=sys.stderr)
    print("| what | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * len(columns))
    for part in PARTS:
        row = [results.get(part, "not tried") for results in columns.values()]
        print(f"| {part} | " + " | ".join(row) + " |")
    return int(any("fail" in result for results in columns.values() for result in results.values()))


if __name__ == "__main__":
    raise SystemExit(main())
