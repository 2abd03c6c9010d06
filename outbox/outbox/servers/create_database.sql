-- {name} is a quoted identifier. template0 is never connected to, so creations do not wait for each other's clients.
CREATE DATABASE {name} TEMPLATE template0
