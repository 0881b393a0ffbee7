"""Where images come from: folders, builders, arrays; decoded once and kept in the cache."""
