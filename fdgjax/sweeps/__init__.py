"""Many runs by one command: the tables of papers, and comparisons of your own."""
