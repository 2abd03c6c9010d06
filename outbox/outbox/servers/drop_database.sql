-- {name} is a quoted identifier. FORCE (PostgreSQL 13 and later) ends what is still connected.
DROP DATABASE IF EXISTS {name} WITH (FORCE)
