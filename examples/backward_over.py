"""Importing this makes a program wait, before Python ends, until PyTorch's backward thread has let go of the last pass.

That thread drops the last references to a pass after `backward()` has returned, among them a copy of the caller's context
variables, a Python object. If Python is ending by then, the thread is unwound out of a C++ destructor and the process aborts:
"terminate called without an active exception" (torch 2.15 with Python before 3.14, with any GPU or none). It takes a program that
ends milliseconds after its last backward pass, on a busy machine: seldom where kernels compute, often on an emulated device.
"""
import atexit
import contextvars
import time
import weakref


class Mark:
    """Held by the context variables of this thread, and so by those of each pass."""


held = contextvars.ContextVar("held")
held.set(Mark())


@atexit.register
def wait(seconds=10):
    gone = weakref.ref(held.get())
    held.set(None)
    end = time.monotonic() + seconds
    while gone() is not None and time.monotonic() < end:
        time.sleep(0.001)
