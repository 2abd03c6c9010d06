"""From owed to released, and back where a hint came to nothing."""
