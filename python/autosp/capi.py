# libautosp through ctypes: include/autosp.h, as far as this package needs it.  Neighbours: backend.py, call.py (who call).
# SPDX-License-Identifier: Apache-2.0
import ctypes
import functools
import glob
import os
import threading


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
        ("asp_call_create", ctypes.c_int, [pointer, text, text, size, pointer, ctypes.c_int, number, number, pointer]),
        ("asp_call_destroy", None, [pointer]),
        ("asp_call_type", text, [pointer, size]),
        ("asp_call_run", ctypes.c_int, [pointer, pointer, pointer, ctypes.c_uint64, ctypes.c_uint64]),
        ("asp_machine_rates", ctypes.c_int, [pointer, number, ctypes.c_int, pointer]),
        ("asp_recompute_parse", ctypes.c_int, [pointer, text, text, size, pointer]),
        ("asp_recompute_destroy", None, [pointer]),
        ("asp_recompute_choose", ctypes.c_int, [pointer, text, number]),
        ("asp_recompute_kept", text, [pointer, size]),
        ("asp_recompute_number", number, [pointer, text]),
        ("asp_recompute_text", text, [pointer]),
        ("asp_edits_create", ctypes.c_int, [pointer, text, text, size, text, number, text, pointer]),
        ("asp_edits_destroy", None, [pointer]),
        ("asp_edits_json", text, [pointer]),
        ("asp_edits_text", text, [pointer]),
        ("asp_edits_strategy", text, [pointer]),
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

    @property
    def strategy(self):
        return self.lib.asp_edits_strategy(self.handle).decode()

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


class Call:
    """One op of ours by its kernel, on operands of these types ("f32[1, 8, 64, 16]"), as a rank of a group runs it."""

    def __init__(self, op, attributes, types, threads, rank, ranks):
        self.lib = library()
        self.context = ctypes.c_void_p(self.lib.asp_ctx_create())
        self.handle = ctypes.c_void_p()
        self.lock = threading.Lock()
        texts = (ctypes.c_char_p * len(types))(*(t.encode() for t in types))
        self._check(self.lib.asp_call_create(self.context, op.encode(), attributes.encode(), len(types), texts, threads,
                                             rank, ranks, ctypes.byref(self.handle)))
        self.results = []
        while (t := self.lib.asp_call_type(self.handle, len(self.results))) is not None:
            self.results.append(t.decode())

    def _check(self, status):
        if status < 0:
            raise Error(self.lib.asp_ctx_message(self.context).decode())

    def run(self, given, out, seed=0, step=0):
        """given, out: addresses."""
        array = lambda x: (ctypes.c_void_p * len(x))(*x)
        with self.lock:
            self._check(self.lib.asp_call_run(self.handle, array(given), array(out), seed, step))

    def __del__(self):
        if getattr(self, "context", None):
            self.lib.asp_call_destroy(self.handle)
            self.lib.asp_ctx_destroy(self.context)


class Rates(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in ("gemm", "attention", "memory", "link")]


def rates(ranks=1, threads=1):
    """What one rank of this machine does in a second: FLOPs of products and of attention, bytes moved and received."""
    lib, out = library(), Rates()
    context = ctypes.c_void_p(lib.asp_ctx_create())
    try:
        if lib.asp_machine_rates(context, ranks, threads, ctypes.byref(out)) < 0:
            raise Error(lib.asp_ctx_message(context).decode())
    finally:
        lib.asp_ctx_destroy(context)
    return {name: getattr(out, name) for name, _ in Rates._fields_}


class Recompute:
    """What to keep of a program (docs/memory.md), by a policy; `memory`: bytes, for "budget"."""

    def __init__(self, file, text, policy, memory):
        self.lib = library()
        self.context, self.handle = ctypes.c_void_p(self.lib.asp_ctx_create()), ctypes.c_void_p()
        data = text.encode()
        self._check(self.lib.asp_recompute_parse(self.context, file.encode(), data, len(data), ctypes.byref(self.handle)))
        self._check(self.lib.asp_recompute_choose(self.handle, policy.encode(), memory or 0))
        self.text = self.lib.asp_recompute_text(self.handle).decode()
        self.kept = []
        while (name := self.lib.asp_recompute_kept(self.handle, len(self.kept))) is not None:
            self.kept.append(name.decode())

    def number(self, name):
        return self.lib.asp_recompute_number(self.handle, name.encode())

    def _check(self, status):
        if status < 0:
            raise Error(self.lib.asp_ctx_message(self.context).decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.__del__()

    def __del__(self):
        if getattr(self, "context", None):
            self.lib.asp_recompute_destroy(self.handle)
            self.lib.asp_ctx_destroy(self.context)
            self.context = None
