"""This project as a contender, and the bare measures that it is held against."""
