"""Where images come from: folders, rotated digits, arrays; decoded once and kept in the cache."""
