# Writes the models of this folder that have no config.json, built call by call through the shared library's C interface:
#   write.py LIBAUTOSP.so [FOLDER]
# Neighbours: include/autosp.h (the calls), verify.sh (who runs the models).
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import sys

WIDTH, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 32, 4, 2, 8, 48, 256


def load(path):
    lib = ctypes.CDLL(path)
    pointer, text, u64, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t
    for name, result, args in (
            ("asp_ctx_create", pointer, []), ("asp_ctx_message", text, [pointer]),
            ("asp_model_create", ctypes.c_int, [pointer, text, ctypes.POINTER(pointer)]),
            ("asp_model_input", u64, [pointer, text, text, text]),
            ("asp_model_param", u64, [pointer, text, text, text, ctypes.c_double]),
            ("asp_model_op", u64, [pointer, text, text, size, ctypes.POINTER(u64)]),
            ("asp_model_declare", u64, [pointer, text, text, text]), ("asp_model_result", u64, [pointer, u64, size]),
            ("asp_model_at", None, [pointer, text]), ("asp_model_loss", None, [pointer, u64]),
            ("asp_model_text", ctypes.c_int, [pointer, ctypes.POINTER(text)])):
        f = getattr(lib, name)
        f.restype, f.argtypes = result, args
    return lib


class Model:
    """m.add(x, y), m.sum(x, dims=[2]): ops by name, attributes as in graph text."""

    def __init__(self, lib, name):
        self.lib, self.cx, self.m = lib, lib.asp_ctx_create(), ctypes.c_void_p()
        self.check(lib.asp_model_create(self.cx, name.encode(), ctypes.byref(self.m)))
        self.place = ""

    def check(self, good):
        if good < 0:
            sys.exit(self.lib.asp_ctx_message(self.cx).decode())

    def made(self, value, what):
        if not value:
            text = ctypes.c_char_p()
            self.lib.asp_model_text(self.m, ctypes.byref(text))
            sys.exit(f"{self.place} {what}: {self.lib.asp_ctx_message(self.cx).decode()}")
        return value

    def __getattr__(self, op):
        def call(*operands, **attributes):
            values = (ctypes.c_uint64 * len(operands))(*operands)
            return self.made(self.lib.asp_model_op(self.m, op.encode(), attrs(attributes).encode(), len(operands), values), op)
        return call

    def at(self, where):
        self.place = where
        self.lib.asp_model_at(self.m, where.encode())

    def input(self, name, type, role):
        return self.made(self.lib.asp_model_input(self.m, name.encode(), type.encode(), role.encode()), name)

    def param(self, name, *dims, init="normal", std=0.1):
        shape = f"f32[{', '.join(map(str, dims))}]"
        name = f"{self.place}.{name}" if self.place else name
        return self.made(self.lib.asp_model_param(self.m, name.encode(), shape.encode(), init.encode(), std), name)

    def declare(self, op, type, **attributes):
        return self.made(self.lib.asp_model_declare(self.m, op.encode(), type.encode(), attrs(attributes).encode()), op)

    def results(self, first, n):
        return [first] + [self.made(self.lib.asp_model_result(self.m, first, i), "result") for i in range(1, n)]

    def number(self, value, type):
        return self.declare("constant", type, value=value)

    def view(self, x, *shape):
        return self.__getattr__("view")(x, shape="[" + ", ".join(map(str, shape)) + "]")

    def text(self):
        text = ctypes.c_char_p()
        self.check(self.lib.asp_model_text(self.m, ctypes.byref(text)))
        return text.value.decode()


def attrs(attributes):
    """Text in quotes is a string's; other text, as "S - 1", stands as it is."""
    def one(v):
        return str(v).lower() if isinstance(v, bool) else str(v)
    return ", ".join(f"{k} = {one(v)}" for k, v in attributes.items())


# ---- parts ---------------------------------------------------------------------------------------------------------------------

def tokens(m):
    ids, labels = m.input("input_ids", "i64[B, S]", "tokens"), m.input("labels", "i64[B, S]", "labels")
    return ids, labels, m.embedding(ids, m.param("table", VOCAB, WIDTH))


def norm(m, x, name):
    return m.rms_norm(x, m.param(name, WIDTH, init="ones"))


