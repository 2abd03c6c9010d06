"""Who goes next, and how many: pure decisions."""
