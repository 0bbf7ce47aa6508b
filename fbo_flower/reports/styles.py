"""Colours and line styles of algorithms in pictures, from their records.

The colours are those of Okabe and Ito, which most colour-blind readers can tell apart; line styles tell the
algorithms apart in print. Tuning alone is dashed.
"""

from __future__ import annotations

from zlib import crc32

from fbo_flower.algorithms import PlotStyle
from fbo_flower.algorithms.registry import lookup
from fbo_flower.study.study import Study

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a")
SPARE = [PlotStyle(colour, line) for line in ("-", "-.", ":", "--") for colour in _COLOURS]


def algorithm_style(name: str) -> PlotStyle:
    """Return the style of an algorithm's record; without one, a style that depends on the name alone.

    >>> algorithm_style("fts")
    PlotStyle(color='#0072B2', line='-')
    >>> algorithm_style("unheard-of") == algorithm_style("unheard-of")
    True
    """
    record = lookup(name)
    return (
        SPARE[crc32(name.encode()) % len(SPARE)] if record is None or record.style is None else record.style
    )


def study_styles(study: Study) -> dict[str, PlotStyle]:
    """Return a style of its own for every label: its algorithm's, else the first one that is still free."""
    styles: dict[str, PlotStyle] = {}
    for label in study.algorithms:
        style = algorithm_style(str(study.run(label).get("algorithm", label)))
        if style not in styles.values():
            styles[label] = style
    for label in study.algorithms:
        if label not in styles:
            taken = list(styles.values())
            styles[label] = next((style for style in SPARE if style not in taken), SPARE[0])
    return {label: styles[label] for label in study.algorithms}
