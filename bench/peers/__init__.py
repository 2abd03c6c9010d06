"""The contenders that are not ours: one small file each, at its best documented settings."""
