"""Learning rates from public values: the tasks, the landscapes that the prior is fitted to, and how it is judged."""
