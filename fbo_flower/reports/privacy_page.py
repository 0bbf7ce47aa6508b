"""Write a page per algorithm on what its server learned: amounts, disclosures and possible inferences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fbo_flower.algorithms.algorithm_record import NOTHING
from fbo_flower.algorithms.registry import inference, lookup, meanings
from fbo_flower.reports.summary import disclosures_text, format_bytes
from fbo_flower.storage.files import atomic_file

if TYPE_CHECKING:
    from fbo_flower.study.study import Study

PAGE = "privacy.md"


def write_privacy_page(study: Study, path: Path) -> None:
    """Write the pages of all algorithms of a study into the file `path`."""
    with atomic_file(path, text=True) as stream:
        stream.write(privacy_page(study))


def privacy_page(study: Study) -> str:
    """Return the pages of all algorithms of a study as Markdown."""
    sections = ["\n".join(_section(study, label)) for label in study.algorithms]
    return "# What the server learned\n\n" + "\n\n".join(sections) + "\n"


def _section(study: Study, label: str) -> Iterator[str]:
    run, rounds = study.run(label), study.rounds.where(algorithm=label)
    algorithm = str(run["algorithm"])
    yield f"## {label}" + (f" ({algorithm})" if label != algorithm else "")
    yield ""
    turns = int(run.get("num_agents") or 0) * len(set(rounds["round"].tolist()))
    up, down = (
        f"{_mean(rounds[f'floats_{way}'], turns)} numbers and {_size(rounds[f'bytes_{way}'], turns)} {way}"
        for way in ("up", "down")
    )
    yield f"Per agent and round: {up}, {down}, headers are included in the bytes."
    yield ""
    yield "| what may leave an agent | made from | discloses by design |"
    yield "|---|---|---|"
    least = int(run.get("options", {}).get("secure_sums") or 0)
    names = meanings(algorithm, least)
    for name, said in (names or {}).items():
        yield f"| `{name}`: {said.text} | {said.source} | {said.discloses} |"
    if names is None:
        yield "| not described by what is installed here | unknown | unknown |"
    elif not names:
        yield f"| the number of evaluations that failed | the task | {NOTHING} |"
    trials = len(study.trials.where(algorithm=label))
    if trials:
        yield (
            f"| disclosed beside the algorithm's messages: {trials:,} rows of points and values | "
            "the tasks | points and values |"
        )
    yield ""
    if chosen := disclosures_text(run):
        yield f"What agents disclose beside the algorithm's messages, and who chose it: {chosen}."
        yield ""
    record = lookup(algorithm)
    attack = "secure-sums" if least else None if record is None else record.attack_name
    measured = f" Measured by `python -m studies attack {attack}`." if attack else ""
    yield f"What an honest-but-curious server can infer: {inference(algorithm, least)}{measured}"
    yield ""
    privacy = run.get("privacy")
    if isinstance(privacy, dict) and "sums_made" in privacy:
        yield (
            f"Secure sums of at least {privacy['sums_of_at_least']} agents: {privacy['sums_made']} made of "
            f"{privacy['sums_asked_for']} asked for."
        )
        yield ""
    yield _spent(privacy, bool(trials))


def _spent(privacy: object, disclosed: bool) -> str:
    if not isinstance(privacy, dict) or "delta" not in privacy:
        return "Noise for differential privacy: none, so no epsilon bounds what is learned."
    what = next((key for key in ("releases", "messages") if key in privacy), "releases")
    count = f"{privacy.get(what)} {what}{' of one agent' if what == 'messages' else ''}"
    if privacy.get("epsilon") is None:
        return f"Noise for differential privacy: none was added in {count}, so no epsilon bounds anything."
    if privacy.get("noise_from") == "seed":
        simulated = " Simulated: the noise is drawn from the study's seed and protects nobody."
    else:
        simulated = ""
    caveat = " It bounds what the algorithm sends; it does not cover trials that agents disclose beside it."
    return (
        f"Differential privacy, {privacy['noise']} noise: epsilon {privacy['epsilon']:.3g} at delta "
        f"{privacy['delta']:g} after {count}.{simulated}{caveat if disclosed else ''}"
    )


def _size(column: object, turns: int) -> str:
    return format_bytes(float(np.nansum(np.asarray(column, dtype=np.float64))) / turns) if turns else "-"


def _mean(column: object, turns: int) -> str:
    values = np.asarray(column, dtype=np.float64)
    if not turns or np.isnan(values).all():
        return "-"
    mean = float(np.nansum(values)) / turns
    return f"{mean:,.0f}" if mean >= 10 or math.isclose(mean, round(mean)) else f"{mean:.1f}"
