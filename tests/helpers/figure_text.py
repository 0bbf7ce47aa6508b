"""What is written in a figure, and whether it can be read."""

from itertools import combinations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOLERANCE = 1.0  # pixels


def texts(figure):
    """Return the texts that are drawn: no empty ones, and no labels of ticks beyond an axis's limits."""
    FigureCanvasAgg(figure).draw()  # lays the figure out
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    hidden = set()
    for ax in figure.axes:
        for axis, (low, high) in ((ax.xaxis, sorted(ax.get_xlim())), (ax.yaxis, sorted(ax.get_ylim()))):
            drawn = ax.get_visible() and ax.axison and axis.get_visible()
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                inside = low <= tick.get_loc() <= high
                labels = (tick.label1, tick.label2)
                hidden |= {id(label) for label in labels if not (drawn and inside and label.get_visible())}
        if not ax.get_visible() or not ax.axison:
            hidden |= {id(text) for text in (ax.xaxis.label, ax.yaxis.label)}
    return [text for text in shown if id(text) not in hidden]


def unreadable(figure, *, covered=True):
    """Return the texts that leave the figure's bounds, and the pairs of texts that cover each other.

    Parameters
    ----------
    covered : whether pairs count; only upright ones do, because the boxes of slanted texts are too large
    """
    bounds = Bbox.from_extents(0, 0, figure.bbox.width, figure.bbox.height).padded(_TOLERANCE)
    boxes = [(text, Text.get_window_extent(text)) for text in texts(figure)]  # without arrows
    outside = [
        (text.get_text(),)
        for text, box in boxes
        if not (bounds.x0 <= box.x0 <= box.x1 <= bounds.x1 and bounds.y0 <= box.y0 <= box.y1 <= bounds.y1)
    ]
    upright = [(text.get_text(), box) for text, box in boxes if covered and text.get_rotation() % 90 == 0]
    return outside + [
        (one, other)
        for (one, a), (other, b) in combinations(upright, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > _TOLERANCE and min(a.y1, b.y1) - max(a.y0, b.y0) > _TOLERANCE
    ]
