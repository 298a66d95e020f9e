"""A shop, for reports of Python's own coverage."""
import sys


def price(name):
    # A comment.
    if name == "never":
        return 0
    return len(name)


def unused():
    return 1


print(sum(price(name) for name in sys.argv))
