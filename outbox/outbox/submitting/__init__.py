"""The writing side: from payloads and options to rows, in a transaction of the caller's."""
