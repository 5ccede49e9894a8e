"""Small numpy programs that do what the formulas describe, so that tests can check the formulas.

Nothing here imports the formulas: a number that agrees with them was counted, not derived.
"""
