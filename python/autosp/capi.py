# libautosp through ctypes: include/autosp.h, as far as this package needs it.  Neighbours: compile.py, ops.py (who call).
# SPDX-License-Identifier: Apache-2.0
import ctypes
import functools
import glob
import os


class Error(RuntimeError):
    """What cannot be proved equal to the single-device program, or was asked for wrongly.  The message says what, where and the way out."""


@functools.cache
def library():
    """The shared library of the wheel, or the one that AUTOSP_LIBRARY names."""
    here = os.path.dirname(os.path.abspath(__file__))
    paths = [os.environ["AUTOSP_LIBRARY"]] if "AUTOSP_LIBRARY" in os.environ else sorted(glob.glob(os.path.join(here, "libautosp.so*")))
    if not paths:
        raise Error(f"libautosp.so is not in {here}; install the package (pip install ./python), or name a library by AUTOSP_LIBRARY")
    lib = ctypes.CDLL(paths[0])
    text, size, number, pointer = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int64, ctypes.c_void_p
    for name, result, arguments in [
        ("asp_ctx_create", pointer, []),
        ("asp_ctx_destroy", None, [pointer]),
        ("asp_ctx_message", text, [pointer]),
        ("asp_version", text, []),
        ("asp_row_places", None, [number, number, number, ctypes.c_bool, number, pointer]),
        ("asp_edits_create", ctypes.c_int, [pointer, text, text, size, text, number, text, pointer]),
        ("asp_edits_destroy", None, [pointer]),
        ("asp_edits_json", text, [pointer]),
        ("asp_edits_text", text, [pointer]),
        ("asp_edits_fit", ctypes.c_int, [pointer, text, size]),
        ("asp_edits_verify", ctypes.c_int, [pointer, text, size]),
    ]:
        f = getattr(lib, name)
        f.restype, f.argtypes = result, arguments
    return lib


class Edits:
    """What C has to say about one graph: the edit list, the split program, and whether a graph is what it should be."""

    def __init__(self, name, graph, dtype, ranks, strategy):
        self.lib = library()
        self.context = ctypes.c_void_p(self.lib.asp_ctx_create())
        self.handle = ctypes.c_void_p()
        data = graph.encode()
        self._check(self.lib.asp_edits_create(self.context, name.encode(), data, len(data), dtype.encode(), ranks,
                                              strategy.encode(), ctypes.byref(self.handle)))

    def _check(self, status):
        if status < 0:
            raise Error(self.lib.asp_ctx_message(self.context).decode())

    @property
    def json(self):
        return self.lib.asp_edits_json(self.handle).decode()

    @property
    def text(self):
        return self.lib.asp_edits_text(self.handle).decode()

    def fit(self, graph):
        data = graph.encode()
        self._check(self.lib.asp_edits_fit(self.handle, data, len(data)))

    def verify(self, graph):
        data = graph.encode()
        self._check(self.lib.asp_edits_verify(self.handle, data, len(data)))

    def __del__(self):
        if getattr(self, "context", None):
            self.lib.asp_edits_destroy(self.handle)
            self.lib.asp_ctx_destroy(self.context)
            self.context = None
