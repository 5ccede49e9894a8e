"""The teaching material: proofs that run, claims checked, practice."""
