"""How attempts end: which end each has, and how it is written."""