def heads(m, x, weight, n, length="S"):
    """(B, length, WIDTH) -> (B, n, length, HEAD)"""
    y = m.linear(x, m.param(weight, n * HEAD, WIDTH))
    return m.permute(m.view(y, "B", length, n, HEAD), perm=[0, 2, 1, 3])


def attention(m, x, memory=None, memory_length="S", positions=None, lookups=(), **attributes):
    """Of x to itself, or to the memory."""
    q = heads(m, x, "q", HEADS)
    k = heads(m, x if memory is None else memory, "k", KV_HEADS, memory_length)
    v = heads(m, x if memory is None else memory, "v", KV_HEADS, memory_length)
    if positions is not None:
        q, k = m.rope(q, positions), m.rope(k, positions)
    y = m.sdpa(q, k, v, *lookups, scale=HEAD ** -0.5, **attributes)
    y = m.view(m.permute(y, perm=[0, 2, 1, 3]), "B", "S", HEADS * HEAD)
    return m.linear(y, m.param("o", WIDTH, HEADS * HEAD))


def feed_forward(m, x):
    h = m.mul(m.silu(m.linear(x, m.param("gate", INNER, WIDTH))), m.linear(x, m.param("up", INNER, WIDTH)))
    return m.linear(h, m.param("down", WIDTH, INNER))


def loss(m, x, labels, extra=None):
    m.at("head")
    value = m.cross_entropy(m.linear(norm(m, x, "norm"), m.param("lm_head", VOCAB, WIDTH)), m.shift(labels))
    m.lib.asp_model_loss(m.m, value if extra is None else m.add(value, extra))


# ---- models --------------------------------------------------------------------------------------------------------------------

def moe(m, experts=4, k=2, layers=2):
    """Every expert works on every token and the router's weights, 0 but for k of them, choose (Shazeer 2017); the balance loss of
    Fedus 2021 counts the tokens of the whole batch."""
    ids, labels, x = tokens(m)
    positions, balance = m.declare("iota", "i64[S]"), None
    for layer in range(layers):
        m.at(f"layers.{layer}.attn")
        x = m.add(x, attention(m, norm(m, x, "norm"), positions=positions))
        m.at(f"layers.{layer}.moe")
        y = norm(m, x, "norm")
        chance = m.softmax(m.linear(y, m.param("router", experts, WIDTH)), dim=2)
        best, which = m.results(m.topk(chance, dim=2, k=k), 2)
        best = m.div(best, m.sum(best, dims=[2], keep=True))
        chosen = m.one_hot(which, classes=experts, to="f32")  # (B, S, k, E)
        weight = m.sum(m.mul(chosen, m.view(best, "B", "S", k, 1)), dims=[2])
        h = m.bmm(m.view(y, "B", 1, "S", WIDTH), m.param("up", experts, WIDTH, INNER))  # (B, E, S, INNER)
        h = m.bmm(m.silu(h), m.param("down", experts, INNER, WIDTH))
        weight = m.view(m.permute(weight, perm=[0, 2, 1]), "B", experts, "S", 1)
        x = m.add(x, m.sum(m.mul(h, weight), dims=[1]))
        share = m.mean(m.sum(chosen, dims=[2]), dims=[0, 1])  # of the tokens, by expert
        one = m.sum(m.mul(share, m.mean(chance, dims=[0, 1])), dims=[0])
        balance = one if balance is None else m.add(balance, one)
    loss(m, x, labels, m.mul_scalar(balance, value=0.02 * experts / k))


def encoder_decoder(m, layers=2, length="S + 5"):
    """Bidirectional attention over a source of another length, causal over the target, and from target to source."""
    source = m.input("source_ids", f"i64[B, {length}]", "tokens")
    ids, labels, x = tokens(m)
    m.at("encoder")
    memory = m.embedding(source, m.param("table", VOCAB, WIDTH))
    for layer in range(layers):
        m.at(f"layers.{layer}.encoder.attn")
        y = norm(m, memory, "norm")
        q, k, v = heads(m, y, "q", HEADS, length), heads(m, y, "k", HEADS, length), heads(m, y, "v", HEADS, length)
        at = m.declare("iota", f"i64[{length}]")
        y = m.permute(m.sdpa(m.rope(q, at), m.rope(k, at), v, scale=HEAD ** -0.5, causal=False), perm=[0, 2, 1, 3])
        memory = m.add(memory, m.linear(m.view(y, "B", length, WIDTH), m.param("o", WIDTH, WIDTH)))
        m.at(f"layers.{layer}.encoder.mlp")
        memory = m.add(memory, feed_forward(m, norm(m, memory, "norm")))
    m.at("memory")
    memory = norm(m, memory, "norm")
    for layer in range(layers):
        m.at(f"layers.{layers + layer}.self")
        x = m.add(x, attention(m, norm(m, x, "norm"), positions=m.declare("iota", "i64[S]")))
        m.at(f"layers.{layers + layer}.cross")
        x = m.add(x, attention(m, norm(m, x, "norm"), memory, length, causal=False))
        m.at(f"layers.{layers + layer}.mlp")
        x = m.add(x, feed_forward(m, norm(m, x, "norm")))
    loss(m, x, labels)


