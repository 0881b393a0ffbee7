"""Many runs by one command: the tables of papers, comparisons of your own, searches of hyperparameters."""
