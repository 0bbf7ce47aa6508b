"""Functions of arrays: no state, no Flower. Float64 throughout; points are rows."""
