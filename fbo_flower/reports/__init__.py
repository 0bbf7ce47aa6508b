"""A study as figures, tables and pages."""
