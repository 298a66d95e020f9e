"""Writes which lines of Python code run, as Bloodhound collects them.

A line is written when it runs for the first time, so a process that is killed has lost nothing. Each record is one line of text:

    F number path               a source file
    C number line name lines    a code object of it: its first line, its name if it is a function, its lines that have code
    L number line               a line that ran

Numbers have the process in them, as a forked child writes to the file of its parent.
"""

import os
import sys

_DIRECTORY = os.environ.get("BLOODHOUND_COVERAGE", "")
# What counts although it lies among installed packages.
_INCLUDE = tuple(part + "/" for part in os.environ.get("BLOODHOUND_COVERAGE_INCLUDE", "").split(":") if part)
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_PACKAGES = ("/site-packages/", "/dist-packages/")

_process = os.getpid()
_output = None
# By file name of code objects: lines that have not run yet, or None if the file does not count.
_left = {}
_numbers = {}
_known = {}


def _create():
    """Makes the file of this process. It may be opened by other users, as servers give up root."""
    global _output
    mask = os.umask(0)
    try:
        for attempt in range(1000):
            path = os.path.join(_DIRECTORY, "python-%d-%d.txt" % (_process, attempt))
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
            except FileExistsError:
                continue
            _output = path
            return
    finally:
        os.umask(mask)


def _write(text):
    # It is opened each time: a daemon closes all descriptors that it does not know, and uses their numbers for something else.
    try:
        if _output is None:
            _create()
            text = "bloodhound python 1\n" + text
        descriptor = os.open(_output, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(descriptor, text.encode("utf-8", "surrogateescape"))
        finally:
            os.close(descriptor)
    except (OSError, TypeError):
        # Nothing can be written: the service goes on all the same.
        pass


def _forked():
    global _process
    _process = os.getpid()


def _code_lines(code):
    if hasattr(code, "co_lines"):
        return sorted({line for _, _, line in code.co_lines() if line})
    # Before Python 3.10: pairs of steps in bytes and in lines (Objects/lnotab_notes.txt).
    line, lines, table = code.co_firstlineno, {code.co_firstlineno}, code.co_lnotab
    for bytes_step, line_step in zip(table[0::2], table[1::2]):
        line += line_step - 256 if line_step >= 128 else line_step
        if bytes_step or line_step:
            lines.add(line)
    return sorted(lines)


def _walk(code, outer, found):
    name = code.co_name
    if name.startswith("<"):
        name = outer
    elif outer:
        name = outer + "." + name
    found.append((code, name))
    for constant in code.co_consts:
        # Since Python 3.14 annotations have code, which runs only if somebody asks for them.
        if isinstance(constant, type(code)) and constant.co_name != "__annotate__":
            _walk(constant, name, found)


def _counts(name):
    if name.startswith("<"):
        return None
    path = os.path.abspath(name)
    if path.startswith(_INCLUDE):
        return path
    if path.startswith((_STANDARD, _OWN)) or any(part in path for part in _PACKAGES):
        return None
    return path


def _begin(code):
    """A code object of a file starts. The lines of the file that have not run yet, or None if it does not count."""
    name = code.co_filename
    if name not in _left:
        path = _counts(name)
        _left[name] = None
        if path is None:
            return None
        _left[name] = set()
        _known[name] = set()
        number = _numbers[name] = "%d.%d" % (_process, len(_numbers))
        _write("F %s %s\n" % (number, path.replace("\\", "\\\\").replace("\n", "\\n")))
    left = _left[name]
    if left is None:
        return None
    known = _known[name]
    if (code.co_firstlineno, code.co_name) in known:
        return left
    # The first one is that of the whole module, and has all others in it.
    found, text = [], []
    _walk(code, "", found)
    for inner, qualified in found:
        key = (inner.co_firstlineno, inner.co_name)
        if key in known:
            continue
        known.add(key)
        lines = _code_lines(inner)
        left.update(lines)
        # CO_OPTIMIZED: a function, no module and no body of a class. A lambda belongs to what has it.
        function = inner.co_flags & 1 and not inner.co_name.startswith("<")
        numbers = ",".join(map(str, lines))
        record = (_numbers[name], inner.co_firstlineno, qualified if function else "-", numbers)
        text.append("C %s %d %s %s\n" % record)
    _write("".join(text))
    return left


def _ran(name, line):
    left = _left[name]
    if line in left:
        left.discard(line)
        _write("L %s %d\n" % (_numbers[name], line))


def _start_tracing():
    def local(frame, event, _):
        if event == "line":
            _ran(frame.f_code.co_filename, frame.f_lineno)
        return local

    def called(frame, event, _):
        # A file of which every line has run needs no look any more.
        return local if _begin(frame.f_code) else None

    import threading

    threading.settrace(called)
    sys.settrace(called)


def _start_monitoring(monitoring):
    """Since Python 3.12. An event that was told once is switched off where it was, so it costs nothing later."""
    events = monitoring.events
    for tool in (4, 3):
        try:
            monitoring.use_tool_id(tool, "bloodhound")
            break
        except ValueError:
            continue
    else:
        return False

    def started(code, _):
        if _begin(code) is not None:
            monitoring.set_local_events(tool, code, events.LINE)
        return monitoring.DISABLE

    def reached(code, line):
        _ran(code.co_filename, line)
        return monitoring.DISABLE

    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.LINE, reached)
    monitoring.set_events(tool, events.PY_START)
    return True


_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def start():
    if not _DIRECTORY:
        return
    _write("")
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_forked)
    monitoring = getattr(sys, "monitoring", None)
    if monitoring is None or not _start_monitoring(monitoring):
        _start_tracing()
