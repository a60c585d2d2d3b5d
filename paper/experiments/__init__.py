"""What is computed and trained: the tables of the paper, and our own evidence."""
