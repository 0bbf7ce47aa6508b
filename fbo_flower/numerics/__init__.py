"""Pure functions of arrays, independent of Flower. All reals are float64; points are rows.

An argument of another shape or out of its range raises ConfigError, which names it.
"""
