"""Figures, tables and pages that show a study."""
