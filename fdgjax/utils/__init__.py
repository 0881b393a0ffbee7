"""What every room may use, and no room's own."""
