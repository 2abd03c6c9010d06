"""The crash matrix: real processes killed or frozen in every window, real servers crashed, and rows that tell.

`make crash` runs all of it, `make crash CRASH_ARGS='--cells after_claim --keep'` a part; the usual test run has one
cell of each group. `cells` is the matrix, `scripts` and `environment` say what happens in a cell, `evidence` is the
checker, and `unfenced` proves that the checker sees what the fence prevents.
"""
