# Python runs a module of this name when it starts. This one starts Bloodhound's collector, then runs the one that it hides, if there is one.
import os
import sys

_own = os.path.dirname(os.path.abspath(__file__))
if sys.version_info >= (3, 6):
    import bloodhound_coverage

    bloodhound_coverage.start()
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _own]
_module = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    if getattr(error, "name", "sitecustomize") != "sitecustomize":
        raise
    if _module is not None:
        sys.modules["sitecustomize"] = _module
