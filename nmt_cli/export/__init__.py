"""Models written for other engines."""
