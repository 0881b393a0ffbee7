"""What clusters are given to run, and the curves that are kept with the project."""
