"""Why is it not running? What decides it is read once; the answer is a pure function of that."""
