"""Pure functions of arrays, independent of Flower. All reals are float64; points are rows."""
