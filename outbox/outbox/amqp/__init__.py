"""The broker connection that relay and consumer both need: parameters, errors in one line, and connecting again.

The writing side never imports this package, and the base install does not bring pika.
"""
