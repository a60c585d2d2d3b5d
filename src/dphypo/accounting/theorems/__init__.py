"""The theorems behind the accountant, one statement a file. docs/theory.md has the proofs."""
