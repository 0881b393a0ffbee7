"""What several writers are made of."""
