"""Pieces of HTML. Every text that comes from elsewhere goes through `text`, so that it stays a text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from fbo_flower.errors import printable


def text(value: object, limit: int = 0) -> str:
    """Return a text for HTML and for its attributes: escaped, without control characters.

    Parameters
    ----------
    limit : number of characters after which it is cut; 0: it is not

    >>> text('<script>"x"</script>'), text("a long name", 6)
    ('&lt;script&gt;&quot;x&quot;&lt;/script&gt;', 'a lon…')
    """
    shown = printable(str(value))
    if limit and len(shown) > limit:
        shown = shown[: limit - 1] + "…"
    return html.escape(shown, quote=True)


def table(cells: Mapping[str, Sequence[str]], *, numeric: Iterable[str] = (), caption: str = "") -> str:
    """Return a table, given by column; the cells and headings are HTML already.

    Parameters
    ----------
    numeric : headings whose cells stand at the right
    """
    right = set(numeric)
    kinds = {heading: ' class="n"' if heading in right else "" for heading in cells}
    head = "".join(f'<th scope="col"{kinds[heading]}>{heading}</th>' for heading in cells)
    rows = []
    for row in zip(*cells.values(), strict=True):
        columns = zip(cells, row, strict=True)
        inside = "".join(f"<td{kinds[heading]}>{cell}</td>" for heading, cell in columns)
        rows.append(f"<tr>{inside}</tr>")
    named = f"<caption>{caption}</caption>" if caption else ""
    # a region that scrolls must be reachable by keyboard
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption or "table"}"><table>{named}'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def figures(pictures: Iterable[str]) -> str:
    """Return figures side by side, as many as the window is wide."""
    return f'<div class="figures">{"".join(pictures)}</div>'


def section(identifier: str, title: str, *parts: str) -> str:
    """Return a section with a heading; "" if it has no parts."""
    body = "\n".join(part for part in parts if part)
    return f'<section id="{identifier}"><h2>{title}</h2>\n{body}\n</section>' if body else ""


def paragraph(sentence: str, kind: str = "") -> str:
    """Return a paragraph of a text, which is escaped."""
    return f"<p{f' class={kind!r}' if kind else ''}>{text(sentence)}</p>"


def from_markdown(source: str) -> str:
    r"""Return the HTML of headings, paragraphs, tables and `code` in Markdown; nothing else is interpreted.

    >>> from_markdown("## a\n\nb `c` <d>")
    '<h4>a</h4><p>b <code>c</code> &lt;d&gt;</p>'
    """
    parts: list[str] = []
    for block in re.split(r"\n\s*\n", source.strip()):
        lines = block.splitlines()
        if match := re.fullmatch(r"(#+) (.*)", block):
            level = min(len(match[1]) + 2, 6)
            parts.append(f"<h{level}>{_inline(match[2])}</h{level}>")
        elif len(lines) > 1 and all(line.startswith("|") for line in lines):
            head, _, *rows = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in lines]
            width = len(head)
            columns = zip(*((row + [""] * width)[:width] for row in rows), strict=True)
            cells = dict(
                zip(map(_inline, head), ([_inline(cell) for cell in c] for c in columns), strict=True)
            )
            parts.append(table(cells))
        else:
            parts.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "".join(parts)


def _inline(line: str) -> str:
    line = text(line.strip().replace("\\|", "|"))
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", line)