def state_space(m, state=4, taps=4, layers=2):
    """A selective state space (Gu & Dao 2023): a depthwise causal convolution, then h[t] = a[t] h[t-1] + b[t] x[t]."""
    ids, labels, x = tokens(m)
    for layer in range(layers):
        m.at(f"layers.{layer}.mixer")
        y = norm(m, x, "norm")
        inner, gate = m.linear(y, m.param("in", INNER, WIDTH)), m.linear(y, m.param("gate", INNER, WIDTH))
        inner = m.conv1d(m.permute(inner, perm=[0, 2, 1]), m.param("conv", INNER, 1, taps), m.param("conv_bias", INNER, init="zeros"),
                         groups=INNER, left=taps - 1)
        inner = m.silu(m.permute(inner, perm=[0, 2, 1]))  # (B, S, INNER)
        step = m.softplus(m.linear(inner, m.param("step", INNER, INNER), m.param("step_bias", INNER, init="ones")))
        step = m.view(step, "B", "S", INNER, 1)
        decay = m.exp(m.neg(m.mul(step, m.exp(m.param("decay", INNER, state)))))  # (B, S, INNER, state)
        b = m.view(m.linear(inner, m.param("b", state, INNER)), "B", "S", 1, state)
        c = m.view(m.linear(inner, m.param("c", state, INNER)), "B", "S", 1, state)
        h = m.scan(decay, m.mul(m.mul(step, b), m.view(inner, "B", "S", INNER, 1)), dim=1)
        y = m.add(m.sum(m.mul(h, c), dims=[3]), m.mul(inner, m.param("skip", INNER, init="ones")))
        x = m.add(x, m.linear(m.mul(y, m.silu(gate)), m.param("out", WIDTH, INNER)))
    loss(m, x, labels)


def documents(m, layers=2, end=10):
    """Lines as documents of one sequence: attention stays inside, positions begin anew, no line predicts the next one."""
    ids, labels, x = tokens(m)
    m.at("documents")
    ends = m.cast(m.eq(ids, m.number(end, "i64[]")), to="i64")
    line = m.sub(m.cumsum(ends, dim=1), ends)  # the end belongs to its line
    same = m.eq(line, m.shift(line, fill=-1))  # is the next token of this line?
    target = m.where(same, m.shift(labels), m.number(-100, "i64[]"))
    begins = m.shift(ends, by=-1, fill=1)
    inside = m.cast(m.sub(m.number(1, "i64[]"), begins), to="f32")
    positions = m.cast(m.scan(inside, inside, dim=1), to="i64")
    for layer in range(layers):
        m.at(f"layers.{layer}.attn")
        x = m.add(x, attention(m, norm(m, x, "norm"), positions=positions, lookups=[line], mask='"T0[q] == T0[k]"'))
        m.at(f"layers.{layer}.mlp")
        x = m.add(x, feed_forward(m, norm(m, x, "norm")))
    m.at("head")
    logits = m.linear(norm(m, x, "norm"), m.param("lm_head", VOCAB, WIDTH))
    m.lib.asp_model_loss(m.m, m.cross_entropy(logits, target))


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: write.py LIBAUTOSP.so [FOLDER]")
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.abspath(__file__))
    lib = load(sys.argv[1])
    for build in moe, encoder_decoder, state_space, documents:
        m = Model(lib, build.__name__)
        build(m)
        with open(os.path.join(folder, f"{build.__name__}.ir"), "w") as f:
            f.write(f"# Written by write.py.  SPDX-License-Identifier: Apache-2.0\n{m.text()}")


if __name__ == "__main__":
    main()
