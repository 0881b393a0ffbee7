"""fdgjax from Python."""
