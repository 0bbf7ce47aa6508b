"""Figures, tables and pages that show a study; `Study` imports `plot` and `write_html_page` from here."""

from typing import TYPE_CHECKING

from fbo_flower.lazy import lazily

if TYPE_CHECKING:
    from fbo_flower.reports.figures import plot
    from fbo_flower.reports.page import write_html_page

__all__ = ["plot", "write_html_page"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, {"plot": "figures", "write_html_page": "page"})
