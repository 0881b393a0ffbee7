"""Many runs by one command."""
